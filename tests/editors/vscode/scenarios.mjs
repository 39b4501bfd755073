// What is done in a window, and what is seen; the tests in Python say what it should have been.
import fs from "node:fs";
import path from "node:path";

const EMPTY_UNTITLED = "Untitled-1";

/** Write what a scripted model says from now on. */
function says(script, raw, more = {}) {
  fs.writeFileSync(`${script}.new`, JSON.stringify({ raw, ...more }));
  fs.renameSync(`${script}.new`, script);
}

function callCount(script) {
  const calls = `${script}.calls.jsonl`;
  return fs.existsSync(calls) ? fs.readFileSync(calls, "utf8").split("\n").length - 1 : 0;
}

export async function typing(window, { script }) {
  const seen = {};
  await window.enter("main.py");
  await window.press("Control+End");
  says(script, "llo(name):");
  seen.whole = await window.typeForGhost("main.py", "def he");
  seen.firstGhostMs = Date.now() - window.opened;
  seen.status = await window.statusWhen(/The last suggestion took/);
  await window.shot("ghost");
  await window.press("Tab");
  await window.noGhost("main.py");
  seen.accepted = await window.saved("main.py");

  says(script, "print(name, 1)");
  await window.press("Enter");
  seen.words = [await window.ghost("main.py")];
  const asked = callCount(script);
  await window.press("Control+ArrowRight");
  seen.words.push(await window.ghost("main.py"));
  await window.type("(");
  seen.words.push(await window.ghost("main.py"));
  seen.callsForTheRest = callCount(script) - asked;
  await window.press("Tab");
  await window.noGhost("main.py");
  seen.inWords = await window.saved("main.py");

  says(script, "if name:\n        return 1\n    return 2");
  await window.press("Enter");
  seen.lines = [await window.ghost("main.py")];
  await window.shot("lines");
  await window.press("Control+Alt+ArrowRight");
  seen.lines.push(await window.ghost("main.py"));
  seen.oneLine = await window.saved("main.py");
  await window.press("Control+Alt+ArrowRight", "Control+Alt+ArrowRight");
  await window.noGhost("main.py");
  seen.allLines = await window.saved("main.py");

  says(script, "first()", { others: ["second()", "third()"] });
  await window.press("Enter");
  await window.ghost("main.py");
  await window.command("Tenon: Suggest Here");
  seen.cycled = [];
  for (let number = 0; number < 4; number++) {
    seen.cycled.push(await window.ghost("main.py"));
    await window.press("Alt+]");
    await window.pause(300);
  }
  await window.press("Alt+[");
  await window.pause(300);
  await window.press("Tab");
  await window.noGhost("main.py");
  seen.oneOfThem = await window.saved("main.py");

  await window.command("Tenon: Switch Suggestions On or Off for This Language");
  seen.off = await window.statusWhen(/off for this language/);
  await window.shot("off");
  says(script, "by_hand()");
  await window.press("Enter");
  seen.ghostWhileOff = await window.ghost("main.py", 1500);
  await window.command("Tenon: Suggest Here");
  seen.ghostByHand = await window.ghost("main.py");
  await window.press("Escape");
  await window.command("Tenon: Switch Suggestions On or Off for This Language");
  await window.statusWhen(/Ready/);

  seen.untitled = await untitled(window, script);
  seen.notebook = await notebook(window, script);
  seen.activation = await activation(window);
  seen.messages = await window.messages();
  return seen;
}

async function untitled(window, script) {
  await window.command("File: New Untitled Text File");
  await window.page.waitForSelector(`${window.editor(EMPTY_UNTITLED)}.focused`);
  says(script, "in a file that has no name");
  return (await window.typeForGhost(EMPTY_UNTITLED, "Words ")).ghost;
}

async function notebook(window, script) {
  await window.page.locator('.explorer-folders-view .monaco-list-row[aria-label^="cells.ipynb"]').dblclick();
  const cell = '.notebookOverlay .cell .monaco-editor[data-uri^="vscode-notebook-cell"]';
  await window.page.waitForSelector(`${cell} .view-lines`, { timeout: 60_000 });
  await window.page.locator(`${cell} .view-lines`).first().click();
  await window.press("Control+End");
  says(script, "+ 1");
  const { ghost } = await window.typeForGhost("", "y = x ", { selector: `${cell}.focused` });
  await window.shot("notebook");
  return ghost;
}

