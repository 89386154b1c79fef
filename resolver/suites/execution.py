"""Runs a test suite in a clean sandbox and parses the result."""

from dataclasses import dataclass

from patchwright.resolver.domain import Patch, TestRun
from patchwright.resolver.errors import VerificationUnavailable
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.suites.command_options import select_tests
from patchwright.resolver.suites.command_runner import MAX_OUTPUT_TAIL, CommandRunner
from patchwright.resolver.suites.reports.runner_report import RunnerReport
from patchwright.resolver.suites.run_problems import find_problem
from patchwright.resolver.suites.suite import Suite, Suites, command_from_root
from patchwright.runtime.actions import Execute
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.output_text import decode_output
from patchwright.runtime.sandbox import Sandbox, Sandboxes

MAX_REPEATED_FILES = 10  # maximum number of killed test files that run again
# A file that is written has equal times of its last access and change, so it was read if the access is later.
_LIST_ACCESS_TIMES = (
    r"find . \( -name .git -o -name node_modules \) -prune -o -type f -printf '%A@ %T@ %P\n' | "
    "awk '$1 > $2' | cut -d' ' -f3-"
)


@dataclass(frozen=True)
class TestSetup:
    """Where and how the tests of a repository run."""

    __test__ = False  # not a test for pytest

    suites: Suites
    sandboxes: Sandboxes
    name: str
    """The sandboxes' names begin with this."""
    seconds: int
    """Limit of one test run."""


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
            run, report = await _run_in_sandbox(sandbox, suite, timeout, selected)
            if patch is None:
                report = report.model_copy(update={"read_files": await _list_read_files(sandbox)})
            return run, report
    except SandboxError as exc:
        raise VerificationUnavailable(f"The test sandbox failed: {exc}") from exc


async def _run_in_sandbox(
    sandbox: Sandbox, suite: Suite, timeout: int, selected: tuple[str, ...]
) -> tuple[TestRun, RunnerReport]:
    selected_command = select_tests(suite.command, suite.runner, tuple(map(suite.to_local_id, selected)))
    runner = CommandRunner(sandbox, suite, timeout)
    result = await runner.run(selected_command)
    report = result.report
    if suite.can_select_files:
        for file in report.unfinished_files[:MAX_REPEATED_FILES]:
            again = await runner.run(select_tests(suite.command, suite.runner, (suite.to_local_id(file),)))
            report = _replace_file(report, file, again.report)
    output = result.output
    problem = find_problem(suite, result.exit_code, report, output, timeout)
    run = TestRun(
        command=command_from_root(suite.directory, selected_command),
        command_reason=suite.command_reason,
        results={} if problem else report.results,
        outcomes={} if problem else report.outcomes,
        retries={} if problem else report.retries,
        exit_code=result.exit_code,
        seconds=runner.seconds,
        # Remove colors, and keep only the last state of each progress bar.
        output=decode_output(output[-4 * MAX_OUTPUT_TAIL :].encode("utf-8", "replace"))[-MAX_OUTPUT_TAIL:],
        ignored_options=result.ignored_options,
        problem=problem,
    )
    return run, report


async def _list_read_files(sandbox: Sandbox) -> tuple[str, ...]:
    listed = await sandbox.act(Execute(argv=("bash", "-c", _LIST_ACCESS_TIMES), timeout=60))
    output = listed.stdout if isinstance(listed, ExecuteResult) else b""
    return tuple(output.decode(errors="backslashreplace").splitlines())


def _replace_file(report: RunnerReport, file: str, repeated: RunnerReport) -> RunnerReport:
    """Returns the report with the results of a file from another run, in which only this file ran."""

    def belongs_to_file(test: str) -> bool:
        return test == file or test.startswith(f"{file}::")

    if not any(map(belongs_to_file, repeated.results)):
        return report
    others = report.filter_tests(lambda test: not belongs_to_file(test))
    return others.merge(repeated.filter_tests(belongs_to_file))
