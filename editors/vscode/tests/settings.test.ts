/** What the settings mean to the extension, whatever a user writes into them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { forServer, off, programOf, toggled } from "../src/settings";

test("the server sees its own settings alone", () => {
  const section = { path: "/x", preview: true, trace: { server: "off" }, enabled: true, engine: { url: "" } };
  assert.deepEqual(forServer(section), { enabled: true, engine: { url: "" } });
  assert.equal(forServer(null), null);
});

test("a path is trimmed, and empty where it is not set", () => {
  assert.deepEqual(programOf("  /usr/bin/tenon "), { program: "/usr/bin/tenon" });
  assert.deepEqual(programOf(undefined), { program: "" });
  assert.deepEqual(programOf(null), { program: "" });
});

test("a path that is no string is named and not used", () => {
  const { program, complaint } = programOf({ linux: "/x" });
  assert.equal(program, "");
  assert.equal(complaint, '"tenon.path" must be a string, not {"linux":"/x"}; it is not used.');
});

test("off is off everywhere, or for a language in the list", () => {
  assert.equal(off(false, [], "python"), "everywhere");
  assert.equal(off(true, ["go", "python"], "python"), "language");
  assert.equal(off(true, ["go"], "python"), undefined);
  assert.equal(off(true, ["go"], undefined), undefined);
  assert.equal(off("no", "python", "python"), undefined);
});

test("a language is put into the list and taken out again", () => {
  assert.deepEqual(toggled(["go"], "python"), ["go", "python"]);
  assert.deepEqual(toggled(["go", "python"], "python"), ["go"]);
  assert.deepEqual(toggled({ wrong: true }, "python"), ["python"]);
  assert.deepEqual(toggled([1, "go"], "python"), ["go", "python"]);
});
