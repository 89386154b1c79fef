"""Programs that are talked to line by line, as real processes."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.actions import Converse, RunShell, StartStream
from runtime.local import LocalSandboxes
from runtime.observations import Failed, Heard, Noted, Ran
from runtime.sandbox import Sandbox

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
    assert isinstance(await sandbox.act(StartStream(name=name, argv=argv, env=env)), Noted)


async def talk(sandbox: Sandbox, lines: str = "", wait: float = 10, name: str = "it") -> Heard:
    heard = await sandbox.act(Converse(name=name, lines=lines.encode(), wait=wait))
    assert isinstance(heard, Heard), heard
    return heard


def runs(pid: int) -> bool:
    """Whether a process is there that has not ended; one that nobody has buried yet is not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_lines_go_in_and_come_out_for_as_long_as_the_sandbox_lives(sandbox: Sandbox) -> None:
    await start(sandbox, *ECHO)
    assert (await talk(sandbox, "one\n")).lines == b"heard one\n"
    assert isinstance(await sandbox.act(RunShell(command="true")), Ran)  # the shell is not in the way
    assert (await talk(sandbox, "two\n")).lines == b"heard two\n"
    quiet = await talk(sandbox, wait=0.05)
    assert (quiet.lines, quiet.ended, quiet.exit_code) == (b"", False, None)


async def test_it_has_the_sandboxes_environment_and_directory_and_its_own_variables(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", 'echo "$PWD $ADDED ${GITHUB_TOKEN-none}"; cat', ADDED="mine")
    assert (await talk(sandbox)).lines.decode().split() == [sandbox.root, "mine", "none"]


async def test_an_end_is_told_with_its_code_and_last_words(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", "echo bye; echo why >&2; exit 7")
    heard = await talk(sandbox)
    while not heard.ended:
        heard = await talk(sandbox)
    assert (heard.exit_code, heard.said) == (7, "why\n")
    assert (await talk(sandbox, "more\n")).ended


async def test_the_same_name_again_replaces_the_program(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", "echo $$; exec cat")
    first = int((await talk(sandbox)).lines)
    await start(sandbox, *ECHO)
    assert (await talk(sandbox, "x\n")).lines == b"heard x\n"
    assert not runs(first)


async def test_a_line_without_end_and_a_flood_end_the_program_and_not_the_sandbox(sandbox: Sandbox) -> None:
    await start(sandbox, "sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; sleep 60", name="long")
    heard = await talk(sandbox, name="long")
    assert heard.ended and heard.said == "it said a line of more than 4 MiB"
    await start(sandbox, "sh", "-c", "yes; sleep 60", name="flood")
    await sandbox.act(RunShell(command="sleep 1"))
    heard = await talk(sandbox, name="flood")
    assert heard.ended and heard.said == "it said more than 8 MiB at once"
    assert isinstance(await sandbox.act(RunShell(command="true")), Ran)


async def test_one_that_does_not_listen_holds_nobody_up(sandbox: Sandbox) -> None:
    await start(sandbox, "sleep", "60")
    assert (await talk(sandbox, "x" * 1_000_000 + "\n", wait=0.2)).lines == b""


async def test_what_it_started_is_gone_with_the_sandbox(short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("streams") as opened:
        await start(opened, "sh", "-c", "sleep 60 & echo $!; wait")
        child = int((await talk(opened)).lines)
    assert not runs(child)


async def test_what_cannot_be_started_or_is_not_there_is_told(sandbox: Sandbox) -> None:
    seen = await sandbox.act(StartStream(name="x", argv=("no-such-program-here",)))
    assert isinstance(seen, Failed) and seen.reason == "not_found"
    seen = await sandbox.act(Converse(name="nobody"))
    assert seen == Failed(reason="not_found", message="no program `nobody` was started")


async def test_no_more_than_eight_are_talked_to(sandbox: Sandbox) -> None:
    for number in range(8):
        await start(sandbox, "cat", name=str(number))
    seen = await sandbox.act(StartStream(name="ninth", argv=("cat",)))
    assert isinstance(seen, Failed) and seen.reason == "refused"
