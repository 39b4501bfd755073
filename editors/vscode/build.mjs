// node build.mjs            bundles the extension into dist/: what is loaded at once, the client, and their licences
// node build.mjs --tests    bundles each file of tests/ into build/, for node --test
import { build } from "esbuild";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const shared = { bundle: true, platform: "node", target: "node18", format: "cjs", logLevel: "warning" };

if (process.argv.includes("--tests")) {
  const names = readdirSync("tests").filter((name) => name.endsWith(".test.ts"));
  const entryPoints = names.map((name) => `tests/${name}`);
  await build({ ...shared, entryPoints, outdir: "build", alias: { vscode: "./tests/vscode.ts" } });
} else {
  const { metafile } = await build({
    ...shared,
    entryPoints: ["src/extension.ts", "src/client.ts"],
    outdir: "dist",
    external: ["vscode"],
    plugins: [{ name: "apart", setup: (each) => each.onResolve({ filter: /^\.\/client\.js$/ }, apart) }],
    minify: true,
    metafile: true,
  });
  writeFileSync("dist/licenses.txt", licensesOf(Object.keys(metafile.inputs)));
}

function apart({ path }) {
  return { path, external: true };
}

function licensesOf(files) {
  const packages = new Set(files.map((file) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]));
  packages.delete(undefined);
  return [...packages].sort().map(licenseOf).join("\n\n");
}

function licenseOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  return `${name} ${version}, ${license}\n\n${file ? readFileSync(`${folder}/${file}`, "utf8").trim() : ""}\n`;
}
