"""SIGTERM and SIGINT, as something to wait for."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

STOPPING = "patchwright stops: what runs is put away within {seconds:g} s, and goes on with the next start"
STILL = "patchwright is stopping already, within {seconds:g} s, so that nothing is lost"


@contextlib.contextmanager
def signals(
    announce: Callable[[str], None] | None = None, seconds: float = 0.0
) -> Iterator[asyncio.Future[signal.Signals]]:
    """Done with the signal that tells this process to go.

    `announce` gets a line of what happens then, for which there are so many `seconds`, and one for each signal more.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        first = not told.done()
        if first:
            told.set_result(number)
        if announce is not None:
            announce((STOPPING if first else STILL).format(seconds=seconds))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, note, number)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
