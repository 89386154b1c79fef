"""Reasoning blocks are sent back unchanged, in each provider's format, and only to the model that wrote them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import ModelFault, RecordedModel, RecordedTurn
from patchwright.resolver.errors import ContentFiltered
from patchwright.resolver.llm.chat_completions import extract_reasoning, to_chat_messages
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    ProviderConnection,
    RawToolCall,
    Reply,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from patchwright.resolver.tools.control_tools import build_control_tools
from tests.contracts.test_model import thinks

TOOLS = [tool.spec for tool in build_control_tools()]
BRIEF: tuple[ChatMessage, ...] = (SystemMessage(text="You fix."), UserMessage(text="Issue 7"))

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


def model(endpoint: RecordedModel, name: str, **settings: Any) -> LitellmModel:
    # litellm itself appends /v1/messages to Anthropic's base URL.
    base = endpoint.base_url.removesuffix("/v1") if name.startswith("anthropic/") else endpoint.base_url
    return LitellmModel(
        name, ProviderConnection(base_url=base, api_key=SecretStr("key"), timeout=20), **settings
    )


async def two_turns(
    name: str, turn: RecordedTurn, said_by: str | None = None
) -> tuple[Reply, list[dict[str, Any]]]:
    """Returns the first reply and both requests; the second request names `said_by` as the author of the
    first reply.
    """
    async with RecordedModel([turn, RecordedTurn("Done.")]) as endpoint:
        client = model(endpoint, name)
        reply = await client.reply(BRIEF, TOOLS)
        message = AssistantMessage(
            text=reply.text,
            tool_calls=reply.tool_calls,
            reasoning=reply.reasoning,
            model=said_by or reply.usage.model,
        )
        answers = [ToolMessage(tool_call_id=call.id, text="Noted.") for call in reply.tool_calls]
        assert (await client.reply((*BRIEF, message, *answers), TOOLS)).text == "Done."
        return reply, endpoint.requests


def turn(*reasoning: dict[str, Any]) -> RecordedTurn:
    return RecordedTurn("Let me see.", *thinks("one", "two"), reasoning=reasoning)


async def test_anthropic_gets_its_signed_thinking_before_the_reply() -> None:
    _, (_, second) = await two_turns("anthropic/claude-sonnet-4-5", turn(*SIGNED))
    (text,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert text["content"][:2] == list(SIGNED)
    assert [block["type"] for block in text["content"][2:]] == ["text", "tool_use", "tool_use"]


async def test_openai_gets_its_encrypted_reasoning_before_the_call() -> None:
    reply, (first, second) = await two_turns("openai/responses/recorded", turn(*ENCRYPTED))
    assert (first["store"], first["include"]) == (False, ["reasoning.encrypted_content"])
    assert first["tools"][0]["name"] == TOOLS[0].name
    assert (reply.text, [call.name for call in reply.tool_calls]) == ("Let me see.", ["think", "think"])
    items = second["input"][2:]
    assert [item.get("type", item.get("role")) for item in items] == [
        "reasoning", "reasoning", "assistant", "function_call", "function_call",
        "function_call_output", "function_call_output",
    ]  # fmt: skip
    assert items[:2] == list(ENCRYPTED)
    assert [item["call_id"] for item in items[3:5]] == [item["call_id"] for item in items[5:]]


async def test_deepseek_gets_its_reasoning_as_a_field() -> None:
    _, (_, second) = await two_turns("deepseek/deepseek-chat", turn({"reasoning_content": "The sign."}))
    (text,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert text["reasoning_content"] == "The sign."


async def test_openrouter_gets_its_reasoning_details() -> None:
    _, (_, second) = await two_turns("openrouter/some/model", turn({"reasoning_details": DETAILS}))
    (text,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert text["reasoning_details"] == DETAILS


def test_gemini_gets_its_signature_with_the_signed_call() -> None:
    """No Gemini endpoint is simulated; the test checks what litellm parses from a reply and expects in a
    message.
    """
    signed = SimpleNamespace(provider_specific_fields={"thought_signature": "CsYB"})
    plain = SimpleNamespace(provider_specific_fields=None)
    blocks = extract_reasoning(SimpleNamespace(tool_calls=[plain, signed], provider_specific_fields=None))
    calls = (RawToolCall(id="a", name="x", arguments="{}"), RawToolCall(id="b", name="x", arguments="{}"))
    message = AssistantMessage(text="", tool_calls=calls, reasoning=blocks, model="gemini/g")
    (sent,) = to_chat_messages([message], model_name="gemini/g", supports_vision=False)
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
async def test_another_model_gets_no_reasoning(name: str, blocks: tuple[dict[str, Any], ...]) -> None:
    reply, (_, second) = await two_turns(name, turn(*blocks), said_by="openai/gpt-of-others")
    assert reply.reasoning
    assert "The sign." not in str(second) and "gAAAA" not in str(second) and "EqQB" not in str(second)


async def test_reasoning_survives_the_log() -> None:
    reply, _ = await two_turns("anthropic/claude-sonnet-4-5", turn(*SIGNED))
    assert Reply.model_validate_json(reply.model_dump_json()).reasoning == SIGNED


async def test_the_reasoning_effort_is_sent_in_each_api_format() -> None:
    async with RecordedModel([RecordedTurn("Done.")] * 3) as endpoint:
        for name in ("openai/gpt-5", "openai/responses/recorded", "anthropic/claude-sonnet-4-5"):
            await model(endpoint, name, effort="high").reply(BRIEF, TOOLS)
    chat, responses, anthropic = endpoint.requests
    assert chat["reasoning_effort"] == "high"
    assert responses["reasoning"] == {"effort": "high"}
    assert anthropic["thinking"]["type"] == "enabled"
    assert not any("temperature" in request for request in endpoint.requests)


async def test_a_model_that_rejects_temperature_is_retried_without() -> None:
    refusal = ModelFault(
        status=400,
        body='{"error": {"message": "Unsupported value: \'temperature\' does not support 0 with this model."}}',
    )
    async with RecordedModel([RecordedTurn("One."), RecordedTurn("Two.")]) as endpoint:
        endpoint.add_faults(refusal)
        client = model(endpoint, "openai/recorded")
        assert (await client.reply(BRIEF, TOOLS)).text == "One."
        await client.reply(BRIEF, TOOLS)
    assert [request.get("temperature") for request in endpoint.requests] == [0, None, None]


# Cache breakpoints


def has_cache_breakpoint(content: Any) -> bool:
    return "cache_control" in str(content)


async def test_claude_gets_cache_breakpoints_and_an_unchanged_prompt() -> None:
    _, (first, second) = await two_turns("anthropic/claude-sonnet-4-5", turn())
    assert has_cache_breakpoint(first["system"]) and has_cache_breakpoint(second["system"])
    assert [has_cache_breakpoint(message) for message in first["messages"]] == [True]
    # The last message of the previous request and of this one: the second of two results.
    assert [has_cache_breakpoint(message) for message in second["messages"]] == [True, False, True]
    assert [has_cache_breakpoint(block) for block in second["messages"][-1]["content"]] == [False, True]
    for part in ("tools", "system"):
        assert json.dumps(first[part]) == json.dumps(second[part])
    assert json.dumps(first["messages"]) == json.dumps(second["messages"][:1])


async def test_claudes_cached_tokens_are_counted_and_cheaper() -> None:
    long = (SystemMessage(text="You help. " * 1000), UserMessage(text="Issue 7"))
    async with RecordedModel([RecordedTurn("One."), RecordedTurn("Two.")]) as endpoint:
        client = model(endpoint, "anthropic/claude-sonnet-4-5")
        first, second = [(await client.reply(long, TOOLS)).usage for _ in range(2)]
    assert (first.cached_tokens, first.prompt_tokens) == (0, second.prompt_tokens)
    assert second.cached_tokens > second.prompt_tokens / 2
    assert first.usd is not None and second.usd is not None and second.usd < first.usd / 2


@pytest.mark.parametrize("name", ["openai/recorded", "deepseek/deepseek-chat", "openai/responses/recorded"])
async def test_other_models_get_no_cache_breakpoints(name: str) -> None:
    _, requests = await two_turns(name, turn())
    assert not has_cache_breakpoint(requests)


# Content filters


@pytest.mark.parametrize(
    "name", ["openai/recorded", "openai/responses/recorded", "anthropic/claude-sonnet-4-5"]
)
async def test_a_filtered_reply_is_reported_and_billed(name: str) -> None:
    async with RecordedModel([RecordedTurn("", finish_reason="content_filter")]) as endpoint:
        with pytest.raises(ContentFiltered, match=f"filter blocked the reply of {name}") as filtered:
            await model(endpoint, name).reply(BRIEF, TOOLS)
    assert filtered.value.usage is not None and filtered.value.usage.prompt_tokens > 0
    assert not filtered.value.retryable


@pytest.mark.parametrize("name", ["openai/responses/recorded", "anthropic/claude-sonnet-4-5"])
async def test_a_reply_at_the_output_limit_is_truncated_in_every_api_format(name: str) -> None:
    async with RecordedModel([RecordedTurn("I was abo", finish_reason="length")]) as endpoint:
        reply = await model(endpoint, name).reply(BRIEF, TOOLS)
    assert (reply.text, reply.truncated) == ("I was abo", True)
