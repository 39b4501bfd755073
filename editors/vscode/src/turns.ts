/** What becomes of a job that is asked for while it runs. */

/** It is run again afterwards, however that ends. */
export function inTurn(job: () => Promise<void>): () => Promise<void> {
  let last: Promise<void> = Promise.resolve();
  return () => (last = last.then(job, job));
}

/** It is not run again: who asks gets what comes of the run that is under way. */
export function asOne<T>(job: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => (running ??= job().finally(() => (running = undefined)));
}
