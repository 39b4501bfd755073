/** One piece of work at a time. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Work } from "../src/work";

/** A job that goes on until it is cancelled. */
const untilCancelled: Parameters<Work["run"]>[0] = (token) =>
  new Promise((_, reject) => token.onCancellationRequested(() => reject(new Error("cancelled"))));

test("work that another one takes the place of is cancelled, and what it has drawn is taken away", async () => {
  const seen: string[] = [];
  const work = new Work(() => seen.push("taken away"));
  const first = assert.rejects(work.run(untilCancelled), /cancelled/);
  await new Promise(setImmediate);
  await work.run(async () => {
    await first;
    seen.push("the next one works");
  });
  assert.deepEqual(seen, ["taken away", "the next one works", "taken away"]);
});

test("work that is cancelled takes away what it has drawn", async () => {
  let count = 0;
  const work = new Work(() => count++);
  const running = assert.rejects(work.run(untilCancelled), /cancelled/);
  await new Promise(setImmediate);
  work.cancel();
  await running;
  assert.equal(count, 1);
});
