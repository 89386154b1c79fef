"""One run of a test command in a clean sandbox, and what it showed."""

import asyncio
import re
import secrets
import shlex

from resolver.domain import Patch, SuiteRun
from resolver.errors import ProofUnavailable
from resolver.settings import REPO_CONFIG_PATH
from resolver.suites.suite import REPORT, Suite
from resolver.testreport import MAX_REPORT, Report, parse_junit
from resolver.verdict import NOTHING_COLLECTED
from resolver.workspace import Workspace
from runtime.actions import MAX_SECONDS, Execute, ReadBytes
from runtime.errors import SandboxError
from runtime.observations import Content, Executed
from runtime.sandbox import Sandbox, Sandboxes

TAIL = 20_000  # characters of a run's output that are kept
PAGE = 4 << 20  # bytes; one ReadBytes
MOST_SELECTED = 300  # tests on one command line; more than that, and everything is run
PYTEST_OPTIONS = "-o junit_family=xunit1 --continue-on-collection-errors"  # xunit1 names the file of a test

USAGE_ERROR = 4  # pytest's exit code, also for a conftest.py that cannot be imported
COMPLAINT = re.compile(r"^(?:E  |.*\berror: )(.*)$", re.MULTILINE)


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
    run, _ = await run_with_report(workspace, patch, suite, sandboxes, name, seconds, only)
    return run


async def run_with_report(
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
    selected = tuple(map(suite.own, only)) if suite.selects and len(only) <= MOST_SELECTED else ()
    command = f"{suite.command} {shlex.join(selected)}" if selected else suite.command
    # Outside of the work tree, and not to be guessed: a planted report is never taken for this run's.
    directory = f"{sandbox.scratch}/{secrets.token_hex(16)}"
    path = f"{directory}/report.xml"
    environment = {
        REPORT: path,
        "PYTEST_ADDOPTS": f"--junitxml={shlex.quote(path)} {PYTEST_OPTIONS}",
        "CI": "true",
    }
    script = 'mkdir -p -- "$1" && cd -- "./$3" && exec bash -c "$2" 2>&1'
    seen = await sandbox.act(
        Execute(
            argv=("bash", "-c", script, "bash", directory, command, suite.directory),
            env=environment if suite.report != "none" else {"CI": "true"},
            timeout=min(seconds, MAX_SECONDS),
        )
    )
    if not isinstance(seen, Executed):
        raise ProofUnavailable(f"The tests' sandbox did not run the command: {seen}")
    report = Report()
    if suite.report != "none" and seen.exit_code is not None:
        report = _placed(await _report(sandbox, path), suite)
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


def _placed(report: Report, suite: Suite) -> Report:
    """The report with ids that hold in the whole repository, so that several suites' results can be merged."""
    if not suite.directory:
        return report
    return report.model_copy(
        update={
            "results": {suite.shown(test): result for test, result in report.results.items()},
            "messages": {suite.shown(test): said for test, said in report.messages.items()},
        }
    )


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
