"""Serves a recorded model from a thread of its own, for tests that call the API without asyncio."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from patchwright import LLM
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn, RequestHook

KEY = "sk-recorded-model"


@contextlib.contextmanager
def serve_model(
    *turns: RecordedTurn, delay: float = 0.0, on_request: RequestHook | None = None
) -> Iterator[tuple[LLM, RecordedModel]]:
    """Yields a language model that replies with these turns, and its endpoint with the requests so far."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        endpoint = RecordedModel(turns, key=KEY, delay=delay, on_request=on_request)
        asyncio.run_coroutine_threadsafe(endpoint.__aenter__(), loop).result()
        llm = LLM(
            model="openai/recorded", api_key=KEY, base_url=endpoint.base_url, input_price=2, output_price=8
        )
        yield llm, endpoint
        asyncio.run_coroutine_threadsafe(endpoint.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
