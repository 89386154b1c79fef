"""The proof: the repository's own tests, before and after, in sandboxes that the agent never touched."""

import asyncio
import re
import secrets
import shlex
from collections.abc import Awaitable
from typing import Literal

from resolver.domain import Patch, Result, SuiteRun, Verdict
from resolver.errors import ProofUnavailable
from resolver.proof_files import INTRUDERS, is_about_tests, is_test
from resolver.settings import REPO_CONFIG_PATH, RepoConfig
from resolver.testreport import MAX_REPORT, Report, parse_junit
from resolver.verdict import NOTHING_COLLECTED, failures, judge
from resolver.workspace import ABSENT, Change, Workspace
from runtime.actions import MAX_SECONDS, Execute, ReadBytes
from runtime.errors import SandboxError
from runtime.frozen import Frozen
from runtime.observations import Content, Executed
from runtime.sandbox import Sandbox, Sandboxes

TAIL = 20_000  # characters of a run's output that are kept
PAGE = 4 << 20  # bytes; one ReadBytes
MOST_SELECTED = 300  # tests on one command line; more than that, and everything is run
PYTEST_OPTIONS = "-o junit_family=xunit1 --continue-on-collection-errors"  # xunit1 names the file of a test
REPORT = "PATCHWRIGHT_REPORT"
"""Variable that names the file where a test command may leave a JUnit XML report."""

USAGE_ERROR = 4  # pytest's exit code, also for a conftest.py that cannot be imported
COMPLAINT = re.compile(r"^(?:E  |.*\berror: )(.*)$", re.MULTILINE)
PYTEST = re.compile(r"\bpytest\b|\bpy\.test\b")
SIMPLE = re.compile(r"[^;&|<>()$`\n#]*\bpytest\b[^;&|<>()$`\n#]*")


class Suite(Frozen):
    """How the repository is tested."""

    command: str
    """Shell command, run at the repository root."""
    report: Literal["pytest", "junit", "none"]
    """Where outcomes per test come from: pytest's JUnit report, one that the command writes to
    `$PATCHWRIGHT_REPORT`, or nowhere, so that the exit code alone speaks."""
    why: str
    """One sentence for the log and the pull request: how this command was chosen."""

    @property
    def selects(self) -> bool:
        """Whether single tests can be named at the end of the command."""
        return self.report == "pytest" and SIMPLE.fullmatch(self.command) is not None


async def find_suite(workspace: Workspace, config: RepoConfig) -> Suite | None:
    """How to test the repository at base: as its maintainers say, else with pytest; None: it has no tests."""
    if config.test_command:
        report: Literal["pytest", "junit", "none"] = "none"
        if REPORT in config.test_command:
            report = "junit"
        elif PYTEST.search(config.test_command):
            report = "pytest"
        return Suite(
            command=config.test_command, report=report, why=f"{REPO_CONFIG_PATH} names this command."
        )
    files = await workspace.files()
    tests = [path for path in files if is_test(path)]
    if not tests:
        return None
    source = (
        "PYTHONPATH=src " if any(re.fullmatch(r"src/[^/]+(/__init__)?\.py", path) for path in files) else ""
    )
    others = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
    return Suite(
        command=f"{source}python3 -m pytest",
        report="pytest",
        why=f"Nothing is configured, and {tests[0]}{others} can be run by pytest.",
    )


async def run_suite(
    workspace: Workspace,
    patch: Patch | None,
    suite: Suite,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    only: tuple[str, ...] = (),
) -> SuiteRun:
    """One run of the suite on base and patch, in a new sandbox that is closed afterwards.

    `only` names the tests or test files to run, where the suite can select them; else everything is run.
    `seconds` is the limit of the command itself. Raises ProofUnavailable when the machine failed, and
    WorkspaceError when the patch does not apply.
    """
    run, _ = await _run(workspace, patch, suite, sandboxes, name, seconds, only)
    return run


