/** When a server that ended is started again: after a pause that grows, and not for ever. Knows no process. */

const PAUSES_MS = [500, 2_000, 5_000, 10_000];
const FORGOTTEN_AFTER_MS = 180_000; // an end so long ago says nothing about the next start

/** Counts the ends of one server. */
export class Restarts {
  private ends: number[] = [];

  /** The server ended at `nowMs`: how long to wait before it is started again; undefined: it is given up. */
  pause(nowMs: number): number | undefined {
    this.ends = [...this.ends.filter((end) => nowMs - end < FORGOTTEN_AFTER_MS), nowMs];
    return PAUSES_MS[this.ends.length - 1];
  }

  /** The user has asked for a start: what was before does not count. */
  forget(): void {
    this.ends = [];
  }
}
