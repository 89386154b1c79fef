import asyncio
import os
from pathlib import Path

import pytest

from patchwright.runtime.shell import Shell


async def test_a_cancellation_at_a_commands_end_is_not_lost(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path, {"PATH": os.environ["PATH"]})
    running = asyncio.create_task(shell.run("true", timeout=60))
    try:
        async with asyncio.timeout(60):
            while shell._current is None or not shell._current.completion.done():
                await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    finally:
        await shell.close()
