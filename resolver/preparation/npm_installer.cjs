// Installs the packages of package.json without those development packages that cannot be had, for example because the
// registry does not have a version that one of them needs, and without install scripts, which may have to compile or
// download something. Runs in the sandbox after `npm install` failed as a whole.
const fs = require("fs");
const { spawnSync } = require("child_process");

const OPTIONS = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"];
const text = fs.readFileSync("package.json", "utf8");
const manifest = JSON.parse(text);
const all = Object.entries(manifest.devDependencies || {});

function install(packages, option) {
  const reduced = { ...manifest, devDependencies: Object.fromEntries(packages) };
  fs.writeFileSync("package.json", JSON.stringify(reduced));
  const done = spawnSync("npm", ["install", ...OPTIONS, option], { stdio: ["ignore", "inherit", "inherit"] });
  fs.rmSync("package-lock.json", { force: true });
  return done.status === 0;
}

/** Returns the packages whose dependencies the registry has. */
function findAvailable(packages) {
  if (packages.length === 0 || install(packages, "--package-lock-only")) return packages;
  if (packages.length === 1) return [];
  const middle = packages.length >> 1;
  return [...findAvailable(packages.slice(0, middle)), ...findAvailable(packages.slice(middle))];
}

try {
  const available = findAvailable(all);
  process.exitCode = install(available, "--no-package-lock") ? 0 : 1;
  const missing = all.filter((entry) => !available.includes(entry)).map(([name]) => name);
  if (missing.length > 0) console.log(`Not available: ${missing.join(", ")}`);
} finally {
  fs.writeFileSync("package.json", text);
}
