"""One run of a test command in a clean sandbox, and what it showed."""

import asyncio
import re
import secrets
import shlex
from pathlib import Path

from resolver.domain import Patch, SuiteRun
from resolver.errors import ProofUnavailable
from resolver.settings.settings import REPO_CONFIG_PATH
from resolver.suites.command import judging, narrowed
from resolver.suites.lacking import NO_PYTEST, NOT_STARTED, is_unstarted, lacked
from resolver.suites.reports.collected import Unfit
from resolver.suites.runners import HELPER, REPORT, RUNNERS, Runner
from resolver.suites.suite import Suite, at_root
from resolver.suites.testreport import MAX_REPORT, Report
from resolver.verdict import NOTHING_COLLECTED
from resolver.workspace import Workspace
from runtime.actions import MAX_SECONDS, Execute, ReadBytes, WriteBytes
from runtime.errors import SandboxError
from runtime.observations import Content, Executed
from runtime.sandbox import Sandbox, Sandboxes

TAIL = 20_000  # characters of a run's output that are kept
PAGE = 4 << 20  # bytes; one ReadBytes
REPORTERS = Path(__file__).parent / "reporters"

# $1: a directory for the report, $2: the command, $3: where it is run, $4: where its runner leaves reports.
_BEGIN = 'mkdir -p -- "$1" && cd -- "./$3" && '
_RUN = {
    "file": _BEGIN + 'exec bash -c "$2" 2>&1',
    "output": _BEGIN
    + f'{{ bash -c "$2" 2>&1 | {{ head -c {MAX_REPORT + 1} >"$1/report"; cat >/dev/null; }}; code=${{PIPESTATUS[0]}}; '
    + f'tail -c {4 * TAIL} -- "$1/report"; exit $code; }}',
    # What lies there already was not written by this run.
    "files": _BEGIN + 'find . -path "$4" -delete && exec bash -c "$2" 2>&1',
}
_GATHER = (
    'cd -- "./$3" && find . -path "$4" -type f -print0 | sort -z | '
    "while IFS= read -r -d '' file; do cat -- \"$file\"; printf '\\0'; done | "
    f'head -c {MAX_REPORT + 1} >"$1/report"'
)

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
    runner = RUNNERS.get(suite.report)
    wanted = narrowed(suite.command, suite.report, tuple(map(suite.own, only)))
    command = judging(wanted, suite.report)
    # Outside of the work tree, and not to be guessed: a planted report is never taken for this run's.
    place = f"{sandbox.scratch}/{secrets.token_hex(16)}"
    path = f"{place}/report"
    environment = {"CI": "true"}
    if runner:
        quoted = {"report": shlex.quote(path), "helper": shlex.quote(place)}
        environment |= {REPORT: path, HELPER: place}
        environment |= {name: value.format(**quoted) for name, value in runner.variables.items()}
        if runner.helper:
            content = await asyncio.to_thread((REPORTERS / runner.helper).read_bytes)
            await sandbox.act(WriteBytes(path=f"{place}/{runner.helper}", content=content))
    source = runner.source if runner else "file"
    planted = runner.files if runner else ""
    seen = await sandbox.act(
        Execute(
            argv=("bash", "-c", _RUN[source], "bash", place, command, suite.directory, planted),
            env=environment,
            timeout=min(seconds, MAX_SECONDS),
        )
    )
    if not isinstance(seen, Executed):
        raise ProofUnavailable(f"The tests' sandbox did not run the command: {seen}")
    report = Report()
    if runner and seen.exit_code is not None:
        if source == "files":
            gather = ("bash", "-c", _GATHER, "bash", place, "", suite.directory, planted)
            await sandbox.act(Execute(argv=gather, timeout=60))
        report = await _report(sandbox, path, runner, f"{sandbox.root}/{suite.directory}")
        report = _placed(report, suite)
    output = report.output or seen.stdout.decode(errors="replace")
    problem = _problem(suite, seen.exit_code, report, output, seconds)
    run = SuiteRun(
        command=at_root(suite.directory, wanted),
        why=suite.why,
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


async def _report(sandbox: Sandbox, path: str, runner: Runner, directory: str) -> Report:
    content = b""
    while True:
        seen = await sandbox.act(ReadBytes(path=path, offset=len(content), limit=PAGE))
        if not isinstance(seen, Content):
            return Report(problem="the command left no test report")
        content += seen.content
        if not seen.content or len(content) >= min(seen.size, MAX_REPORT + 1):
            break
    if len(content) > MAX_REPORT:
        return Report(problem=f"the test report is larger than {MAX_REPORT // 1_000_000} MB")
    try:
        return await asyncio.to_thread(runner.read, content, directory)
    except Unfit as exc:
        return Report(problem=str(exc))
    except ValueError as exc:
        said = str(exc).partition("\n")[0][:200]
        return Report(problem=f"the test report cannot be read ({said})")


def _problem(suite: Suite, exit_code: int | None, report: Report, output: str, seconds: int) -> str | None:
    """Why this is no test run, as the end of a sentence; None: it is one."""
    mend = f"set `test_command` in {REPO_CONFIG_PATH}"
    match exit_code:
        case None:
            return f"they did not end within {seconds} s and were killed"
        case _ if exit_code in NOT_STARTED:
            return _unstarted(output, mend)
        case -9 | 137:
            return "the test command was killed, perhaps for its memory"
    if suite.report == "none":
        return None
    if suite.report == "pytest" and not report.results:
        if NO_PYTEST in output:
            return f"pytest is not installed in the sandbox; add it to the image, or {mend}"
        if exit_code == NOTHING_COLLECTED:
            return f"pytest found no tests; {mend}"
        if exit_code == USAGE_ERROR and (said := COMPLAINT.findall(output)):
            return f"pytest ended before any test ({said[-1].strip()[:200]}); add what it lacks to the image, or {mend}"
    if not report.results and is_unstarted(exit_code, output):
        return _unstarted(output, mend)
    if report.problem:
        last = output.strip().rpartition("\n")[2].strip()[:200]
        return f"{report.problem} (exit code {exit_code}{f': {last}' if last else ''})"
    if not report.results:
        return f"the test report names no tests; {mend}"
    if exit_code != 0 and not any(result in ("failed", "error") for result in report.results.values()):
        return f"the test command ended with {exit_code}, though its report shows no failure"
    return None


def _unstarted(output: str, mend: str) -> str:
    if program := lacked(output):
        return f"`{program}` was not found in the sandbox; name an image that has it in the setting `image`, or {mend}"
    return f"the test command was not found or cannot be run; {mend}, or add its program to the image"
