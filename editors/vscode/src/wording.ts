/** What the status bar says. Knows what is going on, not the editor. */

import type { Off } from "./settings";

/** What the server tells of the engine (`didChangeStatus`). */
export interface EngineStatus {
  readonly message: string; // stopped, starting, loading, ready, busy or failed
  readonly model?: string;
  readonly device?: string;
  readonly percent?: number;
  readonly latencyMs?: number;
}

/** What is going on, as far as the status bar shows it. */
export type Situation =
  | { readonly kind: "setting-up"; readonly doing: string }
  | { readonly kind: "starting" }
  | { readonly kind: "trouble"; readonly sentence: string; readonly canInstall: boolean }
  | { readonly kind: "running"; readonly engine: EngineStatus | undefined; readonly off: Off | undefined };

/** What is shown; `press` is the command of a click. */
export interface Wording {
  readonly text: string;
  readonly tooltip: string;
  readonly press: "tenon.menu" | "tenon.showLog" | "tenon.setUp";
  readonly isError: boolean;
}

/** The status bar's words for a situation. */
export function wording(situation: Situation): Wording {
  switch (situation.kind) {
    case "setting-up":
      return plain("$(loading~spin) Tenon", `Setting up: ${situation.doing}`);
    case "starting":
      return plain("$(loading~spin) Tenon", "The language server is starting.");
    case "trouble": {
      const press = situation.canInstall ? "tenon.setUp" : "tenon.showLog";
      const hint = situation.canInstall ? "Click to set it up." : "Click for the log.";
      return { text: "$(error) Tenon", tooltip: `${situation.sentence} ${hint}`, press, isError: true };
    }
    case "running":
      return running(situation.engine, situation.off);
  }
}

function running(engine: EngineStatus | undefined, off: Off | undefined): Wording {
  if (engine?.message === "failed") {
    const tooltip = "The engine has failed. It is tried again with the next suggestion. Click for the log.";
    return { text: "$(error) Tenon", tooltip, press: "tenon.showLog", isError: true };
  }
  if (off !== undefined) {
    const where = off === "everywhere" ? "everywhere" : "for this language";
    return plain("$(circle-slash) Tenon", `Suggestions while typing are off ${where}.`);
  }
  switch (engine?.message) {
    case "starting":
    case "loading": {
      const done = engine.percent === undefined ? "" : ` ${engine.percent} %`;
      return plain(`$(loading~spin) Tenon${done}`, `The model is being loaded${done && `:${done}`}.`);
    }
    case "ready":
    case "busy":
      return plain(engine.message === "busy" ? "$(sync~spin) Tenon" : "$(combine) Tenon", details(engine));
    default:
      return plain("$(combine) Tenon", "Ready. The model is loaded when you begin to type.");
  }
}

function plain(text: string, tooltip: string): Wording {
  return { text, tooltip, press: "tenon.menu", isError: false };
}

/** Model, device and last latency, as far as they are known. */
function details(engine: EngineStatus): string {
  const where = engine.device ? ` on ${engine.device}` : "";
  const who = engine.model ? `Ready: ${engine.model}${where}.` : "Ready.";
  return engine.latencyMs === undefined ? who : `${who} The last suggestion took ${engine.latencyMs} ms.`;
}
