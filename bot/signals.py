"""Turns the signals SIGTERM and SIGINT into a future."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

STOPPING_MESSAGE = (
    "patchwright is stopping: running jobs are saved within {seconds:g} s and resume at the next start"
)
STILL_STOPPING_MESSAGE = "patchwright is already stopping: saving the running jobs takes up to {seconds:g} s"


@contextlib.contextmanager
def catch_stop_signals(
    announce: Callable[[str], None] | None = None, grace_seconds: float = 0.0
) -> Iterator[asyncio.Future[signal.Signals]]:
    """Yields a future that completes when the first stop signal arrives.

    `announce` receives a message for each signal. The first message contains `grace_seconds`, the time that
    running jobs have to save their work.
    """
    loop = asyncio.get_running_loop()
    received: asyncio.Future[signal.Signals] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        is_first = not received.done()
        if is_first:
            received.set_result(number)
        if announce is not None:
            message = STOPPING_MESSAGE if is_first else STILL_STOPPING_MESSAGE
            with contextlib.suppress(OSError):  # If the server was killed, nobody reads the worker's output.
                announce(message.format(seconds=grace_seconds))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield received
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
