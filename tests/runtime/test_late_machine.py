"""A machine that takes its time before it says its first word, and one that has the wrong key."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from runtime.actions import RunShell
from runtime.errors import SandboxLost
from runtime.observations import Ran
from runtime.remote import Door, RemoteSandbox
from runtime.wire import KEY, SOCKET, VERSION, Answer, Hello, Request, receive, send

RAN = Ran(output="hi\n", exit_code=0, cwd="/w", seconds=0.1)
ECHO = RunShell(command="echo hi", timeout=1)


async def machine(directory: Path, key: str, after: float) -> None:
    await asyncio.sleep(after)
    reader, writer = await asyncio.open_unix_connection(directory / SOCKET)
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await send(writer, Hello(version=VERSION, key=key))
        request = Request.model_validate_json(await receive(reader, 1 << 20))
        await send(writer, Answer(id=request.id, observation=RAN))
    writer.close()


async def test_a_machine_that_starts_slowly_is_waited_for(short_tmp: Path) -> None:
    async with Door.open(short_tmp) as door, asyncio.TaskGroup() as group:
        group.create_task(machine(short_tmp, (short_tmp / KEY).read_text(), after=1.5))
        assert await RemoteSandbox(door, "/w", "/tmp").act(ECHO) == RAN


async def test_a_machine_with_a_wrong_key_is_no_sandbox(short_tmp: Path) -> None:
    async with Door.open(short_tmp) as door, asyncio.TaskGroup() as group:
        group.create_task(machine(short_tmp, "another-key", after=0))
        with pytest.raises(SandboxLost, match="gave no answer within"):
            await RemoteSandbox(door, "/w", "/tmp", slack=0.5).act(ECHO)
