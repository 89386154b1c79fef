"""The litellm client against a real HTTP endpoint."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import ModelFault, RecordedModel, RecordedTurn, html_page
from patchwright.resolver.errors import ModelAccessDenied, ModelError, ModelUnreachable, ToolsUnsupported
from patchwright.resolver.llm.litellm import LitellmModel, preload_litellm
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ProviderConnection,
    RawToolCall,
    Reply,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from patchwright.resolver.llm.retry import RetryingModel
from patchwright.resolver.tools.control_tools import build_control_tools

KEY = "sk-test-0123456789"
TOOLS = [tool.spec for tool in build_control_tools()]


@pytest.fixture
async def endpoint() -> AsyncIterator[RecordedModel]:
    async with RecordedModel([RecordedTurn("Hello."), RecordedTurn("Again.")], key=KEY) as endpoint:
        yield endpoint


def model(
    endpoint: RecordedModel, name: str = "openai/recorded", *, key: str = KEY, timeout: float = 20
) -> LitellmModel:
    return LitellmModel(
        name, ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr(key), timeout=timeout)
    )


async def ask(model: LitellmModel) -> Reply:
    return await model.reply([SystemMessage(text="You fix."), UserMessage(text="Issue 7")], TOOLS)


def completion(message: Any) -> ModelFault:
    """Returns a response with this message and a usage of 10 and 5 tokens."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return ModelFault(body=json.dumps(body))


async def test_the_request_is_a_chat_completion_with_tools_and_paired_results(
    endpoint: RecordedModel,
) -> None:
    calls = (RawToolCall(id="a", name="think", arguments='{"thought":"x"}'),)
    await model(endpoint).reply(
        [
            SystemMessage(text="You fix."),
            UserMessage(text="Issue 7"),
            AssistantMessage(text="", tool_calls=calls),
            ToolMessage(tool_call_id="a", text="Noted."),
        ],
        TOOLS,
    )
    (request,) = endpoint.requests
    assert request["messages"] == [
        {"role": "system", "content": "You fix."},
        {"role": "user", "content": "Issue 7"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "think", "arguments": '{"thought":"x"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Noted."},
    ]
    assert request["tools"] == [spec.to_openai_tool() for spec in TOOLS]
    assert (request["model"], request["temperature"]) == ("recorded", 0)
    assert not request.get("stream")


@pytest.mark.parametrize(
    "message",
    [
        None,
        {"role": "assistant", "content": None, "tool_calls": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": None}],
        },
        {"role": "assistant", "content": [{"kind": "surprise"}]},
    ],
    ids=["no message", "calls are text", "no function", "content is a list"],
)
async def test_a_reply_that_litellm_cannot_parse_is_billed_and_empty(
    endpoint: RecordedModel, message: Any
) -> None:
    endpoint.add_faults(completion(message))
    reply = await ask(model(endpoint))
    assert (reply.text, reply.tool_calls) == ("", ())
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 5)


async def test_lone_surrogates_do_not_reach_the_log(endpoint: RecordedModel) -> None:
    function = {"name": "th\ud800ink", "arguments": '{"thought": "\udfff"}'}
    call = {"id": "a\ud800", "type": "function", "function": function}
    endpoint.add_faults(completion({"role": "assistant", "content": "a\ud800b", "tool_calls": [call]}))
    reply = await ask(model(endpoint))
    assert reply.text == "a?b"
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


async def test_cached_tokens_are_counted(endpoint: RecordedModel) -> None:
    client = model(endpoint)
    long = [SystemMessage(text="You help. " * 400), UserMessage(text="Issue 7")]
    assert (await client.reply(long, TOOLS)).usage.cached_tokens == 0
    again = (await client.reply(long, TOOLS)).usage
    assert 0 < again.cached_tokens <= again.prompt_tokens
    assert again.seconds > 0


async def test_a_known_model_has_a_price_and_an_unknown_one_has_none(endpoint: RecordedModel) -> None:
    known = await ask(model(endpoint, "openai/gpt-4o"))
    assert known.usage.usd is not None and Decimal(0) < known.usage.usd < Decimal("0.1")
    assert (await ask(model(endpoint))).usage.usd is None


async def test_a_model_missing_in_litellms_table_has_no_price_and_is_not_free(
    endpoint: RecordedModel,
) -> None:
    assert (await ask(model(endpoint, "openai/gpt-9-turbo"))).usage.usd is None


async def test_a_name_without_a_provider_is_rejected_with_the_fix(endpoint: RecordedModel) -> None:
    with pytest.raises(
        ModelAccessDenied, match="`gpt-of-mine` names no provider: write PATCHWRIGHT_MODEL as"
    ):
        await ask(model(endpoint, "gpt-of-mine"))
    assert endpoint.requests == []


async def test_a_rejected_key_is_not_repeated_in_the_error(endpoint: RecordedModel) -> None:
    with pytest.raises(ModelAccessDenied) as refused:
        await ask(model(endpoint, key="sk-wrong-987654321"))
    assert str(refused.value) == (
        "The provider of openai/recorded rejects the API key (401): "
        "check PATCHWRIGHT_MODEL_API_KEY, or, if no key is set or saved, the provider's own variable."
    )


