"""Several models as one: who goes on when one fails, who is asked again, and what it all cost."""

import logging
from decimal import Decimal

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Turn, context_overflow, rate_limited, server_error
from resolver.errors import ContentFiltered, ContextOverflow, ModelBusy, ModelError, ModelRefused, QuotaSpent
from resolver.events import Usage
from resolver.llm.fallback import Fallback
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import FromModel, FromTool, FromUser, Message, Reply, System
from resolver.llm.patient import Patient
from resolver.llm.router import Models, by_pictures
from resolver.tools.talk import talk_tools
from tests.contracts.test_model import thinks
from tests.resolver.llm.test_pictures import PIXEL
from tests.resolver.scripted import Line, Scripted

BRIEF: tuple[Message, ...] = (System(text="You mend."), FromUser(text="Issue 7"))
TOOLS = [tool.spec for tool in talk_tools()]
BILLED = Usage(model="one", prompt_tokens=100, completion_tokens=1, usd=Decimal("0.25"), seconds=1)


def said(by: str) -> Reply:
    usage = Usage(model=by, prompt_tokens=10, completion_tokens=2, usd=Decimal("0.5"), seconds=1)
    return Reply(text=f"I am {by}.", calls=(), usage=usage)


def chain(*scripts: list[Line]) -> tuple[Fallback, list[Scripted]]:
    models = [
        Scripted(script, name=name) for name, script in zip(("one", "two", "three"), scripts, strict=False)
    ]
    return Fallback(models), models


@pytest.mark.parametrize(
    "failure",
    [
        ModelError("It failed."),
        ModelError("No such parameter.", retryable=False),
        ModelBusy("Busy.", retry_after=3600),
        ModelRefused("No such key."),
        QuotaSpent("No credit."),
        ContentFiltered("Held back."),
    ],
)
async def test_the_next_one_goes_on_and_the_operator_is_told(
    failure: ModelError, caplog: pytest.LogCaptureFixture
) -> None:
    fallback, _ = chain([failure], [said("two")])
    with caplog.at_level(logging.WARNING):
        assert await fallback.reply(BRIEF, ()) == said("two")
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["from_model"], record.__dict__["to_model"]) == (
        "model fell back",
        "one",
        "two",
    )


async def test_a_conversation_stays_with_the_model_that_spoke_last_in_it() -> None:
    fallback, (one, two) = chain([ModelError("x"), said("one")], [said("two"), said("two")])
    spoken = FromModel(text="I am two.", model="two")
    assert (await fallback.reply(BRIEF, ())).text == "I am two."
    assert (await fallback.reply((*BRIEF, spoken), ())).text == "I am two."
    assert (await fallback.reply(BRIEF, ())).text == "I am one.", "another conversation begins with the first"
    assert (len(one.asked), len(two.asked)) == (2, 2)


async def test_behind_the_last_comes_the_first_again() -> None:
    fallback, _ = chain([said("one")], [ModelError("x")])
    assert await fallback.reply((*BRIEF, FromModel(text="", model="two")), ()) == said("one")


async def test_a_prompt_that_is_too_long_is_not_handed_on() -> None:
    fallback, (_, two) = chain([ContextOverflow("Too long.")], [said("two")])
    with pytest.raises(ContextOverflow, match=r"^Too long\.$"):
        await fallback.reply(BRIEF, ())
    assert two.asked == []


async def test_when_all_fail_each_is_named() -> None:
    fallback, _ = chain([ModelRefused("No key.")], [ModelError("Down.", usage=BILLED)])
    with pytest.raises(ModelError, match=r"^None of 2 models answers\. No key\. Down\.$") as failed:
        await fallback.reply(BRIEF, ())
    assert not isinstance(failed.value, ModelRefused)
    assert failed.value.usage == BILLED


