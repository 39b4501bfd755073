/** The item in the status bar: keeps what is going on, and shows it for the editor that has the focus. */

import * as vscode from "vscode";

import { off } from "./settings";
import { wording, type EngineStatus, type Situation } from "./wording";

/** The item. */
export class Status implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("tenon", vscode.StatusBarAlignment.Right, 100);
  private readonly listeners: vscode.Disposable[];
  private situation: Situation = { kind: "starting" };
  private engine: EngineStatus | undefined;

  constructor() {
    this.item.name = "Tenon";
    this.listeners = [
      vscode.window.onDidChangeActiveTextEditor(() => this.draw()),
      vscode.workspace.onDidChangeConfiguration((change) => change.affectsConfiguration("tenon") && this.draw()),
    ];
    this.draw();
    this.item.show();
  }

  /** What there is of a trouble. */
  get trouble(): Extract<Situation, { kind: "trouble" }> | undefined {
    return this.situation.kind === "trouble" ? this.situation : undefined;
  }

  /** Something else is going on. */
  show(situation: Situation): void {
    this.situation = situation;
    this.draw();
  }

  /** The server runs; it has told nothing of its engine yet. */
  running(): void {
    this.engine = undefined;
    this.stillRunning();
  }

  /** The server runs on, and what it has told of its engine holds: something else has failed. */
  stillRunning(): void {
    this.show({ kind: "running", engine: undefined, off: undefined });
  }

  /** The server tells of its engine. */
  tell(engine: EngineStatus): void {
    this.engine = engine;
    this.draw();
  }

  dispose(): void {
    this.item.dispose();
    vscode.Disposable.from(...this.listeners).dispose();
  }

  private draw(): void {
    const shown = wording(this.situation.kind === "running" ? this.now() : this.situation);
    this.item.text = shown.text;
    this.item.tooltip = shown.tooltip;
    this.item.command = shown.press;
    this.item.accessibilityInformation = { label: `Tenon. ${shown.tooltip}` };
    this.item.backgroundColor = shown.isError ? new vscode.ThemeColor("statusBarItem.errorBackground") : undefined;
  }

  private now(): Situation {
    const settings = vscode.workspace.getConfiguration("tenon");
    const language = vscode.window.activeTextEditor?.document.languageId;
    const why = off(settings.get("enabled"), settings.get("disabled.languages"), language);
    return { kind: "running", engine: this.engine, off: why };
  }
}
