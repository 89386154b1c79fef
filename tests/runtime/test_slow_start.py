"""A sandbox that starts slowly, and one with a wrong key."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.errors import SandboxLost
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox, SocketTransport
from patchwright.runtime.wire_protocol import (
    KEY_FILE,
    PROTOCOL_VERSION,
    SOCKET_NAME,
    ActionRequest,
    ActionResponse,
    Hello,
    read_frame,
    write_frame,
)

RAN = ShellResult(output="hi\n", exit_code=0, cwd="/w", seconds=0.1)
ECHO = RunShell(command="echo hi", timeout=1)


async def machine(directory: Path, key: str, after: float) -> None:
    await asyncio.sleep(after)
    reader, writer = await asyncio.open_unix_connection(directory / SOCKET_NAME)
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await write_frame(writer, Hello(version=PROTOCOL_VERSION, key=key))
        request = ActionRequest.model_validate_json(await read_frame(reader, 1 << 20))
        await write_frame(writer, ActionResponse(id=request.id, observation=RAN))
    writer.close()


async def test_a_slow_start_of_a_sandbox_is_awaited(short_tmp: Path) -> None:
    async with SocketTransport.listen(short_tmp) as door, asyncio.TaskGroup() as group:
        group.create_task(machine(short_tmp, (short_tmp / KEY_FILE).read_text(), after=1.5))
        assert await RemoteSandbox(door, "/w", "/tmp").act(ECHO) == RAN


async def test_a_server_with_a_wrong_key_is_rejected(short_tmp: Path) -> None:
    async with SocketTransport.listen(short_tmp) as door, asyncio.TaskGroup() as group:
        group.create_task(machine(short_tmp, "another-key", after=0))
        with pytest.raises(SandboxLost, match=r"within .+ s: its key or its version is wrong"):
            await RemoteSandbox(door, "/w", "/tmp", grace=0.5).act(ECHO)
