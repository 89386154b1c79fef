"""The contract of `Model`, for each implementation.

litellm over real HTTP in each of the three API formats, its wrappers, and the recorded and scripted models.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedModel,
    RecordedTurn,
    context_overflow,
    html_page,
    rate_limited,
    reply_without_choices,
    server_error,
    truncated_reply,
)
from patchwright.resolver.errors import ContextOverflow, ModelAccessDenied, ModelError
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.fallback import FallbackModel
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    Model,
    ProviderConnection,
    RawToolCall,
    Reply,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from patchwright.resolver.llm.retry import RetryingModel
from patchwright.resolver.llm.router import route_by_images
from patchwright.resolver.llm.text_tool_calls import format_text_call
from patchwright.resolver.llm.text_tool_model import TextToolModel
from patchwright.resolver.tool_actions.control_actions import Think
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.runtime.frozen_model import FrozenModel
from tests.resolver.recorded_model import RecordingModel
from tests.resolver.scripted_model import ScriptedModel

KEY = "sk-test-0123456789"
TOOLS = [tool.spec for tool in build_control_tools()]
BRIEF: tuple[ChatMessage, ...] = (SystemMessage(text="You fix."), UserMessage(text="Issue 7"))

Script = Sequence[RecordedTurn | ModelFault]
Open = Callable[[Script], Awaitable[Model]]


def thinks(*thoughts: str) -> list[FrozenModel]:
    return [Think(thought=thought) for thought in thoughts]


def scripted(turn: RecordedTurn | ModelFault) -> Any:
    """The scripted model's line for what the endpoint would do."""
    if isinstance(turn, RecordedTurn):
        calls = tuple(
            RawToolCall(id=f"call_{n}", name=call.name, arguments=call.text)
            for n, call in enumerate(turn.calls)
        )
        usage = ReplyUsage(model="recorded", prompt_tokens=100, completion_tokens=10)
        return Reply(
            text=turn.thought, tool_calls=calls, usage=usage, truncated=turn.finish_reason == "length"
        )
    if turn == reply_without_choices():
        return Reply(
            text="",
            tool_calls=(),
            usage=ReplyUsage(model="recorded", prompt_tokens=1000, completion_tokens=50),
        )
    if turn == context_overflow():
        return ContextOverflow("Too long.")
    if turn.status in (401, 403, 404):
        return ModelAccessDenied(
            f"PATCHWRIGHT_MODEL_API_KEY or PATCHWRIGHT_MODEL is refused ({turn.status})."
        )
    return ModelError("It failed.", retry_after=2.0 if turn.status == 429 else None)


def as_text(turn: RecordedTurn) -> RecordedTurn:
    """The same turn of a model that writes its calls."""
    calls = [RawToolCall(id="x", name=call.name, arguments=call.text) for call in turn.calls]
    written = "\n".join(format_text_call(call, {tool.name: tool for tool in TOOLS}) for call in calls)
    return RecordedTurn(
        f"{turn.thought}\n{written}" if written else turn.thought, finish_reason=turn.finish_reason
    )


async def at_once(_: float) -> None:
    pass


