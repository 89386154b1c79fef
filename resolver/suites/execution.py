"""Runs a test command in a clean sandbox and parses the result."""

import asyncio
import re
import secrets
import shlex
from pathlib import Path

from patchwright.resolver.domain import Patch, TestRun
from patchwright.resolver.errors import VerificationUnavailable
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH
from patchwright.resolver.suites.command_options import add_report_options, select_tests
from patchwright.resolver.suites.missing_program import (
    NO_PYTEST,
    NOT_STARTED_EXIT_CODES,
    find_missing_program,
    has_failed_to_start,
)
from patchwright.resolver.suites.reports.report_builder import InvalidReport
from patchwright.resolver.suites.runner_names import NOTHING_COLLECTED
from patchwright.resolver.suites.runner_report import MAX_REPORT_BYTES, RunnerReport
from patchwright.resolver.suites.runners import REPORT_VARIABLE, REPORTER_DIR_VARIABLE, RUNNERS, RunnerSpec
from patchwright.resolver.suites.suite import Suite, command_from_root
from patchwright.resolver.workspaces import Workspace
from patchwright.runtime.actions import MAX_TIMEOUT, Execute, ReadBytes, WriteBytes
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.observations import ExecuteResult, FileContent
from patchwright.runtime.output_text import decode_output
from patchwright.runtime.sandbox import Sandbox, Sandboxes

MAX_OUTPUT_TAIL = 20_000  # characters of a run's output that are stored
READ_CHUNK = 4 << 20  # bytes that one ReadBytes action returns
REPORTERS_DIR = Path(__file__).parent / "reporters"

# Arguments of the scripts: $1 is the directory for the report, $2 the command, $3 the working directory, $4
# the place where the runner leaves its reports.
_ENTER_DIRECTORY = 'mkdir -p -- "$1" && cd -- "./$3" && '
_RUN_SCRIPTS = {
    "file": _ENTER_DIRECTORY + 'exec bash -c "$2" 2>&1',
    "output": _ENTER_DIRECTORY
    + f'{{ bash -c "$2" 2>&1 | {{ head -c {MAX_REPORT_BYTES + 1} >"$1/report"; cat >/dev/null; }}; '
    + "code=${PIPESTATUS[0]}; "
    + f'tail -c {4 * MAX_OUTPUT_TAIL} -- "$1/report"; exit $code; }}',
    # Existing report files are deleted, because they are not from this run.
    "files": _ENTER_DIRECTORY + 'find . -path "$4" -delete && exec bash -c "$2" 2>&1',
}
_COLLECT_REPORTS_SCRIPT = (
    'cd -- "./$3" && find . -path "$4" -type f -print0 | sort -z | '
    "while IFS= read -r -d '' file; do cat -- \"$file\"; printf '\\0'; done | "
    f'head -c {MAX_REPORT_BYTES + 1} >"$1/report"'
)

PYTEST_USAGE_ERROR = 4  # pytest's exit code if its options are invalid or conftest.py cannot be imported
ERROR_LINE = re.compile(r"^(?:E  |.*\berror: )(.*)$", re.MULTILINE)


async def run_tests(
    workspace: Workspace,
    patch: Patch | None,
    suite: Suite,
    sandboxes: Sandboxes,
    name: str,
    timeout: int,
    selected: tuple[str, ...] = (),
) -> TestRun:
    """Applies the patch to the base commit and runs a suite once on the result. Uses a new sandbox, which is
    closed afterwards.

    `selected` names the tests or test files to run. If the suite cannot select tests, all tests run.
    `timeout` is the time limit for the test command, in seconds. Raises VerificationUnavailable if the
    sandbox failed, and WorkspaceError if the patch does not apply.
    """
    run, _ = await run_tests_with_report(workspace, patch, suite, sandboxes, name, timeout, selected)
    return run


async def run_tests_with_report(
    workspace: Workspace,
    patch: Patch | None,
    suite: Suite,
    sandboxes: Sandboxes,
    name: str,
    timeout: int,
    selected: tuple[str, ...],
) -> tuple[TestRun, RunnerReport]:
    try:
        async with sandboxes.open(name) as sandbox:
            await workspace.send_to(sandbox, patch)
            return await _run_in_sandbox(sandbox, suite, timeout, selected)
    except SandboxError as exc:
        raise VerificationUnavailable(f"The test sandbox failed: {exc}") from exc


