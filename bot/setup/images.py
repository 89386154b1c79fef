"""The sandbox's images, begun while somebody still fills in forms: `patchwright prepare`, in a process of its own."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.child import dying_with_us, stop
from bot.terminal.lines import to_stderr

STOP_SECONDS = 1.0  # the engine ends a build whose client is gone


@dataclass
class Images:
    """How far they are."""

    said: str = ""
    """What is made now, or why nothing can be; "": nothing is being made."""


@asynccontextmanager
async def making(
    command: Sequence[str],
    environment: Mapping[str, str],
    announce: Callable[[str], object] = to_stderr,
) -> AsyncIterator[Images]:
    """Images that are made meanwhile by this command, if there is one; at the end of the context it is ended.

    Where it fails, nothing is lost: a worker that starts tries it again, and says why it cannot.
    """
    images = Images()
    if not command:
        yield images
        return
    process = await asyncio.create_subprocess_exec(
        *dying_with_us(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at a terminal is for us
    )

    async def follow() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            if not images.said:
                announce("The set-up need not wait for what follows:")
            images.said = line.decode(errors="replace").strip()
            announce(images.said)
        if await process.wait() == 0 and images.said:
            images.said = ""
            announce("The sandbox's images are made.")

    following = asyncio.create_task(follow())
    try:
        yield images
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await stop(process, STOP_SECONDS)
