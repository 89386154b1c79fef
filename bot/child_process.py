"""Makes sure that child processes stop when this process dies, and stops them on request."""

import asyncio
import sys
from collections.abc import Sequence

WORKER_READY_PREFIX = "patchwright worker ready"
"""The start of the line that a worker prints when it is ready to take jobs. The constant is defined here, so
that the server does not have to import the worker's module.
"""

# Calls prctl(PR_SET_PDEATHSIG = 1, SIGTERM = 15), so that the kernel stops the child when this process is
# killed. A small program makes the call and then becomes the child, because a `preexec_fn` may deadlock
# between fork and exec in a process with threads. See prctl(2).
_PARENT_DEATH_SCRIPT = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
os.execv(sys.argv[1], sys.argv[1:])
"""


def with_parent_death_signal(command: Sequence[str]) -> list[str]:
    """Wraps a command so that the kernel stops the child process when this process dies.

    The first word of the command must be the path of a program.
    """
    return [sys.executable, "-I", "-S", "-c", _PARENT_DEATH_SCRIPT, *command]


async def stop_process(process: asyncio.subprocess.Process, timeout: float) -> None:
    """Stops a process with SIGTERM. If the process still runs after `timeout` seconds, stops it with SIGKILL."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(timeout):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