/** What VS Code itself says about how long the extension took to activate. */
async function activation(window) {
  await window.command("Developer: Show Running Extensions");
  const row = window.page.locator(".runtime-extensions-editor .extension", { hasText: "Tenon" });
  await row.waitFor();
  const texts = await row.locator(".activation-time").allTextContents();
  return texts.join(" ");
}

export async function actions(window, { script }) {
  const seen = {};
  await window.enter("main.py");
  await window.statusWhen(/Ready/);
  says(script, "return sum(numbers) / len(numbers)");
  await window.select(2, 4, 5, 31);
  await window.command("Tenon: Rewrite Selection…");
  await window.shot("instruction");
  await window.answer("shorter");
  seen.rewritten = await window.savedWhen("main.py", (text) => text.includes("sum("));
  seen.instruction = fs.readFileSync(`${script}.calls.jsonl`, "utf8").includes("shorter");
  await window.shot("rewritten");
  await window.press("Control+z");
  seen.undone = await window.savedWhen("main.py", (text) => !text.includes("sum("));

  says(script, "numbers * 2");
  await window.goTo(6, 0);
  await window.command("Tenon: Fill Holes");
  seen.filled = await window.savedWhen("main.py", (text) => !text.includes("___"));
  await window.press("Control+z");

  says(script, "", { hang: true });
  await window.select(2, 4, 5, 31);
  const asked = callCount(script);
  await window.command("Tenon: Rewrite Selection…");
  await window.answer("");
  while (callCount(script) === asked) await window.pause(20);
  await window.press("Escape");
  await window.page.waitForSelector(".notifications-toasts .notification-list-item", { state: "detached" });
  seen.cancelled = await window.saved("main.py");

  says(script, "return total");
  await window.goTo(6, 0);
  seen.trace = await trace(window);
  await window.shot("trace");
  seen.unsaved = await window.page.locator(".tab.dirty").count();
  await window.command("Tenon: Menu");
  await window.page.locator(".quick-input-list .monaco-list-row").first().waitFor();
  seen.menu = await window.page.locator(".quick-input-list .monaco-list-row .label-name").allTextContents();
  await window.shot("menu");
  await window.press("Escape");
  await window.command("Tenon: Refine Selection (Light)"); // of nothing
  await window.page.waitForSelector(".notifications-toasts .notification-list-item");
  seen.messages = await window.messages();
  return seen;
}

/** Have the hole at the cursor denoised, and look at the page of it at its end. */
async function trace(window) {
  await window.command("Tenon: Show How the Hole at the Cursor Is Denoised");
  const frame = window.page.frameLocator("iframe.webview.ready").frameLocator("#active-frame");
  await frame.locator("#code").waitFor({ timeout: 90_000 });
  await frame.locator("#slider").press("End");
  await window.pause(300);
  return (await frame.locator("#code").textContent()).replace(/\u00a0/g, " ");
}

export async function life(window, { script }) {
  const seen = {};
  await window.enter("main.py");
  says(script, "one");
  seen.before = (await window.typeForGhost("main.py", "a = ")).ghost;
  await window.press("Tab", "Enter");

  process.kill(enginePid(), "SIGKILL");
  says(script, "two");
  seen.afterEngine = (await window.typeForGhost("main.py", "b = ")).ghost;
  await window.press("Tab", "Enter");
  seen.messagesOfEngine = await window.messages();
  await window.command("Notifications: Clear All Notifications");

  process.kill(serverPid(), "SIGKILL");
  says(script, "three");
  await window.statusWhen(/starting/);
  await window.statusWhen(/Ready/);
  seen.afterServer = (await window.typeForGhost("main.py", "c = ")).ghost;
  await window.press("Tab");
  await window.noGhost("main.py");
  seen.messagesOfServer = await window.messages();
  seen.saved = await window.saved("main.py");
  return seen;
}

function enginePid() {
  const runtime = process.env.TENON_RUNTIME;
  const record = fs.readdirSync(runtime).find((name) => /^engine-.*\.json$/.test(name));
  return JSON.parse(fs.readFileSync(path.join(runtime, record), "utf8")).pid;
}

