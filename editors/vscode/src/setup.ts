/** Finds `tenon`, and where there is none asks once whether to install it: what a user sees of `environment`. */

import * as vscode from "vscode";

import { Trouble, find, install, type Tenon } from "./environment";
import { programOf } from "./settings";
import type { Status } from "./status";

const INSTALL = "Set Up";
const SETTINGS = "Open Setting";
const LOG = "Show Log";

/** The way to a `tenon` that can be used. */
export class Setup {
  private readonly said = new Set<string>(); // sentences, each of which is said once

  constructor(
    private readonly managed: string,
    private readonly log: vscode.LogOutputChannel,
    private readonly status: Status,
  ) {}

  /** The `tenon` to start; undefined, and a message, when there is none. */
  async find(): Promise<Tenon | undefined> {
    const { program, complaint } = programOf(vscode.workspace.getConfiguration("tenon").get("path"));
    if (complaint !== undefined) {
      this.say(complaint, SETTINGS);
    }
    try {
      const places = { configured: program, searchPath: process.env["PATH"] ?? "", managed: this.managed };
      const tenon = await find(places);
      this.log.info(`tenon ${tenon.version} is ${tenon.command}`);
      return tenon;
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  /** Install `tenon` for this extension alone, with progress; undefined, and a message, when that failed. */
  async install(): Promise<Tenon | undefined> {
    const options = {
      location: vscode.ProgressLocation.Notification,
      title: "Tenon: setting up",
      cancellable: true,
    };
    return vscode.window.withProgress(options, async (progress, token) => {
      const abort = new AbortController();
      token.onCancellationRequested(() => abort.abort());
      const report = (doing: string) => {
        progress.report({ message: doing });
        this.status.show({ kind: "setting-up", doing });
        this.log.info(`setting up: ${doing}`);
      };
      this.said.clear(); // the user has asked for it, and is told how it went
      try {
        return await install(this.managed, process.env["PATH"] ?? "", report, abort.signal);
      } catch (error) {
        this.fail(error);
        return undefined;
      }
    });
  }

  /** Say a sentence, unless it was said before, with what can be done about it. */
  say(sentence: string, ...remedies: string[]): void {
    if (this.said.has(sentence)) {
      return;
    }
    this.said.add(sentence);
    this.log.warn(sentence);
    void vscode.window.showWarningMessage(`Tenon: ${sentence}`, ...remedies, LOG).then((chosen) => {
      if (chosen === INSTALL) {
        void vscode.commands.executeCommand("tenon.setUp");
      } else if (chosen === SETTINGS) {
        void vscode.commands.executeCommand("workbench.action.openSettings", "tenon.path");
      } else if (chosen === LOG) {
        this.log.show();
      }
    });
  }

  private fail(error: unknown): void {
    const sentence = error instanceof Error ? error.message : String(error);
    const canInstall = error instanceof Trouble && error.canInstall;
    this.status.show({ kind: "trouble", sentence, canInstall });
    this.say(sentence, canInstall ? INSTALL : SETTINGS);
  }
}
