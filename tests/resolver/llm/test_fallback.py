"""Fallback between models: which one replies next, what is raised, and how the cost is counted."""

import logging
from decimal import Decimal

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import (
    RecordedModel,
    RecordedTurn,
    context_overflow,
    rate_limited,
    server_error,
)
from patchwright.resolver.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAccessDenied,
    ModelBusy,
    ModelError,
    QuotaExceeded,
)
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.fallback import FallbackModel
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    ProviderConnection,
    Reply,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from patchwright.resolver.llm.retry import RetryingModel
from patchwright.resolver.llm.router import RunModels, route_by_images
from patchwright.resolver.tools.control_tools import build_control_tools
from tests.contracts.test_model import thinks
from tests.resolver.llm.test_chat_completions import PIXEL
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

BRIEF: tuple[ChatMessage, ...] = (SystemMessage(text="You fix."), UserMessage(text="Issue 7"))
TOOLS = [tool.spec for tool in build_control_tools()]
BILLED = ReplyUsage(model="one", prompt_tokens=100, completion_tokens=1, usd=Decimal("0.25"), seconds=1)


def make_reply(by: str) -> Reply:
    usage = ReplyUsage(model=by, prompt_tokens=10, completion_tokens=2, usd=Decimal("0.5"), seconds=1)
    return Reply(text=f"I am {by}.", tool_calls=(), usage=usage)


def chain(*scripts: list[ScriptLine]) -> tuple[FallbackModel, list[ScriptedModel]]:
    models = [
        ScriptedModel(script, name=name)
        for name, script in zip(("one", "two", "three"), scripts, strict=False)
    ]
    return FallbackModel(models), models


@pytest.mark.parametrize(
    "failure",
    [
        ModelError("It failed."),
        ModelError("No such parameter.", retryable=False),
        ModelBusy("Busy.", retry_after=3600),
        ModelAccessDenied("No such key."),
        QuotaExceeded("No credit."),
        ContentFiltered("Held back."),
    ],
)
async def test_the_next_model_replies_and_the_fallback_is_logged(
    failure: ModelError, caplog: pytest.LogCaptureFixture
) -> None:
    fallback, _ = chain([failure], [make_reply("two")])
    with caplog.at_level(logging.WARNING):
        assert await fallback.reply(BRIEF, ()) == make_reply("two")
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["from_model"], record.__dict__["to_model"]) == (
        "model fell back",
        "one",
        "two",
    )


async def test_a_conversation_stays_with_the_model_that_replied_last() -> None:
    fallback, (one, two) = chain([ModelError("x"), make_reply("one")], [make_reply("two"), make_reply("two")])
    spoken = AssistantMessage(text="I am two.", model="two")
    assert (await fallback.reply(BRIEF, ())).text == "I am two."
    assert (await fallback.reply((*BRIEF, spoken), ())).text == "I am two."
    assert (await fallback.reply(BRIEF, ())).text == "I am one.", "another conversation begins with the first"
    assert (len(one.requests), len(two.requests)) == (2, 2)


async def test_the_chain_wraps_around_to_the_first_model() -> None:
    fallback, _ = chain([make_reply("one")], [ModelError("x")])
    assert await fallback.reply((*BRIEF, AssistantMessage(text="", model="two")), ()) == make_reply("one")


async def test_a_context_overflow_does_not_fall_back() -> None:
    fallback, (_, two) = chain([ContextOverflow("Too long.")], [make_reply("two")])
    with pytest.raises(ContextOverflow, match=r"^Too long\.$"):
        await fallback.reply(BRIEF, ())
    assert two.requests == []


async def test_the_error_names_every_failed_model() -> None:
    fallback, _ = chain([ModelAccessDenied("No key.")], [ModelError("Down.", usage=BILLED)])
    with pytest.raises(ModelError, match=r"^None of 2 models replied\. No key\. Down\.$") as failed:
        await fallback.reply(BRIEF, ())
    assert not isinstance(failed.value, ModelAccessDenied)
    assert failed.value.usage == BILLED


