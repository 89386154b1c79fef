"""Runs coroutines in one background thread, so that the API can be used with and without asyncio."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    """Starts the thread on first use. It is a daemon, so that it does not keep the program alive."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="patchwright", daemon=True).start()
    return loop


def submit_in_background(coroutine: Coroutine[Any, Any, Result]) -> "Future[Result]":
    """Starts a coroutine without waiting for it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _background_loop())


def run_blocking(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end and returns its result. If this thread is interrupted (Ctrl-C), the coroutine is
    canceled and finishes its cleanup first.
    """
    if threading.current_thread().name == "patchwright":
        coroutine.close()
        raise RuntimeError("A callback or tool must not wait for the conversation that calls it.")
    future = submit_in_background(coroutine)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        _wait_for_cleanup()
        raise


async def run_in_background(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine in the background thread for a caller that has an event loop of its own. If the caller is
    canceled, the coroutine is canceled.
    """
    return await asyncio.wrap_future(submit_in_background(coroutine))


def _wait_for_cleanup() -> None:
    """Waits until the canceled tasks have ended, at most 30 s."""

    async def wait() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        canceled = [task for task in tasks if task.cancelling()]
        if canceled:
            await asyncio.wait(canceled, timeout=30)

    submit_in_background(wait()).result()