async def _run_in_sandbox(
    sandbox: Sandbox, suite: Suite, timeout: int, selected: tuple[str, ...]
) -> tuple[TestRun, RunnerReport]:
    runner = RUNNERS.get(suite.runner)
    selected_command = select_tests(suite.command, suite.runner, tuple(map(suite.to_local_id, selected)))
    command = add_report_options(selected_command, suite.runner)
    # The path is outside the work tree and unpredictable, so that a forged report cannot replace the report
    # of this run.
    report_dir = f"{sandbox.scratch}/{secrets.token_hex(16)}"
    path = f"{report_dir}/report"
    environment = {"CI": "true"}
    if runner:
        quoted = {"report": shlex.quote(path), "helper": shlex.quote(report_dir)}
        environment |= {REPORT_VARIABLE: path, REPORTER_DIR_VARIABLE: report_dir}
        environment |= {name: value.format(**quoted) for name, value in runner.environment.items()}
        if runner.reporter_file:
            content = await asyncio.to_thread((REPORTERS_DIR / runner.reporter_file).read_bytes)
            await sandbox.act(WriteBytes(path=f"{report_dir}/{runner.reporter_file}", content=content))
    source = runner.report_source if runner else "file"
    report_paths = runner.report_paths if runner else ""
    result = await sandbox.act(
        Execute(
            argv=(
                "bash",
                "-c",
                _RUN_SCRIPTS[source],
                "bash",
                report_dir,
                command,
                suite.directory,
                report_paths,
            ),
            env=environment,
            timeout=min(timeout, MAX_TIMEOUT),
        )
    )
    if not isinstance(result, ExecuteResult):
        raise VerificationUnavailable(f"The test sandbox did not run the command: {result}")
    report = RunnerReport()
    if runner and result.exit_code is not None:
        if source == "files":
            gather = (
                "bash",
                "-c",
                _COLLECT_REPORTS_SCRIPT,
                "bash",
                report_dir,
                "",
                suite.directory,
                report_paths,
            )
            await sandbox.act(Execute(argv=gather, timeout=60))
        report = await _read_report(sandbox, path, runner, f"{sandbox.root}/{suite.directory}")
        report = _with_repository_ids(report, suite)
    output = report.output or result.stdout.decode(errors="replace")
    problem = _find_problem(suite, result.exit_code, report, output, timeout)
    run = TestRun(
        command=command_from_root(suite.directory, selected_command),
        command_reason=suite.command_reason,
        results={} if problem else report.results,
        exit_code=result.exit_code,
        seconds=result.seconds,
        # Remove colors, and keep only the last state of each progress bar.
        output=decode_output(output[-4 * MAX_OUTPUT_TAIL :].encode("utf-8", "replace"))[-MAX_OUTPUT_TAIL:],
        problem=problem,
    )
    return run, report


def _with_repository_ids(report: RunnerReport, suite: Suite) -> RunnerReport:
    """Makes the test ids of a report relative to the repository root. The results of several suites can then
    be merged.
    """
    if not suite.directory:
        return report
    return report.model_copy(
        update={
            "results": {suite.to_repository_id(test): result for test, result in report.results.items()},
            "messages": {suite.to_repository_id(test): message for test, message in report.messages.items()},
        }
    )


async def _read_report(sandbox: Sandbox, path: str, runner: RunnerSpec, directory: str) -> RunnerReport:
    content = b""
    while True:
        chunk = await sandbox.act(ReadBytes(path=path, offset=len(content), limit=READ_CHUNK))
        if not isinstance(chunk, FileContent):
            return RunnerReport(problem="the command wrote no test report")
        content += chunk.content
        if not chunk.content or len(content) >= min(chunk.size, MAX_REPORT_BYTES + 1):
            break
    if len(content) > MAX_REPORT_BYTES:
        return RunnerReport(problem=f"the test report is larger than {MAX_REPORT_BYTES // 1_000_000} MB")
    try:
        return await asyncio.to_thread(runner.parse_report, content, directory)
    except InvalidReport as exc:
        return RunnerReport(problem=str(exc))
    except ValueError as exc:
        message = str(exc).partition("\n")[0][:200]
        return RunnerReport(problem=f"the test report is not valid ({message})")


def _find_problem(
    suite: Suite, exit_code: int | None, report: RunnerReport, output: str, timeout: int
) -> str | None:
    """Returns why the test run is not valid, as a clause for a longer sentence. Returns None if the run is
    valid.
    """
    advice = f"set `test_command` in {REPO_CONFIG_PATH}"
    match exit_code:
        case None:
            return f"the tests did not finish within {timeout} s and were killed"
        case _ if exit_code in NOT_STARTED_EXIT_CODES:
            return _explain_not_started(output, advice)
        case -9 | 137:
            return "the test command was killed, perhaps because it used too much memory"
    if suite.runner == "none":
        return None
    if suite.runner == "pytest" and not report.results:
        if NO_PYTEST in output:
            return f"pytest is not installed in the sandbox; add it to the image, or {advice}"
        if exit_code == NOTHING_COLLECTED:
            return f"pytest found no tests; {advice}"
        if exit_code == PYTEST_USAGE_ERROR and (errors := ERROR_LINE.findall(output)):
            return (
                f"pytest stopped before any test ({errors[-1].strip()[:200]}); "
                f"add what is missing to the image, or {advice}"
            )
    if not report.results and has_failed_to_start(exit_code, output):
        return _explain_not_started(output, advice)
    if report.problem:
        last_line = output.strip().rpartition("\n")[2].strip()[:200]
        return f"{report.problem} (exit code {exit_code}{f': {last_line}' if last_line else ''})"
    if not report.results:
        return f"the test report contains no tests; {advice}"
    if exit_code != 0 and not any(result in ("failed", "error") for result in report.results.values()):
        return f"the test command exited with {exit_code}, although its report shows no failure"
    return None


def _explain_not_started(output: str, advice: str) -> str:
    if program := find_missing_program(output):
        return f"`{program}` was not found in the sandbox; set `image` to an image that has it, or {advice}"
    return f"the test command was not found or cannot be run; {advice}, or add its program to the image"
