/** As much of VS Code as the parts that are tested in plain Node call: the module `vscode` of the tests' bundles. */

/** A token that may be cancelled. */
export class CancellationTokenSource {
  private readonly listeners: (() => void)[] = [];
  readonly token = {
    isCancellationRequested: false,
    onCancellationRequested: (listener: () => void) => {
      this.listeners.push(listener);
      return { dispose: () => undefined };
    },
  };

  cancel(): void {
    this.token.isCancellationRequested = true;
    this.listeners.forEach((listener) => listener());
  }

  dispose(): void {
    this.listeners.length = 0;
  }
}

export const commands = { executeCommand: async (): Promise<void> => undefined };
