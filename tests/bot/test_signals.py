"""Stop signals of the server and its workers."""

import asyncio
import signal

from patchwright.bot.signals import catch_stop_signals


async def test_a_stop_signal_is_handled_although_nobody_reads_the_output() -> None:
    def announce(_: str) -> None:
        raise BrokenPipeError  # as in a worker whose server was killed

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    with catch_stop_signals(announce) as stop_signal:
        signal.raise_signal(signal.SIGTERM)
        assert await stop_signal == signal.SIGTERM
        await asyncio.sleep(0)
    assert errors == []
