"""The first request of a process, which is sent while litellm is being imported."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn, rate_limited, truncated_reply
from patchwright.resolver.errors import ModelBusy, ModelError
from patchwright.resolver.llm.early_request import EarlyRequest, predict_request
from patchwright.resolver.llm.litellm import LitellmModel, preload_litellm
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    ProviderConnection,
    Reply,
    SystemMessage,
    ToolSpec,
    UserMessage,
)
from patchwright.resolver.tools.control_tools import build_control_tools

TOOLS = [tool.spec for tool in build_control_tools()]
PROMPTS: list[ChatMessage] = [SystemMessage(text="Fix it, naïvely."), UserMessage(text="The issue.")]
PREDICTED = ("openai/qwen3-coder", "anthropic/claude-sonnet-5", "anthropic/claude-sonnet-4-5")


def connect(endpoint: RecordedModel, name: str) -> ProviderConnection:
    url = endpoint.base_url.removesuffix("/v1") if name.startswith("anthropic/") else endpoint.base_url
    return ProviderConnection(base_url=url, api_key=SecretStr("key"), timeout=20)


async def reply_early(
    endpoint: RecordedModel,
    name: str,
    predicted_tools: list[ToolSpec] = TOOLS,
) -> Reply:
    """Predicts the request with `predicted_tools`, and then has litellm send the one with TOOLS."""
    connection = connect(endpoint, name)
    request = predict_request(name, connection, PROMPTS, predicted_tools, {})
    assert request is not None
    async with EarlyRequest(request, connection) as early:
        await early.wait_until_sent()
        model = LitellmModel(name, connection)
        return await model._reply(await preload_litellm(), PROMPTS, TOOLS, early)


@pytest.mark.parametrize("messages", [PROMPTS, [*PROMPTS, UserMessage(text="A comment.")]])
@pytest.mark.parametrize("tools", [TOOLS, []])
@pytest.mark.parametrize("name", PREDICTED)
async def test_the_predicted_request_is_the_one_that_litellm_sends(
    name: str, tools: list[ToolSpec], messages: list[ChatMessage]
) -> None:
    async with RecordedModel([RecordedTurn("Early."), RecordedTurn("Late.")]) as endpoint:
        connection = connect(endpoint, name)
        request = predict_request(name, connection, messages, tools, {})
        await LitellmModel(name, connection)._reply(await preload_litellm(), messages, tools)
        assert request is not None and endpoint.requests == [request.body]


@pytest.mark.parametrize("name", PREDICTED)
async def test_litellm_gets_the_response_to_the_early_request(name: str) -> None:
    async with RecordedModel([RecordedTurn("Early."), RecordedTurn("Late.")]) as endpoint:
        reply = await reply_early(endpoint, name)
        assert (reply.text, len(endpoint.requests)) == ("Early.", 1)
        assert reply.usage.prompt_tokens > 0


async def test_a_conversation_is_not_paid_for_twice_if_litellm_adds_parameters() -> None:
    async with RecordedModel([RecordedTurn("Early."), RecordedTurn("Late.")]) as endpoint:
        reply = await reply_early(endpoint, "openai/qwen3-coder", predicted_tools=[])
        assert (reply.text, len(endpoint.requests)) == ("Early.", 1)


async def test_a_request_to_another_address_goes_to_the_provider() -> None:
    async with RecordedModel([RecordedTurn("Early."), RecordedTurn("Late.")]) as endpoint:
        connection = connect(endpoint, "openai/qwen3-coder")
        request = predict_request("openai/qwen3-coder", connection, PROMPTS, TOOLS, {})
        assert request is not None
        other = replace(request, url=f"{endpoint.base_url}/chat/completions?other")
        async with EarlyRequest(other, connection) as early:
            await early.wait_until_sent()
            model = LitellmModel("openai/qwen3-coder", connection)
            await model._reply(await preload_litellm(), PROMPTS, TOOLS, early)
        assert len(endpoint.requests) == 2


async def test_errors_of_the_early_request_are_reported_as_always() -> None:
    async with RecordedModel([RecordedTurn("Late.")]) as endpoint:
        endpoint.add_faults(rate_limited(7), truncated_reply())
        with pytest.raises(ModelBusy) as busy:
            await reply_early(endpoint, "openai/qwen3-coder")
        assert busy.value.retry_after == 7
        with pytest.raises(ModelError, match="the response ended early after") as truncated:
            await reply_early(endpoint, "openai/qwen3-coder")
        assert truncated.value.usage is not None


@pytest.mark.parametrize(
    ("name", "connection", "environ"),
    [
        ("openai/gpt-5", ProviderConnection(base_url="http://x/v1", api_key=SecretStr("key")), {}),
        ("openai/qwen3-coder", ProviderConnection(api_key=SecretStr("key")), {}),
        ("openai/qwen3-coder", ProviderConnection(base_url="http://x/v1"), {"ANTHROPIC_API_KEY": "key"}),
        ("gemini/gemini-2.5-pro", ProviderConnection(api_key=SecretStr("key")), {}),
        ("anthropic/unknown", ProviderConnection(api_key=SecretStr("key")), {}),
        ("anthropic/claude-sonnet-5", ProviderConnection(), {}),
        ("anthropic/claude-sonnet-5", ProviderConnection(api_key=SecretStr("sk-ant-oat01-x")), {}),
        (
            "anthropic/claude-sonnet-5",
            ProviderConnection(api_key=SecretStr("key")),
            {"ANTHROPIC_BASE_URL": "http://x"},
        ),
    ],
)
def test_a_request_that_only_litellm_knows_is_not_predicted(
    name: str, connection: ProviderConnection, environ: dict[str, str]
) -> None:
    assert predict_request(name, connection, PROMPTS, TOOLS, environ) is None


def test_only_conversations_of_text_without_replies_are_predicted() -> None:
    connection = ProviderConnection(api_key=SecretStr("key"))
    name = "anthropic/claude-sonnet-5"
    replied = [*PROMPTS, AssistantMessage(text="Hello.", model=name), UserMessage(text="Go on.")]
    assert predict_request(name, connection, replied, TOOLS, {}) is None
    assert predict_request(name, connection, PROMPTS, TOOLS, {}) is not None


PROGRAM = """
import asyncio, sys
from pydantic import SecretStr
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import ProviderConnection, SystemMessage, UserMessage
def check(number, request):
    print("openai" in sys.modules)
async def main():
    async with RecordedModel([RecordedTurn("Hello.")], on_request=check) as endpoint:
        connection = ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr("key"))
        model = LitellmModel("openai/recorded", connection)
        assert model.sends_early and model.context_window is None and not model.supports_vision
        assert "litellm" not in sys.modules
        for _ in range(2):
            print((await model.reply([SystemMessage(text="Help."), UserMessage(text="Hi")], [])).text)
asyncio.run(main())
"""


@pytest.mark.slow
def test_the_first_request_is_sent_before_litellm_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False", "Hello.", "True", "Hello."]
    assert not [line for line in done.stderr.splitlines() if "never awaited" in line or "Unclosed" in line]