/** The language server of this run: it alone has our runtime folder in its environment, and `lsp` on its line. */
function serverPid() {
  const ours = `TENON_RUNTIME=${process.env.TENON_RUNTIME}`;
  const isOurs = (pid) => {
    try {
      const [line, variables] = ["cmdline", "environ"].map((name) => fs.readFileSync(`/proc/${pid}/${name}`, "utf8"));
      return line.split("\0").includes("lsp") && variables.split("\0").includes(ours);
    } catch {
      return false; // it has ended meanwhile
    }
  };
  return Number(fs.readdirSync("/proc").find((name) => /^\d+$/.test(name) && isOurs(name)));
}

export async function trouble(window, { crashing, silent, hanging, good, pids }) {
  const seen = {};
  await window.enter("main.py");
  await window.statusWhen(/There is no tenon/);
  await window.type("a = 1\nb = 2\n");
  await window.shot("missing");
  seen.missing = await window.messages();
  await window.command("Tenon: Restart");
  await window.pause(500);
  seen.again = await window.messages();
  await window.page.locator(".notifications-toasts .monaco-button", { hasText: "Set Up" }).click();
  await window.statusWhen(/cannot be reached/);
  await window.page.waitForSelector(".notifications-toasts .notification-list-item");
  seen.offline = await window.messages();
  await window.shot("offline");
  await window.command("Notifications: Clear All Notifications");

  window.machine({ "tenon.path": silent });
  await window.statusWhen(/does not start/);
  seen.silent = await window.messages();
  await window.command("Notifications: Clear All Notifications");

  window.machine({ "tenon.path": crashing });
  seen.status = await window.statusWhen(/ends again and again/);
  await window.type("c = 3\n");
  seen.crashing = await window.messages();
  await window.shot("crashing");
  await window.command("Notifications: Clear All Notifications");

  window.machine({ "tenon.path": hanging });
  await pidsWhen(pids, ([first]) => first && isThere(first));
  await window.command("Tenon: Restart");
  seen.hanging = await pidsWhen(pids, ([first, second]) => second && !isThere(first));
  window.machine({ "tenon.path": good });
  await window.statusWhen(/Ready/);
  await pidsWhen(pids, (all) => !all.some(isThere));
  seen.messagesOfGood = await window.messages();
  await window.command("Tenon: Set Up (Install the Language Server)");
  await window.page.locator(".notifications-toasts", { hasText: "cannot be reached" }).waitFor();
  await window.statusWhen(/Ready/);
  seen.setUpBesides = await window.messages();
  return seen;
}

/** The processes that a program has written down, when they are as a check wants them. */
async function pidsWhen(file, check, patienceMs = 30_000) {
  for (const end = Date.now() + patienceMs; Date.now() < end; ) {
    const pids = fs.existsSync(file) ? fs.readFileSync(file, "utf8").trim().split("\n").map(Number) : [];
    if (check(pids)) return pids;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("the processes are not as they should be");
}

function isThere(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

export async function restricted(window) {
  await window.enter("main.py");
  await window.statusWhen(/Ready/);
  await window.type("a = 1\n");
  const banner = await window.page.locator(".statusbar-item", { hasText: "Restricted Mode" }).count();
  return { banner, status: await window.status(), messages: await window.messages() };
}

export async function embedded(window) {
  const seen = {};
  await window.enter("main.py");
  await window.statusWhen(/Ready/);
  await window.goTo(5, 4);
  seen.whole = await window.typeForGhost("main.py", "return ", { tries: 4, patienceMs: 40_000 });
  seen.firstGhostMs = Date.now() - window.opened;
  seen.status = await window.statusWhen(/The last suggestion took/);
  await window.shot("embedded");
  await window.picture("ghost", 190);
  await window.press("Tab");
  await window.noGhost("main.py");
  seen.accepted = await window.saved("main.py");

  await window.select(2, 4, 4, 23);
  await window.command("Tenon: Rewrite Selection…");
  await window.answer("use sum()");
  seen.preview = await window.previewWhen("main.py", (text) => text.includes("·") && /\w/.test(text));
  await window.shot("preview");
  await window.picture("preview", 190);
  seen.previewAfter = await window.previewWhen("main.py", (text) => text === "");
  seen.rewritten = await window.savedWhen("main.py", (text) => text !== seen.accepted);
  seen.messages = await window.messages();
  await window.press("Control+z");
  await window.goTo(5, 11);
  await window.press("Shift+End", "Delete");
  seen.trace = await trace(window);
  await window.shot("embedded-trace");
  await window.picture("trace", 583);
  return seen;
}
