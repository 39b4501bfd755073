/** Jobs that are asked for while they run. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { asOne, inTurn } from "../src/turns";

test("a job in turn begins when the one before has ended, however it ended", async () => {
  const seen: string[] = [];
  const run = inTurn(async () => {
    seen.push("begins");
    await Promise.resolve();
    seen.push("ends");
    throw new Error("no luck");
  });
  const outcomes = await Promise.allSettled([run(), run()]);
  assert.deepEqual(seen, ["begins", "ends", "begins", "ends"]);
  assert.deepEqual(outcomes.map((each) => each.status), ["rejected", "rejected"]);
});

test("two that ask for one job at once get the same run, and a later one gets another", async () => {
  let count = 0;
  const run = asOne(async () => ++count);
  assert.deepEqual(await Promise.all([run(), run()]), [1, 1]);
  assert.equal(await run(), 2);
});

test("a run that failed is not kept", async () => {
  const luck = [false, true];
  const run = asOne(async () => (luck.shift() ? "done" : assert.fail("no luck")));
  await assert.rejects(run());
  assert.equal(await run(), "done");
});