@pytest.mark.parametrize(
    "text",
    ["You exceeded your current quota, please check your plan and billing details.", "Top up your account."],
)
async def test_an_account_without_credit_is_access_denied(endpoint: RecordedModel, text: str) -> None:
    endpoint.add_faults(
        ModelFault(status=429, body=json.dumps({"error": {"message": text, "code": "insufficient_quota"}}))
    )
    with pytest.raises(ModelAccessDenied, match=f"has no credit: {text}"):
        await ask(model(endpoint))


async def test_a_base_url_without_its_path_is_explained(endpoint: RecordedModel) -> None:
    wrong = LitellmModel(
        "openai/recorded",
        ProviderConnection(base_url=endpoint.base_url.removesuffix("/v1"), api_key=SecretStr(KEY)),
    )
    for each, is_explained in ((wrong, True), (model(endpoint), False)):
        endpoint.add_faults(ModelFault(status=404, body='{"detail": "Not Found"}'))
        with pytest.raises(
            ModelAccessDenied, match="check PATCHWRIGHT_MODEL and PATCHWRIGHT_MODEL_"
        ) as failed:
            await ask(each)
        assert ("(the URL usually ends in /v1)" in str(failed.value)) == is_explained


@pytest.mark.parametrize(
    ("fault", "content"),
    [
        (html_page(), "a web page instead of JSON"),
        (ModelFault(status=200, body='{"status": "ok"}'), "JSON that is not a model's reply"),
    ],
)
async def test_the_response_of_another_service_is_explained_before_the_first_reply(
    endpoint: RecordedModel, fault: ModelFault, content: str
) -> None:
    endpoint.add_faults(*[fault] * 20)
    retrying = RetryingModel(model(endpoint), sleep=lambda _: asyncio.sleep(0))
    with pytest.raises(ModelUnreachable, match=f"answers with {content}: check PATCHWRIGHT_MODEL_BASE"):
        await retrying.reply([UserMessage(text="Issue 7")], TOOLS)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "registry.ollama.ai/library/gemma2:latest does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (500, "Unsupported param: tools"),
        (404, "No endpoints found that support tool use."),
    ],
)
async def test_a_server_that_rejects_tools_is_answered_with_the_setting_for_text(
    endpoint: RecordedModel, status: int, text: str
) -> None:
    endpoint.add_faults(ModelFault(status=status, body=json.dumps({"error": {"message": text}})))
    with pytest.raises(ToolsUnsupported) as failed:
        await ask(model(endpoint))
    assert str(failed.value) == (
        f"The server of openai/recorded cannot call tools with this model ({status}): set "
        'PATCHWRIGHT_TOOL_CALLING=text (`tool_calling = "text"` in patchwright.toml), and run '
        f"`patchwright probe`. The server says: {text}"
    )
    assert not failed.value.retryable


async def test_an_invalid_request_is_not_retryable(endpoint: RecordedModel) -> None:
    endpoint.add_faults(ModelFault(status=400, body='{"error": {"message": "no such\\nparameter"}}'))
    with pytest.raises(ModelError) as failed:
        await ask(model(endpoint))
    assert str(failed.value) == "The model openai/recorded failed (400): no such parameter"
    assert not failed.value.retryable


async def test_an_unreachable_endpoint_is_reported_without_library_internals() -> None:
    async with RecordedModel(()) as endpoint:
        gone, gone_address = model(endpoint), urlsplit(endpoint.base_url).netloc
    with pytest.raises(ModelError) as failed:
        await ask(gone)
    assert str(failed.value) == (
        f"Cannot connect to {gone_address} for openai/recorded (connection refused): check PATCHWRIGHT_MODEL_BASE_URL."
    )
    assert failed.value.retryable


async def test_a_timeout_is_retryable() -> None:
    async with RecordedModel([RecordedTurn("Late.")], delay=1.0) as endpoint:
        with pytest.raises(ModelError, match=r"did not reply within 0\.2 s|failed") as failed:
            await ask(model(endpoint, timeout=0.2))
        assert failed.value.retryable


async def test_an_unreachable_endpoint_is_retryable() -> None:
    async with RecordedModel([]) as endpoint:
        pass
    with pytest.raises(ModelError, match="Cannot connect to") as failed:
        await ask(model(endpoint))
    assert failed.value.retryable


async def test_a_request_can_be_canceled(endpoint: RecordedModel) -> None:
    async with RecordedModel([RecordedTurn("Late.")], delay=1.0) as slow:
        task = asyncio.create_task(ask(model(slow)))
        while not slow.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.slow
def test_litellm_is_imported_late_and_prints_no_warnings() -> None:
    program = """
import asyncio, sys
from pydantic import SecretStr
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.llm.litellm import LitellmModel, preload_litellm
from patchwright.resolver.llm.model import ProviderConnection, UserMessage
assert "litellm" not in sys.modules
async def main():
    await preload_litellm()
    assert "litellm" in sys.modules
    async with RecordedModel([RecordedTurn("Hello.")]) as endpoint:
        connection = ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr("key"))
        model = LitellmModel("openai/recorded", connection)
        print((await model.reply([UserMessage(text="Hi")], [])).text)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hello.\n"
    ours = [line for line in done.stderr.splitlines() if "never awaited" in line or "Unclosed" in line]
    assert ours == []


async def test_preloading_twice_imports_once() -> None:
    await asyncio.gather(preload_litellm(), preload_litellm())
