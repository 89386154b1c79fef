"""A Python session in a sandbox that another host takes over."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from patchwright.runtime.actions import RunPython
from patchwright.runtime.execution.action_server import BOOTSTRAP_CODE
from patchwright.runtime.observations import CellResult, HostRequest
from patchwright.runtime.remote_sandbox import RemoteSandbox, SocketTransport
from patchwright.runtime.wire_protocol import KEY_FILE, SOCKET_NAME

CHECKOUT = Path(__file__).parents[3]


@pytest.mark.slow
async def test_an_adopting_host_finds_the_session_with_its_variables(short_tmp: Path) -> None:
    place, door_at = short_tmp, short_tmp / "d"
    for name in ("tree", "tmp", "d"):
        (place / name).mkdir()
    where = ["--socket", door_at / SOCKET_NAME, "--key", door_at / KEY_FILE, "--root", place / "tree"]
    async with SocketTransport.listen(door_at) as door:
        key = door.key
        server = await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-c", BOOTSTRAP_CODE, str(CHECKOUT), *map(str, where)],
            *["--scratch", str(place / "tmp")],
            env={"PATH": os.environ["PATH"], "HOME": str(place)},
        )
        await door.get_connection(timeout=30)
        first = RemoteSandbox(door, str(place / "tree"), str(place / "tmp"))
        await first.act(RunPython(code="x = 7"))
        waiting = "from agentskills import host; host.ask_model('image', ['/a'], '')"
        assert isinstance(await first.act(RunPython(code=waiting)), HostRequest)
    try:
        async with SocketTransport.listen(door_at, key) as door:
            await door.get_connection(timeout=30)
            second = RemoteSandbox(door, str(place / "tree"), str(place / "tmp"), previous=door.hello)
            result = await second.act(RunPython(code="x"))
            assert isinstance(result, CellResult) and result.output == "7\n"
    finally:
        server.terminate()
        await asyncio.wait_for(server.wait(), timeout=10)
