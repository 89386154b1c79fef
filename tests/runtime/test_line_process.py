"""Programs for line-based exchange, as real processes."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.runtime.actions import ProcessExchange, RunShell, StartProcess
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import Acknowledgment, ActionFailure, ProcessOutput, ShellResult
from patchwright.runtime.sandbox import Sandbox

ECHO = (
    sys.executable,
    "-u",
    "-c",
    "import sys\nfor line in sys.stdin: print('heard', line, end='', flush=True)",
)


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, os.environ).open("streams") as opened:
        yield opened


async def start(sandbox: Sandbox, *argv: str, name: str = "it", **env: str) -> None:
    assert isinstance(await sandbox.act(StartProcess(name=name, argv=argv, env=env)), Acknowledgment)


async def talk(sandbox: Sandbox, lines: str = "", wait: float = 10, name: str = "it") -> ProcessOutput:
    result = await sandbox.act(ProcessExchange(name=name, lines=lines.encode(), wait_seconds=wait))
    assert isinstance(result, ProcessOutput), result
    return result


def runs(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_program_exchanges_lines_for_the_sandboxs_lifetime(sandbox: Sandbox) -> None:
    await start(sandbox, *ECHO)
    assert (await talk(sandbox, "one\n")).lines == b"heard one\n"
    assert isinstance(await sandbox.act(RunShell(command="true")), ShellResult)  # the shell does not block
    assert (await talk(sandbox, "two\n")).lines == b"heard two\n"
    quiet = await talk(sandbox, wait=0.05)
    assert (quiet.lines, quiet.has_ended, quiet.exit_code) == (b"", False, None)


async def test_it_has_the_sandboxes_environment_and_directory_and_its_own_variables(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", 'echo "$PWD $ADDED ${GITHUB_TOKEN-none}"; cat', ADDED="mine")
    assert (await talk(sandbox)).lines.decode().split() == [sandbox.root, "mine", "none"]


async def test_the_end_of_a_program_is_reported_with_code_and_stderr(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", "echo bye; echo why >&2; exit 7")
    exchange = await talk(sandbox)
    while not exchange.has_ended:
        exchange = await talk(sandbox)
    assert (exchange.exit_code, exchange.stderr) == (7, "why\n")
    assert (await talk(sandbox, "more\n")).has_ended


async def test_the_same_name_again_replaces_the_program(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", "echo $$; exec cat")
    first = int((await talk(sandbox)).lines)
    await start(sandbox, *ECHO)
    assert (await talk(sandbox, "x\n")).lines == b"heard x\n"
    assert not runs(first)


async def test_an_endless_line_or_a_flood_kills_the_program_but_not_the_sandbox(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; sleep 60", name="long")
    exchange = await talk(sandbox, name="long")
    assert exchange.has_ended and exchange.stderr == "killed: it printed a line of more than 4 MiB"
    await start(sandbox, "sh", "-c", "yes; sleep 60", name="flood")
    await sandbox.act(RunShell(command="sleep 1"))
    exchange = await talk(sandbox, name="flood")
    assert exchange.has_ended and exchange.stderr == "killed: it printed more than 8 MiB at once"
    assert isinstance(await sandbox.act(RunShell(command="true")), ShellResult)


async def test_a_program_that_does_not_read_blocks_nothing(sandbox: Sandbox) -> None:
    await start(sandbox, "sleep", "60")
    assert (await talk(sandbox, "x" * 1_000_000 + "\n", wait=0.2)).lines == b""


async def test_started_programs_end_with_the_sandbox(short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("streams") as opened:
        await start(opened, "sh", "-c", "sleep 60 & echo $!; wait")
        child = int((await talk(opened)).lines)
    assert not runs(child)


async def test_missing_programs_are_reported(sandbox: Sandbox) -> None:
    result = await sandbox.act(StartProcess(name="x", argv=("no-such-program-here",)))
    assert isinstance(result, ActionFailure) and result.reason == "not_found"
    result = await sandbox.act(ProcessExchange(name="nobody"))
    assert result == ActionFailure(
        reason="not_found", message="no program with the name `nobody` was started"
    )


async def test_at_most_eight_programs_run(sandbox: Sandbox) -> None:
    for number in range(8):
        await start(sandbox, "cat", name=str(number))
    result = await sandbox.act(StartProcess(name="ninth", argv=("cat",)))
    assert isinstance(result, ActionFailure) and result.reason == "refused"
