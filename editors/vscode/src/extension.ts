/** The extension: puts the parts together, and connects them to VS Code's events and commands. */

import * as vscode from "vscode";
import type { LanguageClient, Middleware } from "vscode-languageclient/node";

import type { Server } from "./client";
import { Commands } from "./commands";
import { Preview, type PreviewStep } from "./preview";
import { toggled } from "./settings";
import { Setup } from "./setup";
import { Status } from "./status";
import { asOne, inTurn } from "./turns";
import { Work } from "./work";
import type { EngineStatus } from "./wording";

let server: Server | undefined;

/** Called by VS Code. Nothing is waited for: an editor must not be slower for this. */
export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Tenon", { log: true });
  const status = new Status();
  const preview = new Preview();
  const work = new Work(() => preview.clear());
  const setup = new Setup(vscode.Uri.joinPath(context.globalStorageUri, "environment").fsPath, log, status);
  const start = starter(setup, async () => {
    const { Server } = await import("./client.js"); // not before it is needed: it is most of the extension
    return new Server(log, actionsIn(work), {
      starting: () => status.show({ kind: "starting" }),
      running: (client) => follow(client, status, preview),
      gaveUp: (sentence) => {
        status.show({ kind: "trouble", sentence, canInstall: false });
        setup.say(sentence);
      },
    });
  });
  const setUp = asOne(async () => {
    if (await setup.install()) {
      await start();
    } else if (server?.client !== undefined) {
      status.stillRunning();
    }
  });
  const commands = new Commands(() => server?.client, work);
  context.subscriptions.push(log, status, preview, work, commands);
  context.subscriptions.push(
    ...registered({ log, work, commands, start, setUp }),
    vscode.workspace.onDidChangeConfiguration((change) => change.affectsConfiguration("tenon.path") && void start()),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void start()),
  );
  void start();
}

/** Called by VS Code. */
export async function deactivate(): Promise<void> {
  await server?.stop();
}

/** Starts the server with the `tenon` that is there; one search after the other. */
function starter(setup: Setup, make: () => Promise<Server>): () => Promise<void> {
  return inTurn(async () => {
    await server?.stop();
    const tenon = await setup.find();
    if (tenon !== undefined) {
      server ??= await make();
      await server.start(tenon.command);
    }
  });
}

/** What a server that has started is listened to for. */
function follow(client: LanguageClient, status: Status, preview: Preview): void {
  status.running();
  client.onNotification("didChangeStatus", (engine: EngineStatus) => status.tell(engine));
  client.onNotification("tenon/preview", (step: PreviewStep) => preview.show(step));
}

/** A code action from the editor's own menu is a piece of work, too: Escape ends it, and then its preview is gone. */
function actionsIn(work: Work): Middleware {
  return {
    resolveCodeAction: (item, token, next) => work.run(async (inner) => (await next(item, inner)) ?? item, token),
  };
}

interface Parts {
  readonly log: vscode.LogOutputChannel;
  readonly work: Work;
  readonly commands: Commands;
  readonly start: () => Promise<void>;
  readonly setUp: () => Promise<void>;
}

function registered({ log, work, commands, start, setUp }: Parts): vscode.Disposable[] {
  const table: Record<string, () => unknown> = {
    "tenon.trigger": () => vscode.commands.executeCommand("editor.action.inlineSuggest.trigger"),
    "tenon.toggle": toggle,
    "tenon.toggleLanguage": toggleLanguage,
    "tenon.rewriteSelection": () => commands.rewrite(),
    "tenon.refineLight": () => commands.doDeed("refine.light"),
    "tenon.refineMedium": () => commands.doDeed("refine.medium"),
    "tenon.refineStrong": () => commands.doDeed("refine.strong"),
    "tenon.fillHoles": () => commands.doDeed("fillHoles"),
    "tenon.cancel": () => work.cancel(),
    "tenon.showTrace": () => commands.showTrace(),
    "tenon.restart": start,
    "tenon.setUp": setUp,
    "tenon.showLog": () => log.show(),
    "tenon.menu": menu,
  };
  return Object.entries(table).map(([name, act]) => vscode.commands.registerCommand(name, act));
}

async function toggle(): Promise<void> {
  const settings = vscode.workspace.getConfiguration("tenon");
  await settings.update("enabled", settings.get("enabled") === false, targetOf(settings, "enabled"));
}

async function toggleLanguage(): Promise<void> {
  const language = vscode.window.activeTextEditor?.document.languageId;
  if (language === undefined) {
    void vscode.window.showInformationMessage("Tenon: open a file of the language first.");
    return;
  }
  const settings = vscode.workspace.getConfiguration("tenon");
  const languages = toggled(settings.get("disabled.languages"), language);
  await settings.update("disabled.languages", languages, targetOf(settings, "disabled.languages"));
}

/** Where a setting is to be changed so that the change has an effect: in the workspace if it is set there. */
function targetOf(settings: vscode.WorkspaceConfiguration, name: string): vscode.ConfigurationTarget {
  const isOfWorkspace = settings.inspect(name)?.workspaceValue !== undefined;
  return isOfWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
}

async function menu(): Promise<void> {
  const entries = [
    { label: "$(circle-slash) Switch suggestions on or off", command: "tenon.toggle" },
    { label: "$(code) Switch suggestions on or off for this language", command: "tenon.toggleLanguage" },
    { label: "$(edit) Rewrite selection…", command: "tenon.rewriteSelection" },
    { label: "$(symbol-namespace) Fill holes", command: "tenon.fillHoles" },
    { label: "$(play) Show how the hole at the cursor is denoised", command: "tenon.showTrace" },
    { label: "$(refresh) Restart", command: "tenon.restart" },
    { label: "$(output) Show log", command: "tenon.showLog" },
    { label: "$(gear) Settings", command: "tenon.openSettings" },
  ];
  const chosen = await vscode.window.showQuickPick(entries, { title: "Tenon" });
  if (chosen?.command === "tenon.openSettings") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "@ext:tenon.tenon");
  } else if (chosen !== undefined) {
    await vscode.commands.executeCommand(chosen.command);
  }
}
