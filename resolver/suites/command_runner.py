"""Runs the test command of a suite in a sandbox and reads the runner's report."""

import asyncio
import re
import secrets
import shlex
from pathlib import Path
from typing import NamedTuple

from patchwright.resolver.errors import VerificationUnavailable
from patchwright.resolver.suites.command_options import add_report_options, extend_variable
from patchwright.resolver.suites.reports.report_builder import InvalidReport
from patchwright.resolver.suites.reports.runner_report import MAX_REPORT_BYTES, RunnerReport
from patchwright.resolver.suites.runners import PYTEST_PLUGIN, REPORT_VARIABLE, REPORTER_DIR_VARIABLE, RUNNERS
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.actions import MAX_TIMEOUT, Execute, ReadBytes, WriteBytes
from patchwright.runtime.observations import ExecuteResult, FileContent
from patchwright.runtime.sandbox import Sandbox

MAX_OUTPUT_TAIL = 20_000  # characters of a run's output that are stored
MAX_STARTS = (
    4  # how often pytest is started, if it stops because of options or plugins that are not installed
)
MAX_IGNORED_OPTIONS = 20
NO_REPORT = "the command wrote no test report"
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

_MISSING_PLUGIN = re.compile(
    r"Error importing plugin \"(?P<plugin>[\w.]+)\": No module named '(?P<module>[\w.]+)'"
)
_UNKNOWN_OPTION = re.compile(
    r"(?:unknown|unrecognized|invalid) (?:option|argument)|Expected a single value for option", re.I
)
# Errors of pytest about its configuration, and the options with which it starts nevertheless.
_CONFIG_ERRORS = (
    (re.compile(r"ERROR: (Missing required plugins: .*)"), "-o required_plugins="),
    (re.compile(r"ERROR: (Unknown config option: .*)"), "-o strict_config=false"),
    # The last resort: the pytest plugin in reporters/ could not remove the option.
    (re.compile(r"error: (unrecognized arguments: .*)"), "-o addopts="),
)


class CommandResult(NamedTuple):
    """The result of one test command."""

    exit_code: int | None
    """None if the command was killed at its time limit."""
    output: str
    report: RunnerReport
    ignored_options: tuple[str, ...]


