/** Text laid over rows that are there already. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { laidOver } from "../src/lines";

const seen = (rows: string[]): string[] => rows.map((row) => row.replaceAll("\u00a0", " "));

test("a line goes on each row", () => {
  assert.deepEqual(seen(laidOver("a\n  b", 2)), ["a", "  b"]);
  assert.deepEqual(seen(laidOver("a\r\n\tb", 2)), ["a", "    b"]);
});

test("what is too much goes on the last row", () => {
  assert.deepEqual(seen(laidOver("a\nb\n  c\n  d", 2)), ["a", "b ⏎ c ⏎ d"]);
  assert.deepEqual(seen(laidOver("a\nb", 1)), ["a ⏎ b"]);
});

test("rows for which there is no line are empty", () => {
  assert.deepEqual(laidOver("a", 3), ["a", "", ""]);
  assert.deepEqual(laidOver("", 1), [""]);
});
