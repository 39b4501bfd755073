/**
 * The language server: its process is started, watched, started again after a pause, and given up with one message.
 *
 * Knows the protocol's client and its options; neither how `tenon` was found nor what is done with what it says.
 */

import { homedir } from "node:os";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  RevealOutputChannelOn,
  type LanguageClientOptions,
  type MessageTransports,
  type Middleware,
  type StaticFeature,
} from "vscode-languageclient/node";

import { Restarts } from "./restarts";
import { forServer } from "./settings";

/** Documents of the user's, on disk or not; the server itself is silent in what is none. */
const SCHEMES = ["file", "untitled", "vscode-notebook-cell", "vscode-userdata", "vscode-vfs", "vscode-remote", "memfs"];

/** Who is told of what the server says and of how it fares. */
export interface Listeners {
  starting(): void;
  running(client: LanguageClient): void;
  gaveUp(sentence: string): void;
}

/** A client that shows no messages of its own: what goes wrong is in the log, and said once by us. */
class QuietClient extends LanguageClient {
  private isGivenUp = false;

  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  /** End a server that has not answered yet, and may never: `dispose` is for those that have. */
  giveUp(): void {
    this.isGivenUp = true;
    this.serverProcess?.kill();
  }

  protected override async createMessageTransports(encoding: string): Promise<MessageTransports> {
    const transports = await super.createMessageTransports(encoding);
    if (this.isGivenUp) {
      this.serverProcess?.kill(); // there was no process yet
    }
    return transports;
  }
}

/** One server at a time. */
export class Server {
  private readonly restarts = new Restarts();
  private current: QuietClient | undefined;
  private waiting: NodeJS.Timeout | undefined;
  private lastWords = ""; // of the process, on stderr

  constructor(
    private readonly log: vscode.LogOutputChannel,
    private readonly middleware: Middleware,
    private readonly listeners: Listeners,
  ) {}

  /** The client of the server, while it runs. */
  get client(): LanguageClient | undefined {
    return this.current?.isRunning() ? this.current : undefined;
  }

  /** Start it, in place of the one that may run; its answer is not waited for, as it may never come. */
  async start(command: string): Promise<void> {
    await this.stop();
    this.restarts.forget();
    void this.launch(command);
  }

  /** End it, and start it no more. */
  async stop(): Promise<void> {
    clearTimeout(this.waiting);
    const client = this.current;
    this.current = undefined;
    if (client?.isRunning()) {
      await client.dispose().catch((error: unknown) => this.log.warn(`the server did not stop: ${String(error)}`));
    } else {
      client?.giveUp();
    }
  }

  private async launch(command: string): Promise<void> {
    this.lastWords = "";
    this.listeners.starting();
    let client: QuietClient | undefined;
    try {
      client = this.current = this.newClient(command);
      await client.start();
    } catch (error) {
      this.ended(client, command, error instanceof Error ? error.message : String(error));
      return;
    }
    if (this.current === client) {
      this.listeners.running(client);
    } else {
      await client.dispose().catch(() => undefined); // it was stopped while it started
    }
  }

  private newClient(command: string): QuietClient {
    const isDebug = [vscode.LogLevel.Debug, vscode.LogLevel.Trace].includes(this.log.logLevel);
    const options = ["--log-level", isDebug ? "debug" : "info", "lsp"];
    // The home folder: nothing that lies in a workspace may have a say in how Python starts.
    const run = { command, args: options, options: { cwd: homedir(), windowsHide: true } };
    const client: QuietClient = new QuietClient("tenon", "Tenon", run, this.clientOptions(command, () => client));
    client.registerFeature(PREVIEWS);
    return client;
  }

  private clientOptions(command: string, self: () => QuietClient): LanguageClientOptions & {
    stdioOptions: { stdout: (stream: Readable) => void; stderr: (stream: Readable) => void };
  } {
    return {
      documentSelector: SCHEMES.map((scheme) => ({ scheme })),
      outputChannel: this.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      // Who says which editor it is is told of the engine's state.
      initializationOptions: { editorInfo: { name: "vscode", version: vscode.version } },
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          this.ended(self(), command, "it ended");
          return { action: CloseAction.DoNotRestart, handled: true };
        },
      },
      middleware: {
        ...this.middleware,
        workspace: {
          configuration: async (parameters, token, next) => {
            const sections = await next(parameters, token);
            return Array.isArray(sections) ? sections.map(forServer) : sections;
          },
        },
      },
      stdioOptions: { stdout: (stream) => stream.resume(), stderr: (stream) => this.read(stream) },
    };
  }

  private read(stream: Readable): void {
    createInterface(stream).on("line", (line) => {
      this.lastWords = line.trim() || this.lastWords;
      this.log.info(line);
    });
  }

  /** A server is gone that nobody stopped. */
  private ended(client: QuietClient | undefined, command: string, reason: string): void {
    if (this.current !== client) {
      return; // it was told so before, or has a successor
    }
    this.current = undefined;
    const pauseMs = this.restarts.pause(Date.now());
    this.log.warn(`the server is gone: ${reason}`);
    if (pauseMs === undefined) {
      const words = this.lastWords || "without a word";
      this.listeners.gaveUp(`${command} ends again and again (${words}): read the log, then run "Tenon: Restart".`);
      return;
    }
    this.listeners.starting();
    this.waiting = setTimeout(() => void this.launch(command), pauseMs);
  }
}

/** Tells the server that rewrites are to be shown as they go. */
const PREVIEWS: StaticFeature = {
  fillClientCapabilities: (capabilities) => {
    const others = typeof capabilities.experimental === "object" ? capabilities.experimental : {};
    capabilities.experimental = { ...others, tenonPreview: true };
  },
  initialize: () => undefined,
  getState: () => ({ kind: "static" }),
  clear: () => undefined,
};