class CommandRunner:
    """Runs the test command of a suite in one sandbox, perhaps several times with different tests.

    If pytest stops before its first test because a plugin is not installed, it is started again without the options
    of that plugin. If another runner does not know the options that make it run all tests, it is started again
    without them. If its version is so old that it can only print its report, it is started again without options.
    """

    def __init__(self, sandbox: Sandbox, suite: Suite, timeout: int) -> None:
        """`timeout` is the time limit for all commands together, in seconds."""
        self.seconds = 0.0
        """Duration of the commands so far."""
        self._sandbox = sandbox
        self._suite = suite
        self._runner = RUNNERS.get(suite.runner)
        self._timeout = min(timeout, MAX_TIMEOUT)
        # The path is outside the work tree and unpredictable, so that a forged report cannot replace the report
        # of this run.
        self._directory = f"{sandbox.scratch}/{secrets.token_hex(16)}"
        self._count = 0
        self._ignored_options: list[str] = []
        self._more_options = ""
        self._can_load_plugin = True
        self._runs_all = True
        self._prints_report = False

    async def run(self, command: str) -> CommandResult:
        """Runs the command. Raises VerificationUnavailable if the sandbox did not run it."""
        result = await self._run_once(command)
        for _ in range(MAX_STARTS - 1):
            if result.report.results or self._remaining_seconds < 1 or not await self._adapt_options(result):
                break
            result = await self._run_once(command)
        return result

    async def _adapt_options(self, result: CommandResult) -> bool:
        """Changes the options for another start if the runner did not accept them. Returns False if they are not
        the reason why it ran no test.
        """
        if self._suite.runner == "pytest":
            return await self._ignore_missing_plugin(result.output)
        if self._runner is None:
            return False
        # Under a newer node, the wrapper of mocha 1 loses all output, and so the message about the option.
        is_silent = result.report.problem == NO_REPORT and not result.output.strip()
        is_unknown = is_silent or _UNKNOWN_OPTION.search(result.output) is not None
        if is_unknown and self._runs_all and self._runner.run_all_options:
            self._runs_all = False
            return True
        is_unreported = is_unknown or result.report.problem == NO_REPORT
        if is_unreported and not self._prints_report and self._runner.print_variable:
            self._runs_all, self._prints_report = False, True
            return True
        return False

    @property
    def _remaining_seconds(self) -> int:
        return int(self._timeout - self.seconds)

    async def _run_once(self, command: str) -> CommandResult:
        runner = self._runner
        self._count += 1
        report_dir = f"{self._directory}/{self._count}"
        path = f"{report_dir}/report"
        environment = {"CI": "true"}
        command = add_report_options(command, self._suite.runner, self._runs_all, not self._prints_report)
        if runner:
            quoted = {"report": shlex.quote(path), "helper": shlex.quote(self._directory)}
            environment |= {REPORT_VARIABLE: path, REPORTER_DIR_VARIABLE: self._directory}
            for name, value in runner.environment.items():
                environment[name] = self._change_options(value.format(**quoted))
                command = extend_variable(command, name, f" ${name}")
            if runner.module_path_variable:
                command = _add_module_path(command, runner.module_path_variable)
            for name in filter(None, (runner.reporter_file, runner.plain_start)):
                content = await asyncio.to_thread((REPORTERS_DIR / name).read_bytes)
                await self._sandbox.act(WriteBytes(path=f"{self._directory}/{name}", content=content))
            if self._prints_report:
                environment[runner.print_variable] = "1"
        source = "output" if self._prints_report else runner.report_source if runner else "file"
        arguments = (
            "bash",
            report_dir,
            command,
            self._suite.directory,
            runner.report_paths if runner else "",
        )
        result = await self._sandbox.act(
            Execute(
                argv=("bash", "-c", _RUN_SCRIPTS[source], *arguments),
                env=environment,
                timeout=max(1, self._remaining_seconds),
            )
        )
        if not isinstance(result, ExecuteResult):
            raise VerificationUnavailable(f"The test sandbox did not run the command: {result}")
        self.seconds += result.seconds
        report = RunnerReport()
        if runner and result.exit_code is not None:
            if source == "files":
                gather = ("bash", "-c", _COLLECT_REPORTS_SCRIPT, *arguments)
                await self._sandbox.act(Execute(argv=gather, timeout=60))
            report = await self._read_report(path)
        output = report.output or result.stdout.decode(errors="replace")
        return CommandResult(result.exit_code, output, report, await self._read_ignored_options())

    async def _read_report(self, path: str) -> RunnerReport:
        assert self._runner is not None
        content = b""
        while True:
            chunk = await self._sandbox.act(ReadBytes(path=path, offset=len(content), limit=READ_CHUNK))
            if not isinstance(chunk, FileContent):
                return RunnerReport(problem=NO_REPORT)
            content += chunk.content
            if not chunk.content or len(content) >= min(chunk.size, MAX_REPORT_BYTES + 1):
                break
        if len(content) > MAX_REPORT_BYTES:
            return RunnerReport(problem=f"the test report is larger than {MAX_REPORT_BYTES // 1_000_000} MB")
        directory = f"{self._sandbox.root}/{self._suite.directory}"
        try:
            report = await asyncio.to_thread(self._runner.parse_report, content, directory)
        except InvalidReport as exc:
            return RunnerReport(problem=str(exc))
        except ValueError as exc:
            message = str(exc).partition("\n")[0][:200]
            return RunnerReport(problem=f"the test report is not valid ({message})")
        # The results of several suites can be merged if their ids begin at the repository root.
        return report.rename_tests(self._suite.to_repository_id) if self._suite.directory else report

    # --- pytest ---------------------------------------------------------------------------------------------

    async def _read_ignored_options(self) -> tuple[str, ...]:
        """Returns the ignored options, including those that the pytest plugin in reporters/ removed."""
        names = list(self._ignored_options)
        if self._suite.runner == "pytest":
            content = await self._sandbox.act(
                ReadBytes(path=f"{self._directory}/ignored_options", limit=10_000)
            )
            if isinstance(content, FileContent):
                names += content.content.decode(errors="replace").splitlines()
        return tuple(name[:200] for name in dict.fromkeys(names) if name)[:MAX_IGNORED_OPTIONS]

    def _change_options(self, options: str) -> str:
        if not self._can_load_plugin:
            options = options.replace(f"-p {PYTEST_PLUGIN} ", "")
        return options + self._more_options

    async def _ignore_missing_plugin(self, output: str) -> bool:
        """Prepares another start of pytest without a plugin that is not installed. Returns False if the output
        does not say that a plugin is the reason why pytest stopped.
        """
        if missing := _MISSING_PLUGIN.search(output):
            if missing["plugin"] == PYTEST_PLUGIN and self._can_load_plugin:
                self._can_load_plugin = False  # for example, because a script sets PYTHONPATH
                return True
            top_level = missing["plugin"].partition(".")[0]
            if missing["module"] not in (top_level, missing["plugin"]) or await self._is_in_repository(
                top_level
            ):
                return False
            self._ignored_options.append(f"-p {missing['plugin']}")
            parents = missing["plugin"].split(".")
            files = ["/".join([*parents[:depth], "__init__"]) for depth in range(1, len(parents))]
            # pytest then loads an empty plugin, and the options of the plugin are unknown.
            for file in (*files, "/".join(parents)):
                await self._sandbox.act(WriteBytes(path=f"{self._directory}/{file}.py", content=b""))
            return True
        for pattern, option in _CONFIG_ERRORS:
            if option not in self._more_options and (error := pattern.search(output)):
                self._ignored_options.append(error[1])
                self._more_options += f" {option}"
                return True
        return False

    async def _is_in_repository(self, module: str) -> bool:
        find = ("find", ".", "(", "-name", module, "-o", "-name", f"{module}.py", ")", "-print", "-quit")
        result = await self._sandbox.act(Execute(argv=find, timeout=60))
        return not isinstance(result, ExecuteResult) or bool(result.stdout.strip())


def _add_module_path(command: str, variable: str) -> str:
    """Adds the directory of the reporter to a search path for modules, after the path's other entries."""
    command = extend_variable(command, variable, f":${REPORTER_DIR_VARIABLE}")
    return f'export {variable}="${{{variable}:+${variable}:}}${REPORTER_DIR_VARIABLE}"; {command}'
