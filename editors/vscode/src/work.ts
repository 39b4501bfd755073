/** What the user has asked for and waits for: one piece of work at a time, which Escape ends. */

import * as vscode from "vscode";

const CONTEXT = "tenon.working"; // in the `when` of the key that cancels

/** The piece of work that is under way, if any. */
export class Work implements vscode.Disposable {
  private source: vscode.CancellationTokenSource | undefined;

  constructor(private readonly onEnd: () => void) {}

  /** Do a job in place of the one before; `outer` may end it, too. */
  async run<T>(job: (token: vscode.CancellationToken) => Promise<T>, outer?: vscode.CancellationToken): Promise<T> {
    this.cancel();
    const source = new vscode.CancellationTokenSource();
    const link = outer?.onCancellationRequested(() => source.cancel());
    this.source = source;
    await vscode.commands.executeCommand("setContext", CONTEXT, true);
    try {
      return await job(source.token);
    } finally {
      link?.dispose();
      source.dispose();
      this.onEnd(); // also of one that another has taken the place of: that may draw nothing
      if (this.source === source) {
        this.source = undefined;
        await vscode.commands.executeCommand("setContext", CONTEXT, false);
      }
    }
  }

  /** End it. */
  cancel(): void {
    this.source?.cancel();
  }

  dispose(): void {
    this.cancel();
  }
}
