"""SIGTERM and SIGINT, as something to wait for."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def signals() -> Iterator[asyncio.Future[signal.Signals]]:
    """Done with the signal that tells this process to go."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, note, number)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
