"""The lock between processes that build images."""

import asyncio
import sys
from pathlib import Path

from patchwright.runtime.docker.file_lock import file_lock

ANOTHER = """
import asyncio, sys
from pathlib import Path
from patchwright.runtime.docker.file_lock import file_lock

async def stay():
    async with file_lock(Path(sys.argv[1]), lambda: None):
        print("in", flush=True)
        await asyncio.sleep(600)

asyncio.run(stay())
"""


async def test_the_second_process_waits_until_the_first_has_ended_even_by_a_kill(
    tmp_path: Path,
) -> None:
    place, directory = tmp_path / "builds", list[str]()
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ANOTHER, str(place)), stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"in\n"

    async def come() -> None:
        async with file_lock(place, lambda: directory.append("waits")):
            directory.append("in")

    coming = asyncio.create_task(come())
    await asyncio.sleep(0.5)
    assert directory == ["waits"]
    other.kill()
    await other.wait()
    async with asyncio.timeout(60):
        await coming
    await come()
    assert directory == ["waits", "in", "in"]
