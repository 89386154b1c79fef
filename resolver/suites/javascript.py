"""Finds JavaScript test suites. A suite runs the `test` script of package.json or the command in this script.
Without such a script, it runs a test runner from the dependencies.
"""

import re
from dataclasses import dataclass

from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.command_options import has_conflicting_option
from patchwright.resolver.suites.project_dir import (
    MAX_COMMAND_LENGTH,
    LanguageSupport,
    ProjectDir,
    get_table,
    parse_json_or_empty,
    summarize_files,
)
from patchwright.resolver.suites.runners import RUNNERS, detect_runner
from patchwright.resolver.suites.suite import Suite

TEST_FILES = re.compile(
    r"(?:.*/)?(?:[^/]+[.-](?:test|spec)\.[cm]?[jt]sx?|(?:__tests__|tests?)/(?:.*/)?[^/]+\.[cm]?[jt]sx?)"
)
NODE_TEST_FILES = re.compile(
    r"(?:.*/)?(?:[^/]+[._-]test|test-[^/]+|test)\.[cm]?js|(?:.*/)?test/(?:.*/)?[^/]+\.[cm]?js"
)
TEST_SCRIPTS = ("test", "test:unit", "unit", "test:ci", "tests")
_PLACEHOLDER_SCRIPT = re.compile(r'echo\s+\\?["\']?Error: no test specified.*', re.DOTALL)
_RUN_SCRIPT = re.compile(r"(?:npm|pnpm|yarn)\s+(?:run\s+|run-script\s+)?(?:-s\s+|--silent\s+)?([\w:.-]+)")
_LINT_COMMAND = re.compile(
    r"(?:npx\s+)?(?:eslint|xo|standard|semistandard|prettier|tslint|stylelint|biome|aud|npm audit)\b[^|<>`$]*"
    r"|(?:npm|pnpm|yarn)\s+(?:run\s+)?(?:-s\s+|--silent\s+)?(?:lint|prelint|format|eslint|check-format)[\w:.-]*"
)
_ENV_ASSIGNMENTS = re.compile(r"""^(?:\w+=(?:"[^"]*"|'[^']*'|\S*)\s+)*""")
# A test file that node starts, such as `node test` or `nyc node test/index.js`
_NODE_FILE = re.compile(r"(?:\w+=\S*\s+)*(?:nyc\s+(?:-\S+\s+)*)?node(?:\s+--\S+)*\s+[\w./][\w./-]*")
_FORMATTER = re.compile(r"\s*\|\s*(?:npx\s+)?(?:faucet|colortape|tap-[\w-]+)\s*(?=$|&&|;)")  # of a TAP report
_RUN_SEQUENCE = re.compile(r"(?:run-s|npm-run-all)\s+(.*)")
MAX_SCRIPT_DEPTH = 5  # maximum depth of scripts that run scripts
JAVASCRIPT_RUNNERS: tuple[RunnerName, ...] = ("jest", "vitest", "mocha", "tap", "tape", "node")


@dataclass(frozen=True)
class _TestScript:
    script: str
    command: str
    """The single command that starts the tests."""
    runner: RunnerName
    is_last: bool
    """True if this command gets the arguments that a caller appends to the script."""
    has_only_lint_before: bool
    """True if everything that the script runs before this command is a linter."""


def find_suite(project: ProjectDir) -> Suite | None:
    package = parse_json_or_empty(project.contents.get("package.json"))
    scripts = _read_scripts(package)
    manager = _detect_package_manager(project)
    dependencies = get_table(package, "devDependencies") | get_table(package, "dependencies")
    for name in TEST_SCRIPTS:
        if name in scripts and not _PLACEHOLDER_SCRIPT.fullmatch(scripts[name]):
            return _suite_from_script(
                project, scripts, name, manager, _resolve_script(scripts, name, (), "tape" in dependencies)
            )
    if declared := project.find_declared(*JAVASCRIPT_RUNNERS):
        return project.make_suite(declared.command, declared.runner, declared.command_reason)
    for kind, command in (("jest", "npx jest"), ("vitest", "npx vitest run"), ("mocha", "npx mocha")):
        if kind in dependencies:
            return project.make_suite(
                command, detect_runner(command), f"package.json depends on {kind} and has no test script."
            )
    if "package.json" in project.contents and (tests := project.match_files(NODE_TEST_FILES)):
        return project.make_suite(
            "node --test",
            "node",
            f"No test command is configured, and {summarize_files(tests)} can be run by Node.js itself.",
        )
    return None