class Impatient(RetryingModel):
    """Sends one request: retries have their own tests."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, max_seconds=-1.0, sleep=at_once)


DIALECTS = {
    "chat": "openai/recorded",
    "responses": "openai/responses/recorded",
    "anthropic": "anthropic/recorded",
}
WRAPPERS: dict[str, Callable[[Model], Model]] = {
    "patient": Impatient,
    "fallback": lambda model: FallbackModel(
        [ScriptedModel([ModelAccessDenied("No key.")] * 9, name="down"), model]
    ),
    "router": lambda model: route_by_images(model, ScriptedModel([])),
    "textual": TextToolModel,
}


@pytest.fixture(params=[*DIALECTS, *WRAPPERS, "recorded", "scripted"])
async def open_model(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    endpoints: list[RecordedModel] = []
    kind: str = request.param

    async def over_http(script: Script) -> Model:
        turns = [turn for turn in script if isinstance(turn, RecordedTurn)]
        endpoint = RecordedModel([as_text(turn) for turn in turns] if kind == "textual" else turns, key=KEY)
        endpoint.add_faults(*(turn for turn in script if isinstance(turn, ModelFault)))
        endpoints.append(await endpoint.__aenter__())
        base = endpoint.base_url.removesuffix("/v1") if kind == "anthropic" else endpoint.base_url
        name = DIALECTS.get(kind, "openai/recorded")
        model = LitellmModel(name, ProviderConnection(base_url=base, api_key=SecretStr(KEY), timeout=20))
        return WRAPPERS[kind](model) if kind in WRAPPERS else model

    async def by_script(script: Script) -> Model:
        model = ScriptedModel([scripted(turn) for turn in script])
        return RecordingModel(tmp_path / "recorded.jsonl", model) if kind == "recorded" else model

    yield by_script if kind in ("recorded", "scripted") else over_http
    for endpoint in endpoints:
        await endpoint.__aexit__(None, None, None)


@pytest.mark.slow
async def test_parallel_calls_arrive_in_order_with_their_cost(open_model: Open) -> None:
    model = await open_model([RecordedTurn("Let me think.", *thinks("one", "zwei \N{SNOWMAN}"))])
    reply = await model.reply(BRIEF, TOOLS)
    assert reply.text == "Let me think."
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [
        ("think", {"thought": "one"}),
        ("think", {"thought": "zwei \N{SNOWMAN}"}),
    ]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.usage.prompt_tokens > 0 and reply.usage.completion_tokens > 0
    assert reply.usage.usd is None, "nobody knows the price of a recording"
    assert not reply.truncated


async def test_a_complete_conversation_is_accepted(open_model: Open) -> None:
    model = await open_model([RecordedTurn("First.", *thinks("one", "two")), RecordedTurn("Second.")])
    reply = await model.reply(BRIEF, TOOLS)
    answers = [ToolMessage(tool_call_id=call.id, text="Noted.") for call in reply.tool_calls]
    message = AssistantMessage(text=reply.text, tool_calls=reply.tool_calls)
    again = await model.reply((*BRIEF, message, *answers, UserMessage(text="Go on.")), TOOLS)
    assert (again.text, again.tool_calls) == ("Second.", ())


async def test_a_reply_at_the_output_limit_is_marked(open_model: Open) -> None:
    half = {"calls": [{"name": "think", "arguments": '{"thought": "I was abo'}], "finish_reason": "length"}
    model = await open_model([RecordedTurn.model_validate({"thought": "", **half})])
    reply = await model.reply(BRIEF, TOOLS)
    assert reply.truncated
    # Anthropic's arguments are objects: one that was cut off is empty.
    assert reply.tool_calls[0].arguments in ('{"thought": "I was abo', "{}")


async def test_a_context_overflow_is_distinguished_from_other_errors(open_model: Open) -> None:
    model = await open_model([context_overflow()])
    with pytest.raises(ContextOverflow):
        await model.reply(BRIEF, TOOLS)


async def test_an_unreadable_billed_reply_is_counted(open_model: Open) -> None:
    model = await open_model([reply_without_choices()])
    reply = await model.reply(BRIEF, TOOLS)
    assert (reply.text, reply.tool_calls) == ("", ())
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1000, 50)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_an_authentication_error_names_the_setting_and_never_the_key(
    open_model: Open, status: int
) -> None:
    refusal = ModelFault(status=status, body=f'{{"error": {{"message": "Not with {KEY}", "code": "x"}}}}')
    model = await open_model([refusal])
    with pytest.raises(ModelAccessDenied, match="PATCHWRIGHT_MODEL") as refused:
        await model.reply(BRIEF, TOOLS)
    assert KEY not in str(refused.value)
    assert not refused.value.retryable


async def test_a_web_page_instead_of_the_first_reply_is_an_error(open_model: Open) -> None:
    model = await open_model([html_page(), RecordedTurn("Back.")])
    with pytest.raises(ModelError):
        await model.reply(BRIEF, TOOLS)
    assert (await model.reply(BRIEF, TOOLS)).text == "Back."


@pytest.mark.parametrize(
    ("fault", "retry_after"),
    [
        (rate_limited(2), 2.0),
        (server_error(500), None),
        (server_error(503), None),
        (html_page(502), None),
        (truncated_reply(), None),
        (ModelFault(body=""), None),
        (ModelFault(body="[]"), None),
        (ModelFault(status=408, body="{}"), None),
    ],
    ids=["429", "500", "503", "html 502", "cut", "empty", "list", "408"],
)
async def test_a_temporary_failure_is_retryable(
    open_model: Open, fault: ModelFault, retry_after: float | None
) -> None:
    model = await open_model([fault, RecordedTurn("Back.")])
    with pytest.raises(ModelError) as failed:
        await model.reply(BRIEF, TOOLS)
    assert failed.value.retryable and not isinstance(failed.value, ModelAccessDenied)
    assert failed.value.retry_after == retry_after
    assert (await model.reply(BRIEF, TOOLS)).text == "Back."
