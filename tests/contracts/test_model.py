"""What every model does, whoever makes its replies.

litellm over real HTTP in each of the three dialects, the wrappers around it, the recorded and the scripted one.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from demo.model import (
    Endpoint,
    Fault,
    Turn,
    context_overflow,
    cut_off,
    html,
    rate_limited,
    server_error,
    unparsable,
)
from resolver.actions import Think
from resolver.errors import ContextOverflow, ModelError, ModelRefused
from resolver.events import Usage
from resolver.llm.fallback import Fallback
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import FromModel, FromTool, FromUser, Message, Model, Reply, System, ToolCall
from resolver.llm.patient import Patient
from resolver.llm.router import by_pictures
from resolver.llm.textual import Textual
from resolver.llm.written_calls import write
from resolver.tools.talk import talk_tools
from runtime.frozen import Frozen
from tests.resolver.recorded import Recorded
from tests.resolver.scripted import Scripted

KEY = "sk-test-0123456789"
TOOLS = [tool.spec for tool in talk_tools()]
BRIEF: tuple[Message, ...] = (System(text="You mend."), FromUser(text="Issue 7"))

Script = Sequence[Turn | Fault]
Open = Callable[[Script], Awaitable[Model]]


def thinks(*thoughts: str) -> list[Frozen]:
    return [Think(thought=thought) for thought in thoughts]


def scripted(turn: Turn | Fault) -> Any:
    """The scripted model's line for what the endpoint would do."""
    if isinstance(turn, Turn):
        calls = tuple(
            ToolCall(id=f"call_{n}", name=call.name, arguments=call.text) for n, call in enumerate(turn.calls)
        )
        usage = Usage(model="recorded", prompt_tokens=100, completion_tokens=10)
        return Reply(text=turn.thought, calls=calls, usage=usage, truncated=turn.finish_reason == "length")
    if turn == unparsable():
        return Reply(
            text="", calls=(), usage=Usage(model="recorded", prompt_tokens=1000, completion_tokens=50)
        )
    if turn == context_overflow():
        return ContextOverflow("Too long.")
    if turn.status in (401, 403, 404):
        return ModelRefused(f"PATCHWRIGHT_MODEL_API_KEY or PATCHWRIGHT_MODEL is refused ({turn.status}).")
    return ModelError("It failed.", retry_after=2.0 if turn.status == 429 else None)


def as_text(turn: Turn) -> Turn:
    """The same turn of a model that writes its calls."""
    calls = [ToolCall(id="x", name=call.name, arguments=call.text) for call in turn.calls]
    written = "\n".join(write(call, {tool.name: tool for tool in TOOLS}) for call in calls)
    return Turn(f"{turn.thought}\n{written}" if written else turn.thought, finish_reason=turn.finish_reason)


async def at_once(_: float) -> None:
    pass


