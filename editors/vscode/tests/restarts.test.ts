/** When a server that ended is started again. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Restarts } from "../src/restarts";

test("the pauses grow, and then it is given up", () => {
  const restarts = new Restarts();
  const pauses = [0, 1, 2, 3, 4].map((second) => restarts.pause(second * 1000));
  assert.deepEqual(pauses, [500, 2000, 5000, 10000, undefined]);
});

test("an end now and then is none too many", () => {
  const restarts = new Restarts();
  for (let hour = 0; hour < 50; hour++) {
    assert.equal(restarts.pause(hour * 3_600_000), 500);
  }
});

test("a start that the user asked for begins anew", () => {
  const restarts = new Restarts();
  [0, 1, 2, 3].forEach((ms) => restarts.pause(ms));
  restarts.forget();
  assert.equal(restarts.pause(4), 500);
});
