"""Processes of ours that must not outlive us, and how they are ended."""

import asyncio
import sys
from collections.abc import Sequence

READY = "patchwright works"
"""Begins the line in which a worker says that it takes jobs: the receiver reads it, and loads nothing of the worker."""

# PR_SET_PDEATHSIG (1) with SIGTERM: when we are killed, the kernel ends the child. In a program that becomes the
# child, not in a `preexec_fn`, which may deadlock between fork and exec where threads run. See prctl(2).
_DIES_WITH_US = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
os.execv(sys.argv[1], sys.argv[1:])
"""


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, its program as a path, as one that the kernel ends with us."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIES_WITH_US, *command]


async def stop(process: asyncio.subprocess.Process, seconds: float) -> None:
    """End it by SIGTERM, and by SIGKILL after so many seconds."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
