"""Builds the sandbox images during the setup: runs `patchwright prepare` in a child process."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from patchwright.bot.child_process import stop_process, with_parent_death_signal
from patchwright.bot.terminal.output import print_stderr

ERROR_PREFIX = "patchwright: "  # how the command begins its error messages
STOP_SECONDS = 1.0  # how long the command may take to stop; the engine then cancels the build


@dataclass
class ImagePreparation:
    """Progress of the image build."""

    status: str = ""
    """The current step of the image build, or the reason why it failed; "" if no image is being built."""


@asynccontextmanager
async def prepare_images(
    command: Sequence[str],
    environment: Mapping[str, str],
    announce: Callable[[str], object] = print_stderr,
) -> AsyncIterator[ImagePreparation]:
    """Runs `command` in the background while the block runs. The command builds the images. Stops the build at
    the end of the block.

    If `command` is empty, builds nothing. A failed build does no harm, because each worker builds missing
    images when it starts, and reports errors.
    """
    images = ImagePreparation()
    if not command:
        yield images
        return
    process = await asyncio.create_subprocess_exec(
        *with_parent_death_signal(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal must reach only the server
    )

    async def read_output() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            # Without an engine, the first line is an error, and nothing is being prepared.
            if not images.status and not text.startswith(ERROR_PREFIX):
                announce("Preparing sandbox images. You can continue the setup meanwhile:")
            images.status = text
            announce(text)
        if await process.wait() == 0 and images.status:
            images.status = ""
            announce("Sandbox images are ready.")

    reading = asyncio.create_task(read_output())
    try:
        yield images
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await stop_process(process, STOP_SECONDS)
