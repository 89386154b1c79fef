"""Providers that truncate, stall, flood or never reply: limits in bytes and seconds, errors, and billing."""

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedModel,
    RecordedTurn,
    html_page,
    reply_without_choices,
    slow_reply,
    truncated_reply,
)
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import AgentStopped, AuxiliaryModelCall
from patchwright.resolver.llm import http_capture
from patchwright.resolver.llm.litellm import LitellmModel, preload_litellm
from patchwright.resolver.llm.model import ChatMessage, ProviderConnection, SystemMessage, UserMessage
from patchwright.resolver.llm.retry import RetryingModel
from patchwright.resolver.run_log import FileLogStore
from tests.resolver.agent_runs import FakeSandbox, make_agent, record_prompts

BRIEF: tuple[ChatMessage, ...] = (SystemMessage(text="You help. " * 100), UserMessage(text="Issue 7"))


@pytest.fixture(autouse=True)
async def litellm_imported() -> None:
    await preload_litellm()


def model(endpoint: RecordedModel, name: str = "openai/gpt-4o", timeout: float = 20) -> LitellmModel:
    base = endpoint.base_url.removesuffix("/v1") if name.startswith("anthropic/") else endpoint.base_url
    return LitellmModel(name, ProviderConnection(base_url=base, api_key=SecretStr("key"), timeout=timeout))


def build_response(text: str) -> str:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**body, "choices": [choice], "usage": usage})


async def get_failure(*faults: ModelFault, name: str = "openai/gpt-4o", timeout: float = 20) -> ModelError:
    async with RecordedModel([RecordedTurn("Back.")]) as endpoint:
        endpoint.add_faults(*faults)
        with pytest.raises(ModelError) as failure:
            await model(endpoint, name, timeout).reply(BRIEF, ())
        return failure.value


@pytest.mark.parametrize(
    "name",
    ["openai/gpt-4o", "openai/responses/gpt-4o", "anthropic/claude-sonnet-4-5", "deepseek/deepseek-chat"],
)
async def test_a_truncated_reply_is_billed_for_what_arrived(name: str) -> None:
    failure = await get_failure(truncated_reply(), name=name)
    assert f"The model {name} failed (200): the response ended early after" in str(failure)
    assert failure.retryable and failure.usage is not None
    assert 250 <= failure.usage.prompt_tokens <= 400 and failure.usage.completion_tokens > 50
    assert failure.usage.usd is not None and Decimal(0) < failure.usage.usd < Decimal("0.02")


@pytest.mark.parametrize(
    "provider", "groq hosted_vllm mistral moonshot openrouter together_ai xai zai".split()
)
async def test_responses_of_other_providers_are_captured_too(provider: str) -> None:
    assert "the response ended early after" in str(await get_failure(truncated_reply(), name=f"{provider}/m"))


async def test_a_slow_reply_times_out_and_is_billed() -> None:
    failure = await get_failure(slow_reply(0.05), timeout=1)
    assert str(failure) == ("The model openai/gpt-4o did not reply within 1 s (PATCHWRIGHT_MODEL_TIMEOUT).")
    assert failure.retryable and failure.usage is not None and failure.usage.prompt_tokens > 0


async def test_a_request_without_a_reply_is_not_billed() -> None:
    assert (await get_failure(html_page(502))).usage is None
    assert (await get_failure(ModelFault(body=""))).usage is None


async def test_a_reply_of_ten_megabytes_is_parsed() -> None:
    async with RecordedModel([RecordedTurn("-")]) as endpoint:
        endpoint.add_faults(ModelFault(body=build_response("x" * 10_000_000)))
        reply = await model(endpoint).reply(BRIEF, ())
    assert (len(reply.text), reply.usage.completion_tokens) == (10_000_000, 5)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_an_endless_reply_counts_as_truncated(packed: bool) -> None:
    """Compressed responses are limited to 256 KiB (250 MB at most when decompressed) against decompression
    bombs.
    """
    body, headers = build_response("x" * (http_capture.MAX_BODY_BYTES + 1)).encode(), {}
    if packed:
        body, headers = (
            gzip.compress(os.urandom(http_capture.MAX_COMPRESSED_BYTES * 2)),
            {"content-encoding": "gzip"},
        )
    async with RecordedModel([RecordedTurn("Back.")]) as endpoint:
        endpoint.add_faults(ModelFault(headers=headers, body=body))
        reply = await model(endpoint).reply(BRIEF, ())
    assert (reply.text, reply.tool_calls, reply.truncated) == ("", (), True)
    assert reply.usage.completion_tokens <= 16_384, "more than the model can give"
    assert reply.usage.usd is not None and reply.usage.usd > 0


@pytest.mark.slow
async def test_an_endpoint_that_never_replies_times_out_with_a_clear_error() -> None:
    async with RecordedModel([RecordedTurn("Late.")], delay=3) as endpoint:
        patient = RetryingModel(model(endpoint, timeout=0.3), max_seconds=1.5, jitter=lambda: 0.0)
        with pytest.raises(ModelError, match=r"did not reply within 0\.3 s .*Tried 2 times in \d s\."):
            await patient.reply(BRIEF, ())
        assert len(endpoint.requests) == 2


async def test_the_cost_of_a_failed_reply_is_logged(tmp_path: Path) -> None:
    async with (
        RecordedModel([RecordedTurn("Back.")]) as endpoint,
        FileLogStore(tmp_path).open(RunId("run")) as log,
    ):
        endpoint.add_faults(truncated_reply())
        worker = make_agent(RetryingModel(model(endpoint), max_seconds=0.0), FakeSandbox())  # type: ignore[arg-type]
        await record_prompts(log, "You fix.", "Issue 7", worker.tools)
        await worker.run(log)
        *_, paid, ended = log.trajectory
        assert isinstance(paid, AuxiliaryModelCall) and paid.purpose == "failed"
        assert isinstance(ended, AgentStopped) and ended.reason == "error"
        assert log.trajectory.usage().usd == paid.usage.usd != 0


async def test_an_unreadable_reply_is_billed() -> None:
    async with RecordedModel([RecordedTurn("Back.")]) as endpoint:
        endpoint.add_faults(reply_without_choices())
        reply = await model(endpoint).reply(BRIEF, ())
    assert (reply.text, reply.usage.prompt_tokens, reply.usage.usd) == ("", 1000, Decimal("0.003"))
