// Installs the packages of package.json without those development packages that cannot be had, for example because the
// registry does not have a version that one of them needs, and without install scripts, which may have to compile or
// download something. Runs in the sandbox after `npm install` failed as a whole.
const fs = require("fs");
const { spawnSync } = require("child_process");

// `npm install` has just filled npm's cache, so nothing in it has to be checked again.
const OPTIONS = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps", "--prefer-offline"];
// What npm writes about a package that the registry has only in other versions, or not at all.
const OTHER_VERSIONS = /No matching version found for (@?[^@\s]+)@/g;
const NOT_FOUND = /'(@?[^@\s']+)@[^']*' is not in (?:this|the npm) registry/g;
const ANY_VERSION = "*";
const text = fs.readFileSync("package.json", "utf8");
const manifest = JSON.parse(text);
const all = Object.entries(manifest.devDependencies || {});

/** Returns null, or npm's error output. */
function install(packages, option) {
  const reduced = { ...manifest, devDependencies: Object.fromEntries(packages) };
  fs.writeFileSync("package.json", JSON.stringify(reduced));
  const done = spawnSync("npm", ["install", ...OPTIONS, option], { encoding: "utf8", maxBuffer: 1 << 26 });
  fs.rmSync("package-lock.json", { force: true });
  return done.status === 0 ? null : `${done.stdout || ""}${done.stderr || done.error || ""}`;
}

function findNames(error, pattern) {
  return [...error.matchAll(pattern)].map((match) => match[1]);
}

/** Returns the packages whose dependencies the registry has. If it has only other versions of one, the newest counts. */
function findAvailable(packages) {
  if (packages.length === 0) return packages;
  const error = install(packages, "--package-lock-only");
  if (error === null) return packages;
  // Each attempt can take a minute, so the packages that npm names are changed before the others are divided.
  const older = findNames(error, OTHER_VERSIONS);
  const lost = findNames(error, NOT_FOUND);
  const changed = packages
    .filter(([name, version]) => !lost.includes(name) && !(older.includes(name) && version === ANY_VERSION))
    .map(([name, version]) => [name, older.includes(name) ? ANY_VERSION : version]);
  if (JSON.stringify(changed) !== JSON.stringify(packages)) return findAvailable(changed);
  if (packages.length === 1) return [];
  const middle = packages.length >> 1;
  return [...findAvailable(packages.slice(0, middle)), ...findAvailable(packages.slice(middle))];
}

try {
  const available = findAvailable(all);
  const error = install(available, "--no-package-lock");
  if (error !== null) console.log(error);
  process.exitCode = error === null ? 0 : 1;
  const names = available.map(([name]) => name);
  const missing = all.map(([name]) => name).filter((name) => !names.includes(name));
  if (missing.length > 0) console.log(`Not available: ${missing.join(", ")}`);
} finally {
  fs.writeFileSync("package.json", text);
}