async def test_when_all_refuse_the_operator_must_act() -> None:
    fallback, _ = chain([ModelRefused("No key.")], [QuotaSpent("No credit.")])
    with pytest.raises(ModelRefused):
        await fallback.reply(BRIEF, ())


async def test_what_a_failure_cost_is_counted_with_the_reply() -> None:
    fallback, _ = chain([ContentFiltered("Held back.", usage=BILLED)], [said("two")])
    usage = (await fallback.reply(BRIEF, ())).usage
    assert usage == Usage(model="two", prompt_tokens=110, completion_tokens=3, usd=Decimal("0.75"), seconds=2)


async def test_what_each_try_cost_is_counted_with_the_last() -> None:
    async def at_once(_: float) -> None:
        pass

    failures = [ModelError("Cut.", usage=BILLED), ModelError("Cut.", usage=BILLED)]
    reply = await Patient(Scripted([*failures, said("one")]), sleep=at_once).reply(BRIEF, ())
    assert reply.usage.usd == Decimal("1.00")
    with pytest.raises(ModelError) as failed:
        await Patient(Scripted([*failures, ModelError("No.", retryable=False)]), sleep=at_once).reply(
            BRIEF, ()
        )
    assert failed.value.usage is not None and failed.value.usage.usd == Decimal("0.50")


async def test_over_http_a_second_provider_goes_on_without_the_reasoning_of_the_first() -> None:
    signed = {"type": "thinking", "thinking": "The sign.", "signature": "EqQB"}
    first = Turn("Look.", *thinks("x"), reasoning=(signed,))
    async with Endpoint([first]) as one, Endpoint([Turn("-"), Turn("Go on.")]) as two:
        key = SecretStr("key")
        claude = LitellmModel(
            "anthropic/claude-sonnet-4-5", base_url=one.base_url.removesuffix("/v1"), api_key=key
        )
        other = LitellmModel("openai/other", base_url=two.base_url, api_key=key)
        fallback = Fallback([Patient(claude, budget=0.01), Patient(other)])
        reply = await fallback.reply(BRIEF, TOOLS)
        assert reply.reasoning == (signed,)
        one.fail(server_error(529), server_error(529))
        from_model = FromModel(
            text=reply.text, calls=reply.calls, reasoning=reply.reasoning, model=reply.usage.model
        )
        again = (*BRIEF, from_model, FromTool(call=reply.calls[0].id, text="Noted."))
        went_on = await fallback.reply(again, TOOLS)
    assert (went_on.text, went_on.usage.model) == ("Go on.", "openai/other")
    assert "EqQB" not in str(two.requests) and "The sign." not in str(two.requests)


async def test_over_http_an_overflow_and_a_limit_are_told_apart() -> None:
    async with Endpoint([Turn("Hello.")]) as endpoint:
        asked = LitellmModel("openai/recorded", base_url=endpoint.base_url, api_key=SecretStr("key"))
        endpoint.fail(rate_limited(7), context_overflow())
        with pytest.raises(ModelBusy) as busy:
            await asked.reply(BRIEF, ())
        assert busy.value.retry_after == 7
        with pytest.raises(ContextOverflow):
            await asked.reply(BRIEF, ())


# Router


async def test_conversations_with_pictures_go_to_the_model_that_sees() -> None:
    blind, seeing = (
        Scripted([said("blind")], name="blind"),
        Scripted([said("seeing")], name="seeing", sees=True),
    )
    router = by_pictures(blind, seeing)
    assert (router.name, router.sees) == ("blind", True)
    shown = (*BRIEF, FromUser(text="This.", pictures=(PIXEL,)), FromUser(text="Go on."))
    assert (await router.reply(shown, ())).usage.model == "seeing"
    assert (await router.reply(BRIEF, ())).usage.model == "blind"


def test_what_has_no_model_of_its_own_is_done_by_the_one_that_acts() -> None:
    act, condense = Scripted([]), Scripted([])
    assert Models.of(act, {"condense": condense}) == Models(act, condense, act, act, act)
