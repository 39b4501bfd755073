/** How a rewrite looks as it goes: drawn over the old text, which stays what it is until the rewrite is done. */

import * as vscode from "vscode";

import { laidOver } from "./lines";

/** What the server tells after a denoising step (`tenon/preview`). */
export interface PreviewStep {
  readonly uri: string;
  readonly version: number;
  readonly range: { readonly start: Place; readonly end: Place };
  readonly text: string; // open slots are dots
}

interface Place {
  readonly line: number;
  readonly character: number;
}

/** The one preview that is drawn. */
export class Preview implements vscode.Disposable {
  private readonly hidden = vscode.window.createTextEditorDecorationType({
    textDecoration: "none; display: none", // the old text takes no room while the new one stands in its place
  });
  private readonly shown = vscode.window.createTextEditorDecorationType({
    before: { color: new vscode.ThemeColor("editorGhostText.foreground"), fontStyle: "italic" },
  });
  private readonly listener = vscode.workspace.onDidChangeTextDocument((change) => {
    if (this.editor?.document === change.document && change.contentChanges.length > 0) {
      this.clear();
    }
  });
  private editor: vscode.TextEditor | undefined;

  /** Draw a step, where its document is on the screen as the server knows it. */
  show(step: PreviewStep): void {
    const editor = vscode.window.visibleTextEditors.find(
      ({ document }) => document.uri.toString() === vscode.Uri.parse(step.uri).toString(),
    );
    if (editor?.document.version !== step.version || !vscode.workspace.getConfiguration("tenon").get("preview")) {
      return;
    }
    if (this.editor !== editor) {
      this.clear();
      this.editor = editor;
    }
    const { start, end } = step.range;
    const range = new vscode.Range(start.line, start.character, end.line, end.character);
    editor.setDecorations(this.hidden, rowsOf(range, editor.document));
    editor.setDecorations(this.shown, rows(range, step.text, editor.document));
  }

  /** Take it away. */
  clear(): void {
    this.editor?.setDecorations(this.hidden, []);
    this.editor?.setDecorations(this.shown, []);
    this.editor = undefined;
  }

  dispose(): void {
    this.clear();
    vscode.Disposable.from(this.hidden, this.shown, this.listener).dispose();
  }
}

/** The part of each row that a range covers. */
function rowsOf(range: vscode.Range, document: vscode.TextDocument): vscode.Range[] {
  const count = range.end.line - range.start.line + 1;
  return Array.from({ length: count }, (_, index) => {
    const row = document.lineAt(range.start.line + index).range;
    return row.intersection(range) ?? new vscode.Range(row.start, row.start);
  });
}

function rows(range: vscode.Range, text: string, document: vscode.TextDocument): vscode.DecorationOptions[] {
  const covered = rowsOf(range, document);
  return laidOver(text, covered.length).map((contentText, index) => ({
    range: covered[index] ?? range,
    renderOptions: { before: { contentText } },
  }));
}
