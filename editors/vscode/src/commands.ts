/** The commands that work on a document: each asks the server, and says in one sentence why nothing came of it. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";

import type { Work } from "./work";

/** What can be done with a selection or a document, by the end of its code action kind. */
export type Deed = "rewrite" | "refine.light" | "refine.medium" | "refine.strong" | "fillHoles";

const KIND = "refactor.rewrite.tenon";
const CANCELLED = -32800; // the protocol's code
const NOTHING: Readonly<Record<"selection" | "holes", string>> = {
  selection: "Tenon: select the text first.",
  holes: "Tenon: there is no marker of a hole here, such as ___ or TODO_FILL (tenon.holeMarkers).",
};

/** Carries out what is chosen. */
export class Commands implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;

  constructor(
    private readonly client: () => LanguageClient | undefined,
    private readonly work: Work,
  ) {}

  /** Rewrite the selection as the user says. */
  async rewrite(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor?.selection.isEmpty !== false) {
      void vscode.window.showInformationMessage(NOTHING.selection);
      return;
    }
    const instruction = await vscode.window.showInputBox({
      title: "Tenon: rewrite selection",
      placeHolder: "What should change? Leave it empty to have it written anew.",
    });
    if (instruction !== undefined) {
      await this.carryOut("rewrite", (data) => ({ command: "tenon.rewrite", arguments: [data, instruction] }));
    }
  }

  /** Refine the selection, or fill the holes that are marked in it or in the whole document. */
  async doDeed(deed: Exclude<Deed, "rewrite">): Promise<void> {
    await this.carryOut(deed, (data) => ({ command: "tenon.carryOut", arguments: [data] }));
  }

  /** Show how the hole at the cursor is denoised. */
  async showTrace(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    await this.asked(async (client, token) => {
      if (editor === undefined) {
        return;
      }
      const uri = client.code2ProtocolConverter.asUri(editor.document.uri);
      const position = client.code2ProtocolConverter.asPosition(editor.selection.active);
      const parameters = { command: "tenon.trace", arguments: [uri, position] };
      const page: unknown = await client.sendRequest("workspace/executeCommand", parameters, token);
      if (typeof page === "string") {
        this.showPage(page);
      }
    });
  }

  dispose(): void {
    this.panel?.dispose();
  }

  private async carryOut(
    deed: Deed,
    command: (data: unknown) => { command: string; arguments: unknown[] },
  ): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    await this.asked(async (client, token) => {
      const action = editor && (await offer(client, editor, deed, token));
      if (action === undefined) {
        void vscode.window.showInformationMessage(deed === "fillHoles" ? NOTHING.holes : NOTHING.selection);
      } else {
        await client.sendRequest("workspace/executeCommand", command(action.data), token);
      }
    });
  }

  /** Ask the server something that Escape cancels; what fails is said. */
  private async asked(job: (client: LanguageClient, token: vscode.CancellationToken) => Promise<void>): Promise<void> {
    const client = this.client();
    if (client === undefined) {
      void vscode.window.showInformationMessage("Tenon: the language server is not running.");
      return;
    }
    try {
      await this.work.run((token) => job(client, token));
    } catch (error) {
      if (!wasCancelled(error)) {
        void vscode.window.showWarningMessage(`Tenon: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }

  private showPage(page: string): void {
    if (this.panel === undefined) {
      const place = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
      this.panel = vscode.window.createWebviewPanel("tenon.trace", "Tenon trace", place, { enableScripts: true });
      this.panel.onDidDispose(() => (this.panel = undefined));
    }
    this.panel.webview.html = page; // it loads nothing, and says so in its content security policy
    this.panel.reveal(undefined, true);
  }
}

function wasCancelled(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return error instanceof vscode.CancellationError || code === CANCELLED;
}

/** What the server offers to do, by what it wants to have back. */
interface Offer {
  readonly data: unknown;
}

/** What the server offers to do with the selection. */
async function offer(
  client: LanguageClient,
  editor: vscode.TextEditor,
  deed: Deed,
  token: vscode.CancellationToken,
): Promise<Offer | undefined> {
  const parameters = {
    textDocument: client.code2ProtocolConverter.asTextDocumentIdentifier(editor.document),
    range: client.code2ProtocolConverter.asRange(editor.selection),
    context: { diagnostics: [], only: [`${KIND}.${deed}`] },
  };
  return (await client.sendRequest<Offer[] | null>("textDocument/codeAction", parameters, token))?.[0];
}