async def prove(
    workspace: Workspace,
    patch: Patch,
    suite: Suite | None,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    before: SuiteRun | Awaitable[SuiteRun | None] | None,
) -> Verdict:
    """The verdict on a patch, by at most three test runs more. Raises ProofUnavailable, WorkspaceError."""
    if patch.empty or suite is None:
        return judge(patch, None, None)
    base = await before if isinstance(before, Awaitable) else before
    if base is None:
        return judge(patch, None, None)
    after = await run_suite(workspace, patch, suite, sandboxes, f"{name}-after", seconds)
    again = None
    suspects = failures(base, after)
    if suspects or after.problem or (not after.results and after.exit_code != 0):
        only = suspects if suite.selects and not after.problem else ()
        again = await run_suite(workspace, patch, suite, sandboxes, f"{name}-again", seconds, only)
        if only and again.problem:  # not every runner finds a test by the id that it reported
            again = await run_suite(workspace, patch, suite, sandboxes, f"{name}-again", seconds)
    changes = await workspace.changes(patch)
    new_at_base = None
    if any(is_about_tests(change.path) for change in changes) and _improves(base, after):
        new_at_base = await _tests_at_base(workspace, patch, changes, suite, sandboxes, name, seconds, base)
    verdict = judge(patch, base, after, again, new_at_base)
    added = (change.path for change in changes if change.old_mode == ABSENT)
    intruder = next((path for path in added if INTRUDERS.search(path)), None)
    if verdict.kind == "fixed" and intruder:
        reason = f"The patch adds {intruder}, which can decide what the test runner reports."
        return verdict.model_copy(update={"kind": "unproven", "reason": reason})
    return verdict


def _improves(before: SuiteRun, after: SuiteRun) -> bool:
    """Whether there is anything to find out about new or changed tests."""
    if not after.results:
        return after.exit_code == 0
    return any(
        result == "passed" and before.results.get(test) != "passed" for test, result in after.results.items()
    )


async def _tests_at_base(
    workspace: Workspace,
    patch: Patch,
    changes: tuple[Change, ...],
    suite: Suite,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    before: SuiteRun,
) -> SuiteRun:
    """The base code under the tests as the patch has them; what is no failure of it is marked skipped."""
    about_tests = tuple(change.path for change in changes if is_about_tests(change.path))
    tests = tuple(change.path for change in changes if is_test(change.path) and change.mode != ABSENT)
    for_all = {path for path in about_tests if not is_test(path)}
    only = tests if suite.selects and not for_all else ()
    part = await workspace.part(patch, about_tests)
    run, report = await _run(workspace, part, suite, sandboxes, f"{name}-tests-at-base", seconds, only)
    added = await _added_code(workspace, patch, changes)
    results: dict[str, Result] = {
        test: "skipped"
        if result == "error" and not _is_missing_feature(report.messages.get(test, ""), added)
        else result
        for test, result in run.results.items()
    }
    if only:
        untouched = {
            test: result for test, result in before.results.items() if test.partition("::")[0] not in tests
        }
        results = {**untouched, **results}
    return run.model_copy(update={"results": results})


async def _added_code(
    workspace: Workspace, patch: Patch, changes: tuple[Change, ...]
) -> dict[str, frozenset[str]]:
    """The words that each of the patch's Python files outside the tests has and did not have at base."""
    added: dict[str, frozenset[str]] = {}
    for change in changes[:200]:
        if change.path.endswith(".py") and not is_about_tests(change.path) and change.mode.startswith("100"):
            new = await workspace.content(patch, change.path) or b""
            old = await workspace.read(change.path) or ""
            added[change.path] = _words(new.decode(errors="replace")) - _words(old)
    return added


