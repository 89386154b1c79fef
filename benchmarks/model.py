"""Measures what a model request costs besides the model: from our messages to our reply, with 50 and 300
steps of history.

The endpoint answers immediately, in its own process. Floor, in the same run: the same bytes posted by httpx,
and the answer parsed. Peer: litellm's default route (the `openai` package), measured on a Debian 12 machine
with 2 cores.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable

import httpx
from pydantic import SecretStr

from benchmarks.endpoint import instant
from benchmarks.measure import Result, report
from patchwright.resolver.llm.chat_completions import to_chat_messages
from patchwright.resolver.llm.litellm import LitellmModel, preload_litellm
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    ProviderConnection,
    RawToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from patchwright.resolver.tools.control_tools import build_control_tools

TIMES = 40
TOOLS = [tool.spec for tool in build_control_tools()]


def measure() -> list[Result]:
    """Returns medians in milliseconds."""
    with instant(calls=False) as base_url:
        return asyncio.run(_measure(base_url))


async def _measure(base_url: str) -> list[Result]:
    await preload_litellm()
    model = LitellmModel(
        "openai/m", ProviderConnection(base_url=base_url, api_key=SecretStr("key")), supports_vision=False
    )
    results = []
    async with httpx.AsyncClient() as client:
        for steps, target, litellm in ((50, 4.0, 9.0), (300, 7.0, 39.0)):
            messages = _conversation(steps)

            async def ask(messages: list[ChatMessage] = messages) -> None:
                assert (await model.reply(messages, TOOLS)).text == "ok"

            body = {
                "model": "m",
                "messages": to_chat_messages(messages, model_name="m", supports_vision=False),
                "tools": [tool.to_openai_tool() for tool in TOOLS],
            }

            async def post(body: object = body) -> None:
                answer = await client.post(f"{base_url}/chat/completions", json=body)
                assert json.loads(answer.content)["choices"]

            results.append(
                Result(
                    name=f"model_request_{steps}_steps",
                    value=await _median(ask),
                    unit="ms",
                    floor=await _median(post),
                    peers={"litellm": litellm},
                    target=target,
                )
            )
    return results


def _conversation(steps: int) -> list[ChatMessage]:
    """Returns this number of tool calls, each with 40 lines of output."""
    messages: list[ChatMessage] = [
        SystemMessage(text="You fix bugs. " * 200),
        UserMessage(text="The issue. " * 200),
    ]
    for step in range(steps):
        call = RawToolCall(id=f"c{step}", name="run_shell", arguments='{"command":"python -m pytest -q"}')
        messages += [
            AssistantMessage(text="Next.", tool_calls=(call,), model="openai/m"),
            ToolMessage(tool_call_id=call.id, text="a line of output\n" * 40),
        ]
    return messages


async def _median(act: Callable[[], Awaitable[None]]) -> float:
    await act()
    timings = []
    for _ in range(TIMES):
        started_at = time.perf_counter()
        await act()
        timings.append((time.perf_counter() - started_at) * 1000)
    return statistics.median(timings)


if __name__ == "__main__":
    report(measure())
