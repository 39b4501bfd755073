/** Finding and installing `tenon`, with real programs, folders and environments. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";

import { OLDEST, Trouble, expanded, find, install, isOlder } from "../src/environment";

let folder: string;
let bin: string;
let managed: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tenon-"));
  bin = join(folder, "bin");
  managed = join(folder, "storage", "environment");
  mkdirSync(bin);
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A program that does what a line of shell says. */
function program(path: string, line: string, mode = 0o755): string {
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${line}\n`);
  chmodSync(path, mode);
  return path;
}

function places(configured = "") {
  return { configured, searchPath: bin, managed };
}

async function trouble(work: Promise<unknown>): Promise<Trouble> {
  const error = await work.then(
    () => assert.fail("it should have failed"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof Trouble, String(error));
  assert.doesNotMatch(error.message, /\n/);
  return error;
}

test("the program of the setting is used and nothing else", async () => {
  program(join(bin, "tenon"), "echo tenon 9.0");
  const configured = program(join(folder, "own", "tenon"), "echo tenon 0.2.1");
  assert.deepEqual(await find(places(configured)), { command: configured, version: "0.2.1" });
});

test("then the one on the path, then the one that was installed", async () => {
  const own = program(join(managed, "bin", "tenon"), `echo tenon ${OLDEST}`);
  assert.equal((await find(places())).command, own);
  const onPath = program(join(bin, "tenon"), `echo tenon ${OLDEST}`);
  assert.equal((await find(places())).command, onPath);
});

test("one that is too old on the path is passed over for one that was installed", async () => {
  program(join(bin, "tenon"), "echo tenon 0.0.9");
  const own = program(join(managed, "bin", "tenon"), `echo tenon ${OLDEST}`);
  assert.equal((await find(places())).command, own);
});

test("where there is none, installing one helps", async () => {
  const { message, canInstall } = await trouble(find(places()));
  assert.match(message, /^There is no tenon on this machine yet: have it set up/);
  assert.ok(canInstall);
});

test("a setting that names no program says so", async () => {
  const { message, canInstall } = await trouble(find(places(join(folder, "gone"))));
  assert.match(message, /^There is no program .*gone: set "tenon\.path"/);
  assert.ok(!canInstall);
});

test("a program that may not be run says so", async () => {
  const configured = program(join(folder, "own"), "echo tenon 1.0", 0o644);
  assert.match((await trouble(find(places(configured)))).message, /may not be run: make it executable/);
});

test("one that is too old says which version it is and what is needed", async () => {
  const configured = program(join(folder, "own"), "echo tenon 0.0.9");
  const { message } = await trouble(find(places(configured)));
  assert.match(message, /is version 0\.0\.9, too old for this extension \(0\.1\.0\): update it/);
});

test("one that crashes says its last words", async () => {
  const configured = program(join(folder, "own"), "echo Traceback >&2; echo 'ImportError: no torch' >&2; exit 1");
  assert.match((await trouble(find(places(configured)))).message, /does not start \(ImportError: no torch\)/);
});

test("another program of that name is none", async () => {
  const configured = program(join(folder, "own"), "echo I join wood");
  assert.match((await trouble(find(places(configured)))).message, /it does not say its version/);
});

test("versions are compared by their numbers", () => {
  assert.ok(isOlder("0.9.9", "0.10"));
  assert.ok(!isOlder("0.10.0", "0.10"));
  assert.ok(!isOlder("1", "0.99"));
});

test("a path may begin with the home folder, on Windows with its own stroke, too", () => {
  assert.equal(expanded("~/bin/tenon", false), join(homedir(), "bin/tenon"));
  assert.equal(expanded("~/bin/tenon", true), join(homedir(), "bin/tenon"));
  assert.equal(expanded("~\\tenon.exe", true), join(homedir(), "tenon.exe"));
  assert.equal(expanded("~\\tenon.exe", false), "~\\tenon.exe");
  assert.equal(expanded("/~/tenon", true), "/~/tenon");
});

const PATH = process.env["PATH"] ?? "";

/** Make pip see these packages and no index. */
function only(links: string | undefined): void {
  process.env["PIP_CONFIG_FILE"] = "/dev/null";
  process.env["PIP_RETRIES"] = "0";
  process.env["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple"; // nobody listens there
  if (links === undefined) {
    delete process.env["PIP_FIND_LINKS"];
  } else {
    process.env["PIP_FIND_LINKS"] = links;
  }
}

/** A wheel of a `tenon-ls` that does nothing but say its version. */
function wheel(version: string): string {
  const links = join(folder, "wheels");
  mkdirSync(links, { recursive: true });
  const script = `
import sys, zipfile
version, path = sys.argv[1:]
info = f"tenon_ls-{version}.dist-info"
with zipfile.ZipFile(f"{path}/tenon_ls-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tenon_stub.py", f"def main(): print('tenon {version}')")
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: tenon-ls\\nVersion: {version}\\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\ntenon = tenon_stub:main\\n")
    wheel.writestr(f"{info}/RECORD", "")
`;
  execFileSync("python3", ["-c", script, version, links]);
  return links;
}

test("it is installed in place of one that does not work, with news of how far it is, and found afterwards", async () => {
  program(join(managed, "bin", "tenon"), "exit 1");
  only(wheel("0.3.0"));
  const news: string[] = [];
  const tenon = await install(managed, PATH, (doing) => news.push(doing), new AbortController().signal);
  assert.equal(tenon.version, "0.3.0");
  assert.deepEqual(await find(places()), tenon);
  assert.ok(news.length > 2);
  assert.ok(news.every((each) => each.length <= 60));
});

test("an environment that works is brought up to date in place, and not lost where that fails", async () => {
  only(wheel("0.3.0"));
  const { signal } = new AbortController();
  const first = await install(managed, PATH, () => undefined, signal);
  const own = join(managed, "own");
  writeFileSync(own, "what an environment that is made anew does not have");

  only(wheel("0.4.0"));
  const abort = new AbortController();
  const { message } = await trouble(install(managed, PATH, () => abort.abort(), abort.signal));
  assert.equal(message, "The installation was cancelled.");
  assert.deepEqual(await find(places()), first);

  const second = await install(managed, bin, () => undefined, signal); // needs no other Python
  assert.deepEqual(second, { command: first.command, version: "0.4.0" });
  only(undefined);
  assert.deepEqual(await install(managed, bin, () => undefined, signal), second); // offline there is none newer
  assert.ok(existsSync(own));
});

test("offline, one sentence says what to do, and nothing half made stays", async () => {
  only(undefined);
  const { message } = await trouble(install(managed, PATH, () => undefined, new AbortController().signal));
  assert.match(message, /cannot be reached: connect to the network and try again, or install tenon-ls yourself/);
  assert.ok(!existsSync(managed));
});

test("a folder that cannot be made is named", async () => {
  writeFileSync(join(folder, "storage"), "a file, where a folder should be");
  const { message } = await trouble(install(managed, PATH, () => undefined, new AbortController().signal));
  assert.match(message, /^The environment in .* cannot be made \(/);
});

test("without Python, one sentence says which is needed", async () => {
  const { message } = await trouble(install(managed, bin, () => undefined, new AbortController().signal));
  assert.match(message, /no Python 3\.10 or newer/);
});

test("an installation can be cancelled, and nothing of it stays", async () => {
  only(wheel("0.3.0"));
  const abort = new AbortController();
  const { message } = await trouble(install(managed, PATH, () => abort.abort(), abort.signal));
  assert.equal(message, "The installation was cancelled.");
  assert.deepEqual(readdirSync(join(folder, "storage")), []);
});