def _words(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", source))


def _is_missing_feature(message: str, added: dict[str, frozenset[str]]) -> bool:
    """Whether the last exception of a traceback misses a module or a name that is in what the patch added."""
    said = re.findall(
        r"^E?\s*(?:ImportError|ModuleNotFoundError|AttributeError): (.*)$", message, re.MULTILINE
    )
    last = re.findall(r"^E\s+(\w[\w.]*(?:Error|Exception|Warning))\b", message, re.MULTILINE)
    if not said or not last or last[-1] not in ("ImportError", "ModuleNotFoundError", "AttributeError"):
        return False
    if module := re.search(r"No module named '([\w.]+)'", said[-1]):
        path = module[1].replace(".", "/")
        new = {name.removesuffix(".py").removesuffix("/__init__") for name in added}
        return any(name == path or name.endswith(f"/{path}") for name in new)
    name = re.search(r"cannot import name '(\w+)'|has no attribute '(\w+)'", said[-1])
    return name is not None and any((name[1] or name[2]) in words for words in added.values())


async def _run(
    workspace: Workspace,
    patch: Patch | None,
    suite: Suite,
    sandboxes: Sandboxes,
    name: str,
    seconds: int,
    only: tuple[str, ...],
) -> tuple[SuiteRun, Report]:
    try:
        async with sandboxes.open(name) as sandbox:
            await workspace.send(sandbox, patch)
            return await _run_in(sandbox, suite, seconds, only)
    except SandboxError as exc:
        raise ProofUnavailable(f"The tests' sandbox failed: {exc}") from exc


async def _run_in(
    sandbox: Sandbox, suite: Suite, seconds: int, only: tuple[str, ...]
) -> tuple[SuiteRun, Report]:
    selected = only if suite.selects and len(only) <= MOST_SELECTED else ()
    command = f"{suite.command} {shlex.join(selected)}" if selected else suite.command
    # Outside of the work tree, and not to be guessed: a planted report is never taken for this run's.
    directory = f"{sandbox.scratch}/{secrets.token_hex(16)}"
    path = f"{directory}/report.xml"
    environment = {
        REPORT: path,
        "PYTEST_ADDOPTS": f"--junitxml={shlex.quote(path)} {PYTEST_OPTIONS}",
        "CI": "true",
    }
    script = 'mkdir -p -- "$1" && exec bash -c "$2" 2>&1'
    seen = await sandbox.act(
        Execute(
            argv=("bash", "-c", script, "bash", directory, command),
            env=environment if suite.report != "none" else {"CI": "true"},
            timeout=min(seconds, MAX_SECONDS),
        )
    )
    if not isinstance(seen, Executed):
        raise ProofUnavailable(f"The tests' sandbox did not run the command: {seen}")
    report = Report()
    if suite.report != "none" and seen.exit_code is not None:
        report = await _report(sandbox, path)
    output = seen.stdout.decode(errors="replace")
    problem = _problem(suite, seen.exit_code, report, output, seconds)
    run = SuiteRun(
        command=command,
        results={} if problem else report.results,
        exit_code=seen.exit_code,
        seconds=seen.seconds,
        output=output[-TAIL:],
        problem=problem,
    )
    return run, report


async def _report(sandbox: Sandbox, path: str) -> Report:
    content = b""
    while True:
        seen = await sandbox.act(ReadBytes(path=path, offset=len(content), limit=PAGE))
        if not isinstance(seen, Content):
            return Report(problem="the command left no test report")
        content += seen.content
        if not seen.content or len(content) >= min(seen.size, MAX_REPORT + 1):
            return await asyncio.to_thread(parse_junit, content)


def _problem(suite: Suite, exit_code: int | None, report: Report, output: str, seconds: int) -> str | None:
    """Why this is no test run, as the end of a sentence; None: it is one."""
    mend = f"set `test_command` in {REPO_CONFIG_PATH}"
    match exit_code:
        case None:
            return f"they did not end within {seconds} s and were killed"
        case 126 | 127:
            return f"the test command was not found or cannot be run; {mend}, or add its program to the image"
        case -9 | 137:
            return "the test command was killed, perhaps for its memory"
    if suite.report == "none":
        return None
    if "No module named pytest" in output and not report.results:
        return f"pytest is not installed in the sandbox; add it to the image, or {mend}"
    if suite.report == "pytest" and exit_code == NOTHING_COLLECTED:
        return f"pytest found no tests; {mend}"
    if suite.report == "pytest" and exit_code == USAGE_ERROR and (said := COMPLAINT.findall(output)):
        return f"pytest ended before any test ({said[-1].strip()[:200]}); add what it lacks to the image, or {mend}"
    if report.problem:
        last = output.strip().rpartition("\n")[2].strip()[:200]
        return f"{report.problem} (exit code {exit_code}{f': {last}' if last else ''})"
    if not report.results:
        return f"the test report names no tests; {mend}"
    if exit_code != 0 and not any(result in ("failed", "error") for result in report.results.values()):
        return f"the test command ended with {exit_code}, though its report shows no failure"
    return None