async def test_access_denied_by_all_models_is_raised_as_such() -> None:
    fallback, _ = chain([ModelAccessDenied("No key.")], [QuotaExceeded("No credit.")])
    with pytest.raises(ModelAccessDenied):
        await fallback.reply(BRIEF, ())


async def test_the_cost_of_failures_is_added_to_the_reply() -> None:
    fallback, _ = chain([ContentFiltered("Held back.", usage=BILLED)], [make_reply("two")])
    usage = (await fallback.reply(BRIEF, ())).usage
    assert usage == ReplyUsage(
        model="two", prompt_tokens=110, completion_tokens=3, usd=Decimal("0.75"), seconds=2
    )


async def test_the_cost_of_each_attempt_is_added_to_the_last() -> None:
    async def at_once(_: float) -> None:
        pass

    failures = [ModelError("Cut.", usage=BILLED), ModelError("Cut.", usage=BILLED)]
    reply = await RetryingModel(ScriptedModel([*failures, make_reply("one")]), sleep=at_once).reply(BRIEF, ())
    assert reply.usage.usd == Decimal("1.00")
    with pytest.raises(ModelError) as failed:
        await RetryingModel(
            ScriptedModel([*failures, ModelError("No.", retryable=False)]), sleep=at_once
        ).reply(BRIEF, ())
    assert failed.value.usage is not None and failed.value.usage.usd == Decimal("0.50")


async def test_over_http_the_fallback_provider_gets_no_foreign_reasoning() -> None:
    signed = {"type": "thinking", "thinking": "The sign.", "signature": "EqQB"}
    first = RecordedTurn("Look.", *thinks("x"), reasoning=(signed,))
    async with (
        RecordedModel([first]) as one,
        RecordedModel([RecordedTurn("-"), RecordedTurn("Go on.")]) as two,
    ):
        key = SecretStr("key")
        claude = LitellmModel(
            "anthropic/claude-sonnet-4-5",
            ProviderConnection(base_url=one.base_url.removesuffix("/v1"), api_key=key),
        )
        other = LitellmModel("openai/other", ProviderConnection(base_url=two.base_url, api_key=key))
        fallback = FallbackModel([RetryingModel(claude, max_seconds=0.01), RetryingModel(other)])
        reply = await fallback.reply(BRIEF, TOOLS)
        assert reply.reasoning == (signed,)
        one.add_faults(server_error(529), server_error(529))
        from_model = AssistantMessage(
            text=reply.text, tool_calls=reply.tool_calls, reasoning=reply.reasoning, model=reply.usage.model
        )
        again = (*BRIEF, from_model, ToolMessage(tool_call_id=reply.tool_calls[0].id, text="Noted."))
        went_on = await fallback.reply(again, TOOLS)
    assert (went_on.text, went_on.usage.model) == ("Go on.", "openai/other")
    assert "EqQB" not in str(two.requests) and "The sign." not in str(two.requests)


async def test_over_http_overflow_and_rate_limit_are_distinguished() -> None:
    async with RecordedModel([RecordedTurn("Hello.")]) as endpoint:
        client = LitellmModel(
            "openai/recorded", ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr("key"))
        )
        endpoint.add_faults(rate_limited(7), context_overflow())
        with pytest.raises(ModelBusy) as busy:
            await client.reply(BRIEF, ())
        assert busy.value.retry_after == 7
        with pytest.raises(ContextOverflow):
            await client.reply(BRIEF, ())


# Router


async def test_conversations_with_images_go_to_the_vision_model() -> None:
    blind, seeing = (
        ScriptedModel([make_reply("blind")], name="blind"),
        ScriptedModel([make_reply("seeing")], name="seeing", sees=True),
    )
    router = route_by_images(blind, seeing)
    assert (router.name, router.supports_vision) == ("blind", True)
    shown = (*BRIEF, UserMessage(text="This.", images=(PIXEL,)), UserMessage(text="Go on."))
    assert (await router.reply(shown, ())).usage.model == "seeing"
    assert (await router.reply(BRIEF, ())).usage.model == "blind"


def test_purposes_without_a_model_use_the_default_model() -> None:
    act, condense = ScriptedModel([]), ScriptedModel([])
    assert RunModels.with_default(act, {"condense": condense}) == RunModels(act, condense, act, act, act)
