"""What one request to a model costs beside the model: from our messages to our reply, with 50 and 300 steps of history.

The endpoint answers at once, in a process of its own. Floor, in the same run: the same bytes posted by httpx, and
the answer parsed. Peer: litellm's default route (the `openai` package), measured on a Debian 12 machine with 2 cores.
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
from resolver.llm.chat import written
from resolver.llm.litellm import LitellmModel, warm
from resolver.llm.model import FromModel, FromTool, FromUser, Message, System, ToolCall
from resolver.tools.talk import talk_tools

TIMES = 40
TOOLS = [tool.spec for tool in talk_tools()]


def measure() -> list[Result]:
    """Medians, in milliseconds."""
    with instant(calls=False) as base_url:
        return asyncio.run(_measure(base_url))


async def _measure(base_url: str) -> list[Result]:
    await warm()
    model = LitellmModel("openai/m", base_url=base_url, api_key=SecretStr("key"), sees=False)
    results = []
    async with httpx.AsyncClient() as client:
        for steps, target, litellm in ((50, 4.0, 9.0), (300, 7.0, 39.0)):
            messages = _conversation(steps)

            async def ask(messages: list[Message] = messages) -> None:
                assert (await model.reply(messages, TOOLS)).text == "ok"

            body = {
                "model": "m",
                "messages": written(messages, reader="m", sees=False),
                "tools": [tool.as_openai() for tool in TOOLS],
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


def _conversation(steps: int) -> list[Message]:
    """As many calls of a tool, each with 40 lines of output."""
    messages: list[Message] = [System(text="You mend. " * 200), FromUser(text="The issue. " * 200)]
    for step in range(steps):
        call = ToolCall(id=f"c{step}", name="run_shell", arguments='{"command":"python -m pytest -q"}')
        messages += [
            FromModel(text="Next.", calls=(call,), model="openai/m"),
            FromTool(call=call.id, text="a line of output\n" * 40),
        ]
    return messages


async def _median(act: Callable[[], Awaitable[None]]) -> float:
    await act()
    taken = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        await act()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    report(measure())
