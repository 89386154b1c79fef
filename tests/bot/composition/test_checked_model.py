"""A model that cannot do the work is refused before its first request, in every place that builds a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from patchwright import LLM
from patchwright.bot.composition.model_factory import build_models
from patchwright.bot.faults import classify_error
from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedModel,
    RecordedTurn,
    context_overflow,
    server_error,
)
from patchwright.resolver.errors import ModelError, ModelUnsuitable
from patchwright.resolver.llm.checked_model import CheckedModel
from patchwright.resolver.llm.model import Model, Reply, UserMessage
from patchwright.resolver.llm.probe import PROBE_TOOL
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.actions import RunShell
from tests.resolver.llm.test_probe import FIT, IN_TEXT
from tests.resolver.llm.test_reasoning import model
from tests.resolver.scripted_model import ScriptedModel

WORK = (UserMessage(text="Fix the bug."),)
TALK = RecordedTurn("I would rather talk.")

Builder = Callable[[str, RecordedModel, Path], Model]


def from_settings(name: str, endpoint: RecordedModel, data: Path) -> Model:
    """Returns the model of a server, a workflow, and the command line."""
    settings = Settings(
        data=data, model=name, model_base_url=endpoint.base_url, model_api_key=SecretStr("key"),
        model_retry_timeout=1,
    )  # fmt: skip
    return build_models(settings).act


def from_library(name: str, endpoint: RecordedModel, data: Path) -> Model:
    """Returns the model of the library, and of conversations through the HTTP API."""
    return LLM(model=name, base_url=endpoint.base_url, api_key=SecretStr("key"), retry_seconds=1).build()


BUILDERS = pytest.mark.parametrize("build", [from_settings, from_library])


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_DATA", str(tmp_path))


async def work(checked: Model) -> Reply:
    return await checked.reply(WORK, (PROBE_TOOL,))


def asked_for_work(endpoint: RecordedModel) -> list[dict[str, Any]]:
    return [each for each in endpoint.requests if "Fix the bug." in str(each["messages"])]


class CuttingModel(RecordedModel):
    """Cuts the beginning off a prompt of more than 4,096 tokens, as Ollama does without an error."""

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        seen = request["messages"][-1]["content"][-4 * 4096 :]
        self._turns = (FIT if "417" in seen else TALK,)
        return await super()._complete(request, api_format)


@BUILDERS
async def test_a_model_that_calls_no_tools_is_refused_before_the_work(build: Builder, tmp_path: Path) -> None:
    async with RecordedModel([TALK], answers_probes=False) as endpoint:
        with pytest.raises(ModelUnsuitable) as refused:
            await work(build("openai/weak", endpoint, tmp_path))
    assert len(endpoint.requests) == 2 and not asked_for_work(endpoint)
    assert str(refused.value).startswith(
        "The model openai/weak cannot do the work, so nothing was started: "
        "the model answered without calling the tool: "
        "I would rather talk. (neither native nor text tool calls work: choose another model). Choose another "
    )
    assert refused.value.usage is not None and refused.value.usage.prompt_tokens > 0
    assert classify_error(refused.value) == "settings"


@BUILDERS
async def test_a_known_model_with_a_small_context_window_is_refused_without_a_request(
    build: Builder, tmp_path: Path
) -> None:
    async with RecordedModel([FIT]) as endpoint:
        with pytest.raises(
            ModelUnsuitable, match=r"context window of openai/gpt-4 is too small: it has 8,192"
        ):
            await work(build("openai/gpt-4", endpoint, tmp_path))
    assert not endpoint.requests


@BUILDERS
async def test_a_server_that_cuts_long_prompts_is_refused_before_the_work(
    build: Builder, tmp_path: Path
) -> None:
    async with CuttingModel([FIT], answers_probes=False) as endpoint:
        with pytest.raises(ModelUnsuitable, match="cannot do the work"):
            await work(build("openai/local", endpoint, tmp_path))
    assert not asked_for_work(endpoint)


async def test_a_server_that_rejects_long_prompts_is_refused_before_the_work(tmp_path: Path) -> None:
    async with RecordedModel([FIT], answers_probes=False) as endpoint:
        endpoint.add_faults(context_overflow())
        with pytest.raises(ModelUnsuitable, match="exceeds the context window of openai/local"):
            await work(from_settings("openai/local", endpoint, tmp_path))
    assert len(endpoint.requests) == 1


async def test_a_model_that_calls_tools_as_text_is_refused_with_the_setting(tmp_path: Path) -> None:
    async with RecordedModel([IN_TEXT], answers_probes=False) as endpoint:
        with pytest.raises(ModelUnsuitable) as refused:
            await work(from_settings("openai/local", endpoint, tmp_path))
        assert str(refused.value) == (
            "The model openai/local calls tools only as text. Set PATCHWRIGHT_TOOL_CALLING to text."
        )
        checked = CheckedModel(model(endpoint, "openai/local"), "text", tmp_path)
        assert (await work(checked)).tool_calls[0].name == PROBE_TOOL.name


async def test_an_unknown_model_is_probed_once_and_its_first_reply_includes_the_cost(tmp_path: Path) -> None:
    async with RecordedModel([FIT], answers_probes=False) as endpoint:
        first = await work(from_settings("openai/local", endpoint, tmp_path))
        second = await work(from_settings("openai/local", endpoint, tmp_path))
    assert (len(endpoint.requests), len(asked_for_work(endpoint))) == (3, 2)
    assert first.usage.prompt_tokens > 8_000 > second.usage.prompt_tokens


async def test_a_model_that_is_known_to_call_tools_is_not_probed(tmp_path: Path) -> None:
    async with RecordedModel([FIT], answers_probes=False) as endpoint:
        await work(from_settings("openai/gpt-4o", endpoint, tmp_path))
    assert len(endpoint.requests) == 1


async def test_a_model_that_is_down_is_not_refused_as_unsuitable(tmp_path: Path) -> None:
    async with RecordedModel([FIT], answers_probes=False) as endpoint:
        endpoint.add_faults(*[server_error(503)] * 9)
        with pytest.raises(ModelError) as failed:
            await work(from_settings("openai/local", endpoint, tmp_path))
    assert not isinstance(failed.value, ModelUnsuitable) and failed.value.retryable


async def test_an_operator_can_correct_the_size_of_the_window(tmp_path: Path) -> None:
    small = ScriptedModel([RunShell(command="ls")], name="openai/gpt-4", window=8_192)
    await work(CheckedModel(small, "native", tmp_path, is_small_window_allowed=True))
    assert len(small.requests) == 1
