"""A provider that cuts, drips, floods or never answers: bounded in bytes and seconds, told, and paid for once."""

import gzip
import json
import os
import time
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Fault, Turn, cut_off, drips, html, unparsable
from resolver.domain import RunId
from resolver.errors import ModelError
from resolver.events import Consulted, Ended
from resolver.llm import received
from resolver.llm.litellm import LitellmModel, warm
from resolver.llm.model import FromUser, Message, System
from resolver.llm.patient import Patient
from resolver.log import FileLogs
from tests.resolver.agents import Box, agent, begin

BRIEF: tuple[Message, ...] = (System(text="You mend. " * 100), FromUser(text="Issue 7"))


@pytest.fixture(autouse=True)
async def imported() -> None:
    await warm()


def model(endpoint: Endpoint, name: str = "openai/gpt-4o", timeout: float = 20) -> LitellmModel:
    base = endpoint.base_url.removesuffix("/v1") if name.startswith("anthropic/") else endpoint.base_url
    return LitellmModel(name, base_url=base, api_key=SecretStr("key"), timeout=timeout)


def saying(text: str) -> str:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**body, "choices": [choice], "usage": usage})


async def failed(*faults: Fault, name: str = "openai/gpt-4o", timeout: float = 20) -> ModelError:
    async with Endpoint([Turn("Back.")]) as endpoint:
        endpoint.fail(*faults)
        with pytest.raises(ModelError) as failure:
            await model(endpoint, name, timeout).reply(BRIEF, ())
        return failure.value


@pytest.mark.parametrize(
    "name",
    ["openai/gpt-4o", "openai/responses/gpt-4o", "anthropic/claude-sonnet-4-5", "deepseek/deepseek-chat"],
)
async def test_a_reply_that_breaks_off_is_paid_for_as_far_as_it_came(name: str) -> None:
    failure = await failed(cut_off(), name=name)
    assert f"The model {name} failed (200): the reply breaks off after" in str(failure)
    assert failure.retryable and failure.usage is not None
    assert 250 <= failure.usage.prompt_tokens <= 400 and failure.usage.completion_tokens > 50
    assert failure.usage.usd is not None and Decimal(0) < failure.usage.usd < Decimal("0.02")


@pytest.mark.parametrize(
    "provider", "groq hosted_vllm mistral moonshot openrouter together_ai xai zai".split()
)
async def test_what_other_providers_send_is_heard_too(provider: str) -> None:
    assert "the reply breaks off after" in str(await failed(cut_off(), name=f"{provider}/m"))


async def test_a_reply_that_drips_ends_with_its_time_and_is_paid_for() -> None:
    began = time.monotonic()
    failure = await failed(drips(0.05), timeout=1)
    assert time.monotonic() - began < 5
    assert str(failure) == ("The model openai/gpt-4o gave no reply within 1 s (PATCHWRIGHT_MODEL_TIMEOUT).")
    assert failure.retryable and failure.usage is not None and failure.usage.prompt_tokens > 0


async def test_nothing_that_was_not_done_is_paid_for() -> None:
    assert (await failed(html(502))).usage is None
    assert (await failed(Fault(body=""))).usage is None


async def test_a_reply_of_ten_megabytes_is_read() -> None:
    async with Endpoint([Turn("-")]) as endpoint:
        endpoint.fail(Fault(body=saying("x" * 10_000_000)))
        reply = await model(endpoint).reply(BRIEF, ())
    assert (len(reply.text), reply.usage.completion_tokens) == (10_000_000, 5)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_a_reply_without_end_is_like_one_that_ran_into_its_limit(packed: bool) -> None:
    """What is packed could be a bomb: 256 KiB are 250 MB at most, and what is longer is not unpacked."""
    body, headers = saying("x" * (received.MAX_REPLY + 1)).encode(), {}
    if packed:
        body, headers = gzip.compress(os.urandom(received.MAX_PACKED * 2)), {"content-encoding": "gzip"}
    async with Endpoint([Turn("Back.")]) as endpoint:
        endpoint.fail(Fault(headers=headers, body=body))
        reply = await model(endpoint).reply(BRIEF, ())
    assert (reply.text, reply.calls, reply.truncated) == ("", (), True)
    assert reply.usage.completion_tokens <= 16_384, "more than the model can give"
    assert reply.usage.usd is not None and reply.usage.usd > 0


async def test_an_endpoint_that_never_answers_is_given_up_in_bounded_time_and_this_is_told() -> None:
    async with Endpoint([Turn("Late.")], delay=3) as endpoint:
        patient = Patient(model(endpoint, timeout=0.3), budget=1.5, jitter=lambda: 0.0)
        began = time.monotonic()
        with pytest.raises(ModelError, match=r"gave no reply within 0\.3 s .*It was asked 2 times in \d s\."):
            await patient.reply(BRIEF, ())
        assert time.monotonic() - began < 5
        assert len(endpoint.requests) == 2


async def test_what_a_reply_that_failed_cost_is_in_the_log(tmp_path: Path) -> None:
    async with Endpoint([Turn("Back.")]) as endpoint, FileLogs(tmp_path).open(RunId("run")) as log:
        endpoint.fail(cut_off())
        worker = agent(Patient(model(endpoint), budget=0.0), Box())  # type: ignore[arg-type]
        await begin(log, "You mend.", "Issue 7", worker.tools)
        await worker.run(log)
        *_, paid, ended = log.trajectory
        assert isinstance(paid, Consulted) and paid.purpose == "failed"
        assert isinstance(ended, Ended) and ended.reason == "error"
        assert log.trajectory.spent().usd == paid.usage.usd != 0


async def test_a_reply_that_cannot_be_read_has_its_price() -> None:
    async with Endpoint([Turn("Back.")]) as endpoint:
        endpoint.fail(unparsable())
        reply = await model(endpoint).reply(BRIEF, ())
    assert (reply.text, reply.usage.prompt_tokens, reply.usage.usd) == ("", 1000, Decimal("0.003"))
