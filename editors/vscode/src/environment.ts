/**
 * Where a `tenon` is that can be used, and how one is installed where there is none.
 *
 * Knows processes and folders; neither the editor nor what a user is asked. What goes wrong is a Trouble: one sentence
 * that says what to do.
 */

import { execFile, spawn } from "node:child_process";
import { access, constants, mkdir, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";

export const OLDEST = "0.1.0"; // the first that tells its state and shows rewrites as they go
export const PACKAGE = "tenon-ls";

const MISSING =
  'There is no tenon on this machine yet: have it set up (with Python 3.10 or newer), or set "tenon.path".';
const ANSWER_MS = 20_000; // for a version; the first start after an installation compiles a lot
const IS_WINDOWS = process.platform === "win32";
const NO_NETWORK = /Errno|ConnectionError|ProxyError|timed out|Temporary failure|Could not find a version/i;

/** A `tenon` that can be started. */
export interface Tenon {
  readonly command: string;
  readonly version: string;
}

/** Why there is none, and whether installing one would help. */
export class Trouble extends Error {
  constructor(sentence: string, readonly canInstall: boolean) {
    super(sentence);
  }
}

/** Where to look, in this order. */
export interface Places {
  readonly configured: string; // the setting, "" where it is not set; nothing else is tried where it is
  readonly searchPath: string; // as in the variable PATH
  readonly managed: string; // the folder of the environment that `install` makes
}

/** The first `tenon` that can be used; a Trouble when there is none. */
export async function find(places: Places): Promise<Tenon> {
  if (places.configured) {
    return check(expanded(places.configured, IS_WINDOWS));
  }
  let trouble: Trouble | undefined;
  for (const command of [...onPath("tenon", places.searchPath), inEnvironment(places.managed, "tenon")]) {
    if (!(await exists(command))) {
      continue;
    }
    try {
      return await check(command);
    } catch (error) {
      trouble ??= error as Trouble;
    }
  }
  throw new Trouble(trouble?.message ?? MISSING, true);
}

/** Whether `command` is a `tenon` that can be used. */
export async function check(command: string): Promise<Tenon> {
  const outcome = await run(command, ["--version"]);
  if (outcome.fault === "ENOENT") {
    throw new Trouble(`There is no program ${command}: set "tenon.path" to another one, or to nothing.`, false);
  }
  if (outcome.fault === "EACCES") {
    throw new Trouble(`${command} may not be run: make it executable, or set "tenon.path" to another one.`, false);
  }
  const version = /^tenon (\d+(?:\.\d+)*)/m.exec(outcome.output)?.[1];
  if (outcome.fault || !version) {
    const reason = lastLine(outcome.complaint) || outcome.fault || "it does not say its version";
    throw new Trouble(`${command} does not start (${reason}): install ${PACKAGE} again, or set "tenon.path".`, false);
  }
  if (isOlder(version, OLDEST)) {
    const remedy = `update it (pip install --upgrade ${PACKAGE}), or set "tenon.path" to another one`;
    throw new Trouble(`${command} is version ${version}, too old for this extension (${OLDEST}): ${remedy}.`, false);
  }
  return { command, version };
}

/**
 * Install the newest `tenon` into the environment for Python in `folder`; `report` is told what is being done.
 *
 * Where a `tenon` works there, it is brought up to date in place. Else the environment is made anew; what is half made,
 * because it failed or `signal` ended it, is taken away again.
 */
export async function install(
  folder: string,
  searchPath: string,
  report: (doing: string) => void,
  signal: AbortSignal,
): Promise<Tenon> {
  const tenon = inEnvironment(folder, "tenon");
  const step: Step = (command, options, failure) => follow(command, options, report, signal, failure);
  try {
    if (!(await works(tenon))) {
      const python = await findPython(searchPath);
      report("making an environment");
      return await makeAnew(folder, python, step);
    }
    report(`updating ${PACKAGE}`);
    await fetchInto(folder, step);
    return await check(tenon);
  } catch (error) {
    throw error instanceof Trouble ? error : new Trouble(notMade(folder, error), true);
  }
}

/** Whether `version` is older than `other`; both are numbers with dots between them. */
export function isOlder(version: string, other: string): boolean {
  const [ours, theirs] = [version, other].map((each) => each.split(".").map(Number)) as [number[], number[]];
  for (let index = 0; index < Math.max(ours.length, theirs.length); index++) {
    const difference = (ours[index] ?? 0) - (theirs[index] ?? 0);
    if (difference !== 0) {
      return difference < 0;
    }
  }
  return false;
}

/** A path with the home folder for a `~` at its beginning. */
export function expanded(path: string, isWindows: boolean): string {
  const isOfHome = path.startsWith("~/") || (isWindows && path.startsWith("~\\"));
  return isOfHome ? join(homedir(), path.slice(2)) : path;
}

function works(command: string): Promise<boolean> {
  return check(command).then(
    () => true,
    () => false,
  );
}

/** A step of an installation: a command, and what has failed where that fails. */
type Step = (command: string, options: readonly string[], failure: string) => Promise<void>;

/** Make the environment with `tenon` in it, or leave nothing there. */
async function makeAnew(folder: string, python: string, step: Step): Promise<Tenon> {
  await mkdir(dirname(folder), { recursive: true });
  await rm(folder, { recursive: true, force: true });
  try {
    await step(python, ["-m", "venv", folder], "The environment cannot be made");
    await fetchInto(folder, step);
    return await check(inEnvironment(folder, "tenon"));
  } catch (error) {
    await rm(folder, { recursive: true, force: true }).catch(() => undefined);
    throw error;
  }
}

function fetchInto(folder: string, step: Step): Promise<void> {
  const pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"];
  const what = ["--upgrade", `${PACKAGE}>=${OLDEST}`];
  return step(inEnvironment(folder, "python"), [...pip, ...what], `${PACKAGE} cannot be installed`);
}

async function findPython(searchPath: string): Promise<string> {
  const test = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
  for (const name of ["python3", "python"]) {
    for (const command of onPath(name, searchPath)) {
      if ((await exists(command)) && (await run(command, ["-c", test])).fault === undefined) {
        return command;
      }
    }
  }
  const remedy = "install one (on Debian and Ubuntu with the package python3-venv), then try again";
  throw new Trouble(`There is no Python 3.10 or newer with the module venv: ${remedy}.`, true);
}

interface Outcome {
  readonly output: string;
  readonly complaint: string;
  readonly fault?: string; // what went wrong: a code such as ENOENT, or words
}

function run(command: string, options: readonly string[]): Promise<Outcome> {
  return new Promise((resolve) => {
    const how = { timeout: ANSWER_MS, cwd: homedir(), windowsHide: true };
    execFile(command, options, how, (error, output, complaint) => {
      if (error === null) {
        resolve({ output, complaint });
      } else {
        const code = error.killed ? `no answer within ${ANSWER_MS / 1000} s` : error.code;
        resolve({ output, complaint, fault: typeof code === "string" ? code : `exit code ${code ?? "unknown"}` });
      }
    });
  });
}

/** Run a step of an installation; its lines are reported, its failure is a Trouble. */
function follow(
  command: string,
  options: readonly string[],
  report: (doing: string) => void,
  signal: AbortSignal,
  failure: string,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const how = { cwd: homedir(), signal, windowsHide: true };
    const child = spawn(command, options, { ...how, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    child.stdout.on("data", (data: Buffer) => {
      said += data.toString();
      report(shortened(lastLine(data.toString())));
    });
    child.stderr.on("data", (data: Buffer) => (said += data.toString()));
    child.once("error", reject);
    child.once("close", (code) => {
      if (code === 0) {
        resolve();
      } else if (NO_NETWORK.test(said) && options.includes("pip")) {
        const remedy = `connect to the network and try again, or install ${PACKAGE} yourself and set "tenon.path"`;
        reject(new Trouble(`The package index has no ${PACKAGE} for us, or cannot be reached: ${remedy}.`, true));
      } else {
        reject(new Trouble(`${failure} (${lastLine(said) || `exit code ${code}`}).`, true));
      }
    });
  });
}

function notMade(folder: string, error: unknown): string {
  if (error instanceof Error && error.name === "AbortError") {
    return "The installation was cancelled.";
  }
  const reason = error instanceof Error ? error.message : String(error);
  return `The environment in ${folder} cannot be made (${reason}): install ${PACKAGE} yourself and set "tenon.path".`;
}

/** Where a program of that name may be. */
function onPath(name: string, searchPath: string): string[] {
  const file = IS_WINDOWS ? `${name}.exe` : name;
  return searchPath.split(delimiter).filter(Boolean).map((folder) => join(folder, file));
}

function inEnvironment(folder: string, name: string): string {
  return IS_WINDOWS ? join(folder, "Scripts", `${name}.exe`) : join(folder, "bin", name);
}

function exists(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  );
}

function lastLine(text: string): string {
  return text.trimEnd().split("\n").at(-1)?.trim() ?? "";
}

function shortened(line: string): string {
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
