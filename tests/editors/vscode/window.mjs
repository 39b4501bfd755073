// One window of VS Code as its user sees it: keys, editors, ghost text, messages, the status bar.
import fs from "node:fs";
import path from "node:path";

const PATIENCE_MS = 60_000;
const GHOST = ".ghost-text-decoration, .ghost-text-decoration-preview, .suggest-preview-text";
const plain = (text) => text.replace(/\u00a0/g, " ").replace(/\u200c/g, "");

export class Window {
  constructor(page, { project, profile, shots, opened }) {
    Object.assign(this, { page, project, profile, shots, opened });
  }

  editor(name) {
    return `.editor-instance .monaco-editor[data-uri$="${name}"]`;
  }

  /** Wait for a file's editor, and put the focus and the cursor (counted from 0) into it. */
  async enter(name, line, character) {
    await this.page.waitForSelector(`${this.editor(name)} .view-lines`, { timeout: PATIENCE_MS });
    await this.page.locator(`${this.editor(name)} .view-lines`).click({ position: { x: 300, y: 5 } });
    await this.page.waitForSelector(`${this.editor(name)}.focused`, { timeout: PATIENCE_MS });
    if (line !== undefined) await this.goTo(line, character);
  }

  async goTo(line, character) {
    await this.press("Control+g");
    await this.page.waitForSelector(".quick-input-widget .quick-input-filter input");
    await this.page.keyboard.insertText(`${line + 1}:${character + 1}`);
    await this.press("Enter");
    await this.page.waitForSelector(".quick-input-widget", { state: "hidden" });
  }

  /** Select from one place to another, both counted from 0. */
  async select(line, character, endLine, endCharacter) {
    await this.goTo(line, character);
    await this.command("Set Selection Anchor");
    await this.goTo(endLine, endCharacter);
    await this.command("Select from Anchor to Cursor");
  }

  /** Write the settings of the machine. */
  machine(settings) {
    fs.writeFileSync(path.join(this.profile, "Machine/settings.json"), JSON.stringify(settings));
  }

  async press(...keys) {
    for (const key of keys) await this.page.keyboard.press(key);
  }

  async type(text) {
    await this.page.keyboard.type(text, { delay: 30 });
  }

  /** A command by its title in the palette. */
  async command(title) {
    await this.press("F1");
    await this.page.waitForSelector(".quick-input-widget .quick-input-filter input");
    await this.page.keyboard.insertText(title);
    await this.page.locator(`.quick-input-list .monaco-list-row[aria-label^="${title}"]`).first().click();
  }

  /** The input box that is open is answered. */
  async answer(text) {
    await this.page.locator(".quick-input-widget:visible .quick-input-filter input").waitFor();
    await this.page.keyboard.insertText(text);
    await this.press("Enter");
  }

  /** The ghost text of an editor once it does not change any more; null when there is none after `patienceMs`. */
  async ghost(name, patienceMs = 20_000, selector = this.editor(name)) {
    const end = Date.now() + patienceMs;
    let last = null;
    while (Date.now() < end || last) {
      const now = await this.page.evaluate(ghostIn, selector);
      if (now !== null && now === last) return plain(now);
      last = now;
      await this.page.waitForTimeout(last ? 150 : 25);
    }
    return null;
  }

  /** Type, and again if the extension was not there yet; the ghost text and how long it took after the last key. */
  async typeForGhost(name, text, { tries = 12, patienceMs = 4000, selector } = {}) {
    for (let number = 1; number <= tries; number++) {
      await this.type(text);
      const typed = Date.now();
      const ghost = await this.ghost(name, patienceMs, selector);
      if (ghost !== null) return { ghost, ms: Date.now() - typed, tries: number };
      await this.press("Escape", ...Array.from(text, () => "Backspace"));
    }
    throw new Error(`no ghost text behind ${JSON.stringify(text)}`);
  }

  /** No ghost text is on the screen. */
  async noGhost(name) {
    const isGone = ([editor, ghost]) => !document.querySelector(editor).querySelector(ghost);
    await this.page.waitForFunction(isGone, [this.editor(name), GHOST]);
  }

  /** What is in a file after it is saved. */
  async saved(name) {
    await this.press("Control+s");
    await this.page.waitForSelector(".tab.active:not(.dirty)", { timeout: PATIENCE_MS });
    return this.onDisk(name);
  }

  onDisk(name) {
    return fs.readFileSync(path.join(this.project, name), "utf8");
  }

  /** Save until a file is as a check wants it; what it is then. An empty one is about to be written. */
  async savedWhen(name, check, patienceMs = 20_000) {
    let text = "";
    for (const end = Date.now() + patienceMs; Date.now() < end && !(text && check(text)); ) {
      await this.saved(name);
      await this.page.waitForTimeout(300);
      text = this.onDisk(name);
    }
    return text;
  }

  /** What is drawn over the text, when it is as a check wants it. */
  async previewWhen(name, check, patienceMs = 120_000) {
    for (const end = Date.now() + patienceMs; Date.now() < end; await this.page.waitForTimeout(30)) {
      const text = plain(await this.page.evaluate(drawnIn, this.editor(name)));
      if (check(text)) return text;
    }
    throw new Error("what is drawn over the text is not as it should be");
  }

  /** The texts of the messages that are shown. */
  messages() {
    return this.page.locator(".notifications-toasts .notification-list-item-message").allTextContents();
  }

  /** All messages that were shown and not cleared. */
  async everyMessage() {
    await this.command("Notifications: Show Notifications");
    return this.page.locator(".notifications-center .notification-list-item-message").allTextContents();
  }

  /** The item in the status bar: its text, and what it says in full. */
  async status() {
    const item = this.page.locator('.statusbar-item[id^="tenon.tenon"]').first();
    await item.waitFor({ timeout: PATIENCE_MS });
    const label = await item.getAttribute("aria-label") ?? "";
    return { text: (await item.textContent() ?? "").trim(), label };
  }

  async statusWhen(pattern, patienceMs = PATIENCE_MS) {
    for (const end = Date.now() + patienceMs; ; await this.page.waitForTimeout(50)) {
      const status = await this.status();
      if (pattern.test(status.label)) return status;
      if (Date.now() > end) throw new Error(`the status stays ${JSON.stringify(status)}`);
    }
  }

  /** The whole screen, to be looked at. */
  async shot(name) {
    await this.page.screenshot({ path: path.join(this.shots, `vscode-${name}.png`) });
  }

  /** The editors alone, down to a height: a picture for the extension's README (its `media/`). */
  async picture(name, height) {
    const clip = { x: 323, y: 35, width: 777, height };
    await this.page.screenshot({ path: path.join(this.shots, `vscode-picture-${name}.png`), clip });
  }

  pause(ms) {
    return this.page.waitForTimeout(ms);
  }
}

/** Decorations draw with rules of style, which are in no text. */
function drawnIn(selector) {
  const spans = [...document.querySelectorAll(`${selector} .view-line span`)];
  const drawn = spans.map((each) => getComputedStyle(each, "::before").content);
  return drawn.filter((each) => each.startsWith('"')).map((each) => JSON.parse(each)).join("\n");
}

function ghostIn(selector) {
  const editor = document.querySelector(selector);
  if (editor === null) return null;
  const first = [...editor.querySelectorAll(".ghost-text-decoration, .ghost-text-decoration-preview")];
  const more = [...editor.querySelectorAll(".suggest-preview-text .view-line")];
  if (!first.length && !more.length) return null;
  return [first.map((each) => each.textContent).join(""), ...more.map((each) => each.textContent)].join("\n");
}