def _suite_from_script(
    project: ProjectDir, scripts: dict[str, str], name: str, manager: str, test_script: _TestScript | None
) -> Suite:
    subject = f"The script `{name}` of package.json runs"
    if test_script is None:
        return project.make_suite(
            _run_command(manager, name), "none", f"{subject} `{_shorten(scripts[name])}`."
        )
    if (
        test_script.is_last
        and not test_script.has_only_lint_before
        # Some runners reject an option that the script and the caller set, or accept the script's one.
        and not has_conflicting_option(test_script.command, test_script.runner)
        and RUNNERS[test_script.runner].forwards_options
    ):
        return project.make_suite(
            _run_command(manager, test_script.script),
            test_script.runner,
            f"{subject} {_display_name(test_script.runner)}.",
        )
    return project.make_suite(
        _standalone_command(test_script), test_script.runner, f"{subject} this command as its test step."
    )


def _standalone_command(test_script: _TestScript) -> str:
    """Returns the command in a form that works outside the script, where node_modules/.bin is not on the PATH."""
    command = _ENV_ASSIGNMENTS.sub("", test_script.command, count=1)
    if command.split()[0] in ("node", "npx", "yarn", "pnpm"):
        return test_script.command
    return f"{test_script.command.removesuffix(command)}npx {command}"


def detect_script_runner(project: ProjectDir, command: str) -> RunnerName:
    """Returns the runner that `npm test` or a similar command starts. Returns "none" if options cannot be
    forwarded to the runner.
    """
    script_call = _RUN_SCRIPT.fullmatch(command.strip())
    test_script = (
        _resolve_script(
            _read_scripts(parse_json_or_empty(project.contents.get("package.json"))), script_call[1], ()
        )
        if script_call
        else None
    )
    return (
        test_script.runner
        if test_script
        and test_script.is_last
        and script_call
        and test_script.script == script_call[1]
        and RUNNERS[test_script.runner].forwards_options
        else "none"
    )


def _read_scripts(package: dict[str, object]) -> dict[str, str]:
    return {
        name: text[:MAX_COMMAND_LENGTH]
        for name, text in get_table(package, "scripts").items()
        if isinstance(text, str) and re.fullmatch(r"[\w:.-]{1,100}", name)
    }


def _resolve_script(
    scripts: dict[str, str], name: str, seen: tuple[str, ...], has_tape: bool = False
) -> _TestScript | None:
    """Returns the script with the command that starts the tests. Scripts that run other scripts are followed.
    Returns None if no such command is found.

    If the project depends on tape (`has_tape`), a file that node starts prints the tests as tape does.
    """
    text = _FORMATTER.sub(" ", scripts.get(name, "")).strip()
    if name in seen or len(seen) >= MAX_SCRIPT_DEPTH or not text:
        return None
    commands = _split_commands(text)
    for command in commands:
        runner = detect_runner(command)
        is_tape_file = has_tape and _NODE_FILE.fullmatch(command) is not None
        if is_tape_file or (runner in JAVASCRIPT_RUNNERS and not re.search(r"[|<>`]|\$\(", command)):
            if detect_runner(text) != runner:
                return None
            runner = "tape" if is_tape_file else runner
            earlier = [*_split_commands(scripts.get(f"pre{name}", "")), *commands[: commands.index(command)]]
            is_only_linting = bool(earlier) and all(map(_LINT_COMMAND.fullmatch, earlier))
            is_last = command == commands[-1] and text == scripts[name].strip()
            return _TestScript(name, command, runner, is_last, is_only_linting)
        for inner in _called_scripts(command):
            if test_script := _resolve_script(scripts, inner, (*seen, name), has_tape):
                return test_script
    return None


def _split_commands(text: str) -> list[str]:
    return [command.strip() for command in re.split(r"&&|;", text) if command.strip()]


def _called_scripts(command: str) -> list[str]:
    if script_call := _RUN_SCRIPT.fullmatch(command):
        return [script_call[1]]
    sequence = _RUN_SEQUENCE.fullmatch(command)
    return [word for word in sequence[1].split() if not word.startswith("-")] if sequence else []


def _detect_package_manager(project: ProjectDir) -> str:
    if "pnpm-lock.yaml" in project.files:
        return "pnpm"
    return "yarn" if "yarn.lock" in project.files else "npm"


def _run_command(manager: str, script: str) -> str:
    return f"{manager} test" if script == "test" else f"{manager} run {script}"


def _display_name(runner_name: RunnerName) -> str:
    return "node's own runner" if runner_name == "node" else runner_name


def _shorten(text: str) -> str:
    return " ".join(text.split())[:80].replace("`", "'")


JAVASCRIPT = LanguageSupport(
    "javascript",
    re.compile(r"package\.json"),
    TEST_FILES,
    (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte"),
    find_suite,
)
