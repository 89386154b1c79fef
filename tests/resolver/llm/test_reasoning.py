"""Reasoning comes back as it was given, in each provider's own form, and only to the model that gave it."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Fault, Turn
from resolver.errors import ContentFiltered
from resolver.llm.chat import reasoning, written
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import FromModel, FromTool, FromUser, Message, Reply, System, ToolCall
from resolver.tools.talk import talk_tools
from tests.contracts.test_model import thinks

TOOLS = [tool.spec for tool in talk_tools()]
BRIEF: tuple[Message, ...] = (System(text="You mend."), FromUser(text="Issue 7"))

SIGNED = (
    {"type": "thinking", "thinking": "The sign is wrong.", "signature": "EqQBCgIYAhIM/+=="},
    {"type": "redacted_thinking", "data": "EmwKAhgBEgy3"},
)
ENCRYPTED = (
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "The sign."}],
        "encrypted_content": "gAAAAABo+/=",
    },
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAAABp"},
)
DETAILS = [{"type": "reasoning.encrypted", "data": "gAAA", "id": "r", "format": "x", "index": 0}]


def model(endpoint: Endpoint, name: str, **settings: Any) -> LitellmModel:
    # litellm adds /v1/messages to Anthropic's base itself.
    base = endpoint.base_url.removesuffix("/v1") if name.startswith("anthropic/") else endpoint.base_url
    return LitellmModel(name, base_url=base, api_key=SecretStr("key"), timeout=20, **settings)


async def two_turns(name: str, turn: Turn, said_by: str | None = None) -> tuple[Reply, list[dict[str, Any]]]:
    """The first reply, and both requests; `said_by` is whom the second request names as its author."""
    async with Endpoint([turn, Turn("Done.")]) as endpoint:
        asked = model(endpoint, name)
        reply = await asked.reply(BRIEF, TOOLS)
        said = FromModel(
            text=reply.text, calls=reply.calls, reasoning=reply.reasoning, model=said_by or reply.usage.model
        )
        answers = [FromTool(call=call.id, text="Noted.") for call in reply.calls]
        assert (await asked.reply((*BRIEF, said, *answers), TOOLS)).text == "Done."
        return reply, endpoint.requests


def turn(*reasoning: dict[str, Any]) -> Turn:
    return Turn("Let me see.", *thinks("one", "two"), reasoning=reasoning)


async def test_anthropic_gets_its_signed_thinking_before_what_it_led_to() -> None:
    _, (_, second) = await two_turns("anthropic/claude-sonnet-4-5", turn(*SIGNED))
    (said,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert said["content"][:2] == list(SIGNED)
    assert [block["type"] for block in said["content"][2:]] == ["text", "tool_use", "tool_use"]


async def test_openai_gets_its_encrypted_reasoning_before_the_call_it_led_to() -> None:
    reply, (first, second) = await two_turns("openai/responses/recorded", turn(*ENCRYPTED))
    assert (first["store"], first["include"]) == (False, ["reasoning.encrypted_content"])
    assert first["tools"][0]["name"] == TOOLS[0].name
    assert (reply.text, [call.name for call in reply.calls]) == ("Let me see.", ["think", "think"])
    items = second["input"][2:]
    assert [item.get("type", item.get("role")) for item in items] == [
        "reasoning", "reasoning", "assistant", "function_call", "function_call",
        "function_call_output", "function_call_output",
    ]  # fmt: skip
    assert items[:2] == list(ENCRYPTED)
    assert [item["call_id"] for item in items[3:5]] == [item["call_id"] for item in items[5:]]


async def test_deepseek_gets_its_reasoning_as_a_field() -> None:
    _, (_, second) = await two_turns("deepseek/deepseek-chat", turn({"reasoning_content": "The sign."}))
    (said,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert said["reasoning_content"] == "The sign."


async def test_openrouter_gets_its_reasoning_details() -> None:
    _, (_, second) = await two_turns("openrouter/some/model", turn({"reasoning_details": DETAILS}))
    (said,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert said["reasoning_details"] == DETAILS


def test_gemini_gets_its_signature_with_the_call_that_it_signs() -> None:
    """Its endpoint is not spoken here: what litellm makes of a reply, and reads in a message, is."""
    signed = SimpleNamespace(provider_specific_fields={"thought_signature": "CsYB"})
    plain = SimpleNamespace(provider_specific_fields=None)
    blocks = reasoning(SimpleNamespace(tool_calls=[plain, signed], provider_specific_fields=None))
    calls = (ToolCall(id="a", name="x", arguments="{}"), ToolCall(id="b", name="x", arguments="{}"))
    said = FromModel(text="", calls=calls, reasoning=blocks, model="gemini/g")
    (sent,) = written([said], reader="gemini/g", sees=False)
    assert [call.get("provider_specific_fields") for call in sent["tool_calls"]] == [
        None,
        {"thought_signature": "CsYB"},
    ]


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("anthropic/claude-sonnet-4-5", SIGNED),
        ("openai/responses/recorded", ENCRYPTED),
        ("deepseek/deepseek-chat", ({"reasoning_content": "The sign."},)),
    ],
)
async def test_another_model_gets_none_of_it(name: str, blocks: tuple[dict[str, Any], ...]) -> None:
    reply, (_, second) = await two_turns(name, turn(*blocks), said_by="openai/gpt-of-others")
    assert reply.reasoning
    assert "The sign." not in str(second) and "gAAAA" not in str(second) and "EqQB" not in str(second)


async def test_reasoning_survives_the_log() -> None:
    reply, _ = await two_turns("anthropic/claude-sonnet-4-5", turn(*SIGNED))
    assert Reply.model_validate_json(reply.model_dump_json()).reasoning == SIGNED


async def test_how_much_a_model_thinks_is_asked_for_in_its_own_words() -> None:
    async with Endpoint([Turn("Done.")] * 3) as endpoint:
        for name in ("openai/gpt-5", "openai/responses/recorded", "anthropic/claude-sonnet-4-5"):
            await model(endpoint, name, effort="high").reply(BRIEF, TOOLS)
    chat, responses, anthropic = endpoint.requests
    assert chat["reasoning_effort"] == "high"
    assert responses["reasoning"] == {"effort": "high"}
    assert anthropic["thinking"]["type"] == "enabled"
    assert not any("temperature" in request for request in endpoint.requests)


async def test_a_model_that_knows_no_temperature_is_asked_again_without() -> None:
    refusal = Fault(
        status=400,
        body='{"error": {"message": "Unsupported value: \'temperature\' does not support 0 with this model."}}',
    )
    async with Endpoint([Turn("One."), Turn("Two.")]) as endpoint:
        endpoint.fail(refusal)
        asked = model(endpoint, "openai/recorded")
        assert (await asked.reply(BRIEF, TOOLS)).text == "One."
        await asked.reply(BRIEF, TOOLS)
    assert [request.get("temperature") for request in endpoint.requests] == [0, None, None]


# Cache marks


def marked(content: Any) -> bool:
    return "cache_control" in str(content)


async def test_claude_is_told_what_to_keep_and_the_prompt_stays_the_same() -> None:
    _, (first, second) = await two_turns("anthropic/claude-sonnet-4-5", turn())
    assert marked(first["system"]) and marked(second["system"])
    assert [marked(message) for message in first["messages"]] == [True]
    # What was last when it was asked before, and what is last now: the second of two results.
    assert [marked(message) for message in second["messages"]] == [True, False, True]
    assert [marked(block) for block in second["messages"][-1]["content"]] == [False, True]


async def test_what_claude_kept_is_counted_and_cheaper() -> None:
    long = (System(text="You mend. " * 1000), FromUser(text="Issue 7"))
    async with Endpoint([Turn("One."), Turn("Two.")]) as endpoint:
        asked = model(endpoint, "anthropic/claude-sonnet-4-5")
        first, second = [(await asked.reply(long, TOOLS)).usage for _ in range(2)]
    assert (first.cached_tokens, first.prompt_tokens) == (0, second.prompt_tokens)
    assert second.cached_tokens > second.prompt_tokens / 2
    assert first.usd is not None and second.usd is not None and second.usd < first.usd / 2


@pytest.mark.parametrize("name", ["openai/recorded", "deepseek/deepseek-chat", "openai/responses/recorded"])
async def test_others_are_not_told(name: str) -> None:
    _, requests = await two_turns(name, turn())
    assert not marked(requests)


# What a filter holds back


@pytest.mark.parametrize(
    "name", ["openai/recorded", "openai/responses/recorded", "anthropic/claude-sonnet-4-5"]
)
async def test_a_reply_that_a_filter_held_back_is_told_and_counted(name: str) -> None:
    async with Endpoint([Turn("", finish_reason="content_filter")]) as endpoint:
        with pytest.raises(ContentFiltered, match=f"filter holds back the reply of {name}") as filtered:
            await model(endpoint, name).reply(BRIEF, TOOLS)
    assert filtered.value.usage is not None and filtered.value.usage.prompt_tokens > 0
    assert not filtered.value.retryable


@pytest.mark.parametrize("name", ["openai/responses/recorded", "anthropic/claude-sonnet-4-5"])
async def test_a_reply_at_the_output_limit_says_so_in_every_dialect(name: str) -> None:
    async with Endpoint([Turn("I was abo", finish_reason="length")]) as endpoint:
        reply = await model(endpoint, name).reply(BRIEF, TOOLS)
    assert (reply.text, reply.truncated) == ("I was abo", True)
