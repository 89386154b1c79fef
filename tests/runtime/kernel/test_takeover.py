"""A Python session in a sandbox whose host is followed by another one."""

import asyncio
import os
import sys
from pathlib import Path

from runtime.actions import RunPython
from runtime.observations import RanPython, Wanted
from runtime.remote import Door, RemoteSandbox
from runtime.server import BOOT
from runtime.wire import KEY, SOCKET

CHECKOUT = Path(__file__).parents[3]


async def test_a_host_that_takes_over_finds_the_session_with_its_names(short_tmp: Path) -> None:
    place, door_at = short_tmp, short_tmp / "d"
    for name in ("tree", "tmp", "d"):
        (place / name).mkdir()
    where = ["--socket", door_at / SOCKET, "--key", door_at / KEY, "--root", place / "tree"]
    async with Door.open(door_at) as door:
        key = door.key
        server = await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-c", BOOT, str(CHECKOUT), *map(str, where)],
            *["--scratch", str(place / "tmp")],
            env={"PATH": os.environ["PATH"], "HOME": str(place)},
        )
        await door.line(timeout=30)
        first = RemoteSandbox(door, str(place / "tree"), str(place / "tmp"))
        await first.act(RunPython(code="x = 7"))
        waiting = "from agentskills import host; host.ask('image', ['/a'], '')"
        assert isinstance(await first.act(RunPython(code=waiting)), Wanted)
    try:
        async with Door.open(door_at, key) as door:
            await door.line(timeout=30)
            second = RemoteSandbox(door, str(place / "tree"), str(place / "tmp"), left=door.hello)
            seen = await second.act(RunPython(code="x"))
            assert isinstance(seen, RanPython) and seen.output == "7\n"
    finally:
        server.terminate()
        await asyncio.wait_for(server.wait(), timeout=10)