class Impatient(Patient):
    """Asks once: what is tried again has its own tests."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, budget=-1.0, sleep=at_once)


DIALECTS = {
    "chat": "openai/recorded",
    "responses": "openai/responses/recorded",
    "anthropic": "anthropic/recorded",
}
WRAPPERS: dict[str, Callable[[Model], Model]] = {
    "patient": Impatient,
    "fallback": lambda model: Fallback([Scripted([ModelRefused("No key.")] * 9, name="down"), model]),
    "router": lambda model: by_pictures(model, Scripted([])),
    "textual": Textual,
}


@pytest.fixture(params=[*DIALECTS, *WRAPPERS, "recorded", "scripted"])
async def open_model(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    endpoints: list[Endpoint] = []
    kind: str = request.param

    async def over_http(script: Script) -> Model:
        turns = [turn for turn in script if isinstance(turn, Turn)]
        endpoint = Endpoint([as_text(turn) for turn in turns] if kind == "textual" else turns, key=KEY)
        endpoint.fail(*(turn for turn in script if isinstance(turn, Fault)))
        endpoints.append(await endpoint.__aenter__())
        base = endpoint.base_url.removesuffix("/v1") if kind == "anthropic" else endpoint.base_url
        name = DIALECTS.get(kind, "openai/recorded")
        model = LitellmModel(name, base_url=base, api_key=SecretStr(KEY), timeout=20)
        return WRAPPERS[kind](model) if kind in WRAPPERS else model

    async def by_script(script: Script) -> Model:
        model = Scripted([scripted(turn) for turn in script])
        return Recorded(tmp_path / "recorded.jsonl", renewed_by=model) if kind == "recorded" else model

    yield by_script if kind in ("recorded", "scripted") else over_http
    for endpoint in endpoints:
        await endpoint.__aexit__(None, None, None)


async def test_parallel_calls_come_in_order_with_what_they_cost(open_model: Open) -> None:
    model = await open_model([Turn("Let me think.", *thinks("one", "zwei \N{SNOWMAN}"))])
    reply = await model.reply(BRIEF, TOOLS)
    assert reply.text == "Let me think."
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("think", {"thought": "one"}),
        ("think", {"thought": "zwei \N{SNOWMAN}"}),
    ]
    assert len({call.id for call in reply.calls}) == 2
    assert reply.usage.prompt_tokens > 0 and reply.usage.completion_tokens > 0
    assert reply.usage.usd is None, "nobody knows the price of a recording"
    assert not reply.truncated


async def test_a_whole_conversation_is_understood(open_model: Open) -> None:
    model = await open_model([Turn("First.", *thinks("one", "two")), Turn("Second.")])
    reply = await model.reply(BRIEF, TOOLS)
    answers = [FromTool(call=call.id, text="Noted.") for call in reply.calls]
    said = FromModel(text=reply.text, calls=reply.calls)
    again = await model.reply((*BRIEF, said, *answers, FromUser(text="Go on.")), TOOLS)
    assert (again.text, again.calls) == ("Second.", ())


async def test_a_reply_at_the_output_limit_says_so(open_model: Open) -> None:
    half = {"calls": [{"name": "think", "arguments": '{"thought": "I was abo'}], "finish_reason": "length"}
    model = await open_model([Turn.model_validate({"thought": "", **half})])
    reply = await model.reply(BRIEF, TOOLS)
    assert reply.truncated
    # Anthropic's arguments are objects: one that was cut off is empty.
    assert reply.calls[0].arguments in ('{"thought": "I was abo', "{}")


async def test_an_overflow_is_told_from_other_refusals(open_model: Open) -> None:
    model = await open_model([context_overflow()])
    with pytest.raises(ContextOverflow):
        await model.reply(BRIEF, TOOLS)


async def test_what_was_billed_counts_though_it_cannot_be_read(open_model: Open) -> None:
    model = await open_model([unparsable()])
    reply = await model.reply(BRIEF, TOOLS)
    assert (reply.text, reply.calls) == ("", ())
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1000, 50)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refusal_names_the_setting_and_never_the_key(open_model: Open, status: int) -> None:
    refusal = Fault(status=status, body=f'{{"error": {{"message": "Not with {KEY}", "code": "x"}}}}')
    model = await open_model([refusal])
    with pytest.raises(ModelRefused, match="PATCHWRIGHT_MODEL") as refused:
        await model.reply(BRIEF, TOOLS)
    assert KEY not in str(refused.value)
    assert not refused.value.retryable


@pytest.mark.parametrize(
    ("fault", "retry_after"),
    [
        (rate_limited(2), 2.0),
        (server_error(500), None),
        (server_error(503), None),
        (html(), None),
        (html(502), None),
        (cut_off(), None),
        (Fault(body=""), None),
        (Fault(body="[]"), None),
        (Fault(status=408, body="{}"), None),
    ],
    ids=["429", "500", "503", "html", "html 502", "cut", "empty", "list", "408"],
)
async def test_a_failure_that_may_pass_can_be_tried_again(
    open_model: Open, fault: Fault, retry_after: float | None
) -> None:
    model = await open_model([fault, Turn("Back.")])
    with pytest.raises(ModelError) as failed:
        await model.reply(BRIEF, TOOLS)
    assert failed.value.retryable and not isinstance(failed.value, ModelRefused)
    assert failed.value.retry_after == retry_after
    assert (await model.reply(BRIEF, TOOLS)).text == "Back."
