/** What the status bar says. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { wording, type EngineStatus, type Situation } from "../src/wording";

function running(engine?: EngineStatus, off?: "everywhere" | "language"): Situation {
  return { kind: "running", engine, off };
}

test("loading shows how far it is", () => {
  const shown = wording(running({ message: "loading", percent: 34 }));
  assert.equal(shown.text, "$(loading~spin) Tenon 34 %");
  assert.equal(shown.tooltip, "The model is being loaded: 34 %.");
  assert.equal(wording(running({ message: "loading" })).text, "$(loading~spin) Tenon");
});

test("ready shows the model, where it runs and the last latency, as far as they are known", () => {
  const engine = { message: "ready", model: "tenon-0.5b", device: "cpu", latencyMs: 340 };
  assert.equal(wording(running(engine)).tooltip, "Ready: tenon-0.5b on cpu. The last suggestion took 340 ms.");
  assert.equal(wording(running({ message: "ready", model: "m" })).tooltip, "Ready: m.");
  assert.equal(wording(running({ message: "ready" })).tooltip, "Ready.");
});

test("before anything is typed, it says when the model is loaded", () => {
  assert.match(wording(running()).tooltip, /loaded when you begin to type/);
  assert.match(wording(running({ message: "stopped" })).tooltip, /loaded when you begin to type/);
});

test("off for this language, or everywhere, comes before what the engine does", () => {
  assert.match(wording(running({ message: "ready" }, "language")).tooltip, /off for this language/);
  assert.match(wording(running({ message: "loading" }, "everywhere")).tooltip, /off everywhere/);
});

test("an engine that failed is an error, and a click shows the log", () => {
  const shown = wording(running({ message: "failed" }));
  assert.deepEqual([shown.isError, shown.press], [true, "tenon.showLog"]);
});

test("trouble with the set-up is an error, and a click sets up where that helps", () => {
  const trouble = { kind: "trouble", sentence: "There is none." } as const;
  assert.equal(wording({ ...trouble, canInstall: true }).press, "tenon.setUp");
  assert.equal(wording({ ...trouble, canInstall: false }).press, "tenon.showLog");
  assert.match(wording({ ...trouble, canInstall: false }).tooltip, /^There is none\. Click/);
});

test("an unknown state of a newer server is no error", () => {
  assert.equal(wording(running({ message: "dreaming" })).isError, false);
});
