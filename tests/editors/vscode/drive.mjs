// node drive.mjs PLAN.json    VS Code in a headless browser, with the extension installed and a folder opened; runs a
// scenario of scenarios.mjs and prints what it saw as one JSON object. The plan:
//   editor      folder of tests/editors/setup/vscode.sh
//   extensions  folder with the extension installed
//   work        an empty folder for this run: project, profile, logs
//   files       name -> text, the project; "open" is the one to open with the window
//   settings    of the user; machine: those of the scope "machine"
//   trusted     whether the folder is trusted; default true
//   scenario    the name of a function; input: what it is called with
//   shots       folder for pictures
import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import path from "node:path";
import { Window } from "./window.mjs";
import * as scenarios from "./scenarios.mjs";

// Of VS Code in a browser without its shop: none of it is ours.
const NOISE = [/vsda/, /open-vsx/, /ENOTFOUND/, /Failed to load resource/, /service worker/i, /webview.*sandbox/i,
  /iframe which has both allow-scripts/, /WebGL/, /GPU/, /Unrecognized feature/, /marketplace/i, /extension gallery/i,
  /Long running operations during shutdown/, /chat/i, /default account/i, /OTLP/];
const QUIET = {
  "workbench.startupEditor": "none", "telemetry.telemetryLevel": "off", "update.mode": "none",
  "extensions.autoCheckUpdates": false, "extensions.autoUpdate": false, "workbench.tips.enabled": false,
  "chat.commandCenter.enabled": false, "editor.minimap.enabled": false, "editor.accessibilitySupport": "off",
  "workbench.secondarySideBar.defaultVisibility": "hidden", "workbench.enableExperiments": false,
  "editor.autoClosingBrackets": "never", "editor.autoClosingQuotes": "never", "editor.wordBasedSuggestions": "off",
  "git.enabled": false, "files.autoSave": "off", "window.restoreWindows": "none",
  "extensions.ignoreRecommendations": true,
};

const plan = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const { chromium } = createRequire(`${plan.editor}/`)("playwright-core");
const project = path.join(plan.work, "project");
const profile = path.join(plan.work, "profile");

function write(file, text) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
}

function prepare() {
  for (const [name, text] of Object.entries(plan.files)) {
    write(path.join(project, name), text);
  }
  write(path.join(profile, "User/settings.json"), JSON.stringify({ ...QUIET, ...plan.settings }));
  write(path.join(profile, "Machine/settings.json"), JSON.stringify(plan.machine ?? {}));
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function start(port) {
  const log = fs.openSync(path.join(plan.work, "code-server.log"), "w");
  const trust = plan.trusted === false ? [] : ["--disable-workspace-trust"];
  const options = ["--auth", "none", "--bind-addr", `127.0.0.1:${port}`, "--user-data-dir", profile,
    "--extensions-dir", plan.extensions, "--disable-telemetry", "--disable-update-check",
    "--disable-getting-started-override", ...trust];
  const entry = path.join(plan.editor, "node_modules/code-server/out/node/entry.js");
  const env = { ...process.env, VSCODE_CLI: "1" }; // the environment is this one, and not that of a login shell
  const server = spawn(process.execPath, [entry, ...options], { env, stdio: ["ignore", log, log] });
  for (let tries = 0; tries < 300; tries++) {
    if (await fetch(`http://127.0.0.1:${port}/healthz`).then((reply) => reply.ok, () => false)) {
      return server;
    }
    if (server.exitCode !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const said = fs.readFileSync(path.join(plan.work, "code-server.log"), "utf8");
  throw new Error(`code-server does not come up: ${said.slice(-500)}`);
}

async function open(browser, port, complaints) {
  const page = await browser.newPage({ viewport: { width: 1100, height: 640 }, deviceScaleFactor: 1 });
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url}`;
    const isKnown = [/^Tenon:/, ...NOISE].some((each) => each.test(text)); // what we say is looked at in the window
    if (message.type() === "error" && !isKnown) complaints.push(text.slice(0, 400));
  });
  page.on("pageerror", (error) => complaints.push(`uncaught: ${error.message}`.slice(0, 400)));
  const remote = `vscode-remote://127.0.0.1:${port}`;
  const payload = JSON.stringify([["openFile", `${remote}${project}/${plan.open}`]]);
  await page.goto(`http://127.0.0.1:${port}/?${new URLSearchParams({ folder: project, payload })}`);
  return page;
}

prepare();
const port = await freePort();
const server = await start(port);
const complaints = [];
const result = { complaints };
let browser, window;
try {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  const opened = Date.now();
  window = new Window(await open(browser, port, complaints), { project, profile, shots: plan.shots, opened });
  result.seen = await inTime(scenarios[plan.scenario](window, plan.input ?? {}), 180_000);
} catch (error) {
  result.failure = String(error.stack ?? error).slice(0, 2000);
  result.messages = await window?.everyMessage().catch(String);
  await window?.shot(`failed-${plan.scenario}`).catch(() => {});
} finally {
  await browser?.close();
  server.kill("SIGTERM");
  if (server.exitCode === null) await new Promise((resolve) => server.once("exit", resolve));
}
result.log = logOf("Tenon");
console.log(JSON.stringify(result));

/** What is not done by then has failed, so that all that was started here is ended here. */
function inTime(work, patienceMs) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the scenario takes too long")), patienceMs);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** What the extension wrote into its output channel. */
function logOf(channel) {
  const logs = path.join(profile, "logs");
  const files = fs.existsSync(logs) ? fs.readdirSync(logs, { recursive: true }) : [];
  const ours = files.filter((name) => name.endsWith(`${channel}.log`));
  return ours.map((name) => fs.readFileSync(path.join(logs, name), "utf8")).join("");
}
