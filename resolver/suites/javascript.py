"""JavaScript: the script `test` of package.json, or what it runs; else the runner that is depended on."""

import re
from dataclasses import dataclass

from resolver.suites.kind import Kind
from resolver.suites.part import MOST_CHARACTERS, Family, Part, as_json, quoted, table
from resolver.suites.runners import RUNNERS, kind_of
from resolver.suites.suite import Suite

TESTS = re.compile(
    r"(?:.*/)?(?:[^/]+[.-](?:test|spec)\.[cm]?[jt]sx?|(?:__tests__|tests?)/(?:.*/)?[^/]+\.[cm]?[jt]sx?)"
)
BY_NODE = re.compile(
    r"(?:.*/)?(?:[^/]+[._-]test|test-[^/]+|test)\.[cm]?js|(?:.*/)?test/(?:.*/)?[^/]+\.[cm]?js"
)
SCRIPTS = ("test", "test:unit", "unit", "test:ci", "tests")
_NOTHING = re.compile(r'echo\s+\\?["\']?Error: no test specified.*', re.DOTALL)
_RUNS = re.compile(r"(?:npm|pnpm|yarn)\s+(?:run\s+|run-script\s+)?(?:-s\s+|--silent\s+)?([\w:.-]+)")
_LINTS = re.compile(
    r"(?:npx\s+)?(?:eslint|xo|standard|semistandard|prettier|tslint|stylelint|biome|aud|npm audit)\b[^|<>`$]*"
    r"|(?:npm|pnpm|yarn)\s+(?:run\s+)?(?:-s\s+|--silent\s+)?(?:lint|prelint|format|eslint|check-format)[\w:.-]*"
)
_ASSIGNED = re.compile(r"""^(?:\w+=(?:"[^"]*"|'[^']*'|\S*)\s+)*""")
_IN_ROW = re.compile(r"(?:run-s|npm-run-all)\s+(.*)")
DEEPEST = 5  # scripts that run scripts
KINDS: tuple[Kind, ...] = ("jest", "vitest", "mocha", "tap", "tape", "node")


@dataclass(frozen=True)
class _Found:
    script: str
    text: str
    """Of the one command that starts the tests."""
    kind: Kind
    last: bool
    """Whether that command gets what is added to the script's end."""
    linted: bool
    """Whether the script does nothing before but look at style, which is no test."""


def find(part: Part) -> Suite | None:
    package = as_json(part.texts.get("package.json"))
    scripts = _scripts(package)
    manager = _manager(part)
    for name in SCRIPTS:
        if name in scripts and not _NOTHING.fullmatch(scripts[name]):
            return _of_script(part, scripts, name, manager)
    if said := part.said_by(*KINDS):
        return part.suite(said.command, said.kind, said.why)
    wanted = table(package, "devDependencies") | table(package, "dependencies")
    for kind, command in (("jest", "npx jest"), ("vitest", "npx vitest run"), ("mocha", "npx mocha")):
        if kind in wanted:
            return part.suite(
                command, kind_of(command), f"package.json depends on {kind} and has no test script."
            )
    if "package.json" in part.texts and (tests := part.named(BY_NODE)):
        return part.suite(
            "node --test",
            "node",
            f"No test command is configured, and {quoted(tests)} can be run by node itself.",
        )
    return None


def _of_script(part: Part, scripts: dict[str, str], name: str, manager: str) -> Suite:
    found = _follow(scripts, name, ())
    said = f"The script `{name}` of package.json runs"
    if found is None:
        return part.suite(_run(manager, name), "none", f"{said} `{_short(scripts[name])}`.")
    if found.last and not found.linted and RUNNERS[found.kind].forward:
        return part.suite(_run(manager, found.script), found.kind, f"{said} {_name(found.kind)}.")
    return part.suite(_by_itself(found), found.kind, f"{said} this, as the part that tests.")


def _by_itself(found: _Found) -> str:
    """The command as it runs outside of the script, where nobody looks into node_modules."""
    command = _ASSIGNED.sub("", found.text, count=1)
    if command.split()[0] in ("node", "npx", "yarn", "pnpm"):
        return found.text
    return f"{found.text.removesuffix(command)}npx {command}"


def script_kind(part: Part, command: str) -> Kind:
    """The runner behind `npm test` and its like, when options can be handed on to it."""
    run = _RUNS.fullmatch(command.strip())
    found = _follow(_scripts(as_json(part.texts.get("package.json"))), run[1], ()) if run else None
    return (
        found.kind
        if found and found.last and run and found.script == run[1] and RUNNERS[found.kind].forward
        else "none"
    )


def _scripts(package: dict[str, object]) -> dict[str, str]:
    return {
        name: text[:MOST_CHARACTERS]
        for name, text in table(package, "scripts").items()
        if isinstance(text, str) and re.fullmatch(r"[\w:.-]{1,100}", name)
    }


def _follow(scripts: dict[str, str], name: str, seen: tuple[str, ...]) -> _Found | None:
    """The command that starts the tests, through scripts that run scripts."""
    text = scripts.get(name, "")
    if name in seen or len(seen) >= DEEPEST or not text:
        return None
    commands = _commands(text)
    for command in commands:
        kind = kind_of(command)
        if kind in KINDS and not re.search(r"[|<>`]|\$\(", command):
            if kind_of(text) != kind:
                return None
            first = [*_commands(scripts.get(f"pre{name}", "")), *commands[: commands.index(command)]]
            linted = bool(first) and all(map(_LINTS.fullmatch, first))
            return _Found(name, command, kind, command == commands[-1], linted)
        for inner in _inner(command):
            if found := _follow(scripts, inner, (*seen, name)):
                return found
    return None


def _commands(text: str) -> list[str]:
    return [command.strip() for command in re.split(r"&&|;", text) if command.strip()]


def _inner(command: str) -> list[str]:
    if run := _RUNS.fullmatch(command):
        return [run[1]]
    row = _IN_ROW.fullmatch(command)
    return [word for word in row[1].split() if not word.startswith("-")] if row else []


def _manager(part: Part) -> str:
    if "pnpm-lock.yaml" in part.files:
        return "pnpm"
    return "yarn" if "yarn.lock" in part.files else "npm"


def _run(manager: str, script: str) -> str:
    return f"{manager} test" if script == "test" else f"{manager} run {script}"


def _name(kind: Kind) -> str:
    return "node's own runner" if kind == "node" else kind


def _short(text: str) -> str:
    return " ".join(text.split())[:80].replace("`", "'")


JAVASCRIPT = Family(
    "javascript",
    re.compile(r"package\.json"),
    TESTS,
    (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte"),
    find,
)
