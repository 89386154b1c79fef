"""litellm behind its fence: what only a real HTTP endpoint can show."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Fault, Turn
from resolver.errors import ModelError, ModelRefused
from resolver.llm.litellm import LitellmModel, warm
from resolver.llm.model import FromModel, FromTool, FromUser, Reply, System, ToolCall
from resolver.tools.talk import talk_tools

KEY = "sk-test-0123456789"
TOOLS = [tool.spec for tool in talk_tools()]


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint([Turn("Hello."), Turn("Again.")], key=KEY) as endpoint:
        yield endpoint


def model(
    endpoint: Endpoint, name: str = "openai/recorded", *, key: str = KEY, timeout: float = 20
) -> LitellmModel:
    return LitellmModel(name, base_url=endpoint.base_url, api_key=SecretStr(key), timeout=timeout)


async def ask(model: LitellmModel) -> Reply:
    return await model.reply([System(text="You mend."), FromUser(text="Issue 7")], TOOLS)


def completion(message: Any) -> Fault:
    """A reply with this message, billed with 10 and 5 tokens."""
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
    return Fault(body=json.dumps(body))


async def test_what_is_sent_is_a_chat_completion_with_tools_and_paired_results(endpoint: Endpoint) -> None:
    calls = (ToolCall(id="a", name="think", arguments='{"thought":"x"}'),)
    await model(endpoint).reply(
        [
            System(text="You mend."),
            FromUser(text="Issue 7"),
            FromModel(text="", calls=calls),
            FromTool(call="a", text="Noted."),
        ],
        TOOLS,
    )
    (request,) = endpoint.requests
    assert request["messages"] == [
        {"role": "system", "content": "You mend."},
        {"role": "user", "content": "Issue 7"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "think", "arguments": '{"thought":"x"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Noted."},
    ]
    assert request["tools"] == [spec.as_openai() for spec in TOOLS]
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
async def test_a_reply_that_litellm_cannot_read_is_billed_and_empty(endpoint: Endpoint, message: Any) -> None:
    endpoint.fail(completion(message))
    reply = await ask(model(endpoint))
    assert (reply.text, reply.calls) == ("", ())
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 5)


async def test_halves_of_surrogate_pairs_do_not_reach_the_log(endpoint: Endpoint) -> None:
    function = {"name": "th\ud800ink", "arguments": '{"thought": "\udfff"}'}
    call = {"id": "a\ud800", "type": "function", "function": function}
    endpoint.fail(completion({"role": "assistant", "content": "a\ud800b", "tool_calls": [call]}))
    reply = await ask(model(endpoint))
    assert reply.text == "a?b"
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


async def test_cached_tokens_are_counted(endpoint: Endpoint) -> None:
    asked = model(endpoint)
    long = [System(text="You mend. " * 400), FromUser(text="Issue 7")]
    assert (await asked.reply(long, TOOLS)).usage.cached_tokens == 0
    again = (await asked.reply(long, TOOLS)).usage
    assert 0 < again.cached_tokens <= again.prompt_tokens
    assert again.seconds > 0


async def test_a_known_model_has_a_price_and_an_unknown_one_has_none(endpoint: Endpoint) -> None:
    known = await ask(model(endpoint, "openai/gpt-4o"))
    assert known.usage.usd is not None and Decimal(0) < known.usage.usd < Decimal("0.1")
    assert (await ask(model(endpoint))).usage.usd is None


async def test_a_model_that_is_newer_than_litellms_table_has_no_price_and_is_not_called_free(
    endpoint: Endpoint,
) -> None:
    assert (await ask(model(endpoint, "openai/gpt-9-turbo"))).usage.usd is None


async def test_a_name_without_a_provider_is_refused_with_the_mend(endpoint: Endpoint) -> None:
    with pytest.raises(ModelRefused, match="`gpt-of-mine` names no provider: write PATCHWRIGHT_MODEL as"):
        await ask(model(endpoint, "gpt-of-mine"))
    assert endpoint.requests == []


async def test_a_wrong_key_is_refused_and_no_part_of_it_repeated(endpoint: Endpoint) -> None:
    with pytest.raises(ModelRefused) as refused:
        await ask(model(endpoint, key="sk-wrong-987654321"))
    assert str(refused.value) == (
        "The provider of openai/recorded refuses the key (401): "
        "check PATCHWRIGHT_MODEL_API_KEY, or the provider's own variable."
    )


async def test_an_account_without_credit_is_refused(endpoint: Endpoint) -> None:
    text = "You exceeded your current quota, please check your plan and billing details."
    endpoint.fail(
        Fault(status=429, body=json.dumps({"error": {"message": text, "code": "insufficient_quota"}}))
    )
    with pytest.raises(ModelRefused, match=f"has no credit: {text}"):
        await ask(model(endpoint))


async def test_a_request_that_is_wrong_is_not_tried_again(endpoint: Endpoint) -> None:
    endpoint.fail(Fault(status=400, body='{"error": {"message": "no such\\nparameter"}}'))
    with pytest.raises(ModelError) as failed:
        await ask(model(endpoint))
    assert str(failed.value) == "The model openai/recorded failed (400): no such parameter"
    assert not failed.value.retryable


async def test_an_endpoint_that_is_not_there_is_told_without_the_insides_of_a_library() -> None:
    async with Endpoint(()) as endpoint:
        gone = model(endpoint)
    with pytest.raises(ModelError) as failed:
        await ask(gone)
    assert str(failed.value).startswith(
        "The model openai/recorded failed (no answer): Cannot connect to host "
    )
    assert "object at" not in str(failed.value)
    assert failed.value.retryable


async def test_a_model_that_does_not_answer_in_time_can_be_asked_again() -> None:
    async with Endpoint([Turn("Late.")], delay=1.0) as endpoint:
        with pytest.raises(ModelError, match=r"gave no reply within 0\.2 s|failed") as failed:
            await ask(model(endpoint, timeout=0.2))
        assert failed.value.retryable


async def test_an_endpoint_that_is_not_there_can_be_asked_again() -> None:
    async with Endpoint([]) as endpoint:
        pass
    with pytest.raises(ModelError, match="failed") as failed:
        await ask(model(endpoint))
    assert failed.value.retryable


async def test_cancelling_a_request_cancels_it(endpoint: Endpoint) -> None:
    async with Endpoint([Turn("Late.")], delay=1.0) as slow:
        task = asyncio.create_task(ask(model(slow)))
        while not slow.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_the_module_is_free_until_a_model_is_asked_and_leaves_no_noise() -> None:
    program = """
import asyncio, sys
from pydantic import SecretStr
from demo.model import Endpoint, Turn
from resolver.llm.litellm import LitellmModel, warm
from resolver.llm.model import FromUser
assert "litellm" not in sys.modules
async def main():
    await warm()
    assert "litellm" in sys.modules
    async with Endpoint([Turn("Hello.")]) as endpoint:
        model = LitellmModel("openai/recorded", base_url=endpoint.base_url, api_key=SecretStr("key"))
        print((await model.reply([FromUser(text="Hi")], [])).text)
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


async def test_warming_up_twice_is_once() -> None:
    await asyncio.gather(warm(), warm())
