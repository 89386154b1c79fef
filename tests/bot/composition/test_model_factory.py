"""Models built from settings: which key each one gets, and which purpose it serves."""

from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.composition.model_factory import build_models
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn, server_error
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.masking_model import MaskingModel
from patchwright.resolver.llm.model import UserMessage
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings, build_settings
from patchwright.resolver.tools.control_tools import build_control_tools
from tests.resolver.llm.test_chat_completions import PIXEL

BRIEF = (UserMessage(text="Issue 7"),)


def settings(tmp_path: Path, **values: Any) -> Settings:
    return build_settings({"data": tmp_path, "model_retry_timeout": 0.01, **values})


@pytest.mark.slow
async def test_each_purpose_has_its_model_and_each_provider_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with (
        RecordedModel([RecordedTurn("Hello.")], key="sk-ours") as ours,
        RecordedModel([RecordedTurn("Hi.")]) as theirs,
    ):
        monkeypatch.setenv("DEEPSEEK_API_BASE", theirs.base_url)
        monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-theirs")
        made = build_models(
            settings(
                tmp_path,
                model="openai/recorded",
                model_base_url=ours.base_url,
                model_api_key="sk-ours",
                condenser_model="openai/small",
                review_model="deepseek/deepseek-chat",
            )
        )
        assert (await made.act.reply(BRIEF, ())).usage.model == "openai/recorded"
        assert (await made.condense.reply(BRIEF, ())).usage.model == "openai/small"
        assert (await made.review.reply(BRIEF, ())).usage.model == "deepseek/deepseek-chat"
        assert (made.browse, made.vision) == (made.act, made.act)
    assert [request["model"] for request in ours.requests] == ["recorded", "small"]
    assert [request["model"] for request in theirs.requests] == ["deepseek-chat"]


@pytest.mark.slow
async def test_a_fallback_replaces_a_failing_model(tmp_path: Path) -> None:
    async with RecordedModel([RecordedTurn("Hello.")]) as endpoint:
        endpoint.add_faults(server_error(), server_error())
        made = build_models(
            settings(
                tmp_path,
                model="openai/one",
                model_fallbacks="openai/two, openai/three",
                model_base_url=endpoint.base_url,
                model_api_key="key",
            )
        )
        reply = await made.act.reply(BRIEF, ())
    assert [request["model"] for request in endpoint.requests] == ["one", "two", "three"]
    assert reply.usage.model == "openai/three"


@pytest.mark.slow
async def test_configured_prices_override_all_others(tmp_path: Path) -> None:
    async with RecordedModel(
        [RecordedTurn("Hello.", usage={"prompt_tokens": 2_000_000, "completion_tokens": 1})]
    ) as endpoint:
        made = build_models(
            settings(
                tmp_path,
                model="openai/gpt-4o",
                model_base_url=endpoint.base_url,
                model_api_key="key",
                model_prices='{"openai/gpt-4o": {"input": "0.5", "output": "1000000"}}',
            )
        )
        usage = (await made.act.reply(BRIEF, ())).usage
    assert usage == ReplyUsage(
        model="openai/gpt-4o", prompt_tokens=2_000_000, completion_tokens=1, usd=2, seconds=usage.seconds
    )


@pytest.mark.slow
async def test_a_model_without_function_calling_gets_its_tools_as_text(tmp_path: Path) -> None:
    async with RecordedModel([RecordedTurn("Hello.")]) as endpoint:
        made = build_models(
            settings(
                tmp_path,
                model="openai/recorded",
                model_base_url=endpoint.base_url,
                model_api_key="key",
                tool_calling="text",
            )
        )
        await made.act.reply(BRIEF, [tool.spec for tool in build_control_tools()])
    (request,) = endpoint.requests
    assert "tools" not in request and "## think" in request["messages"][0]["content"]


def test_an_invalid_price_is_rejected_with_its_model(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"^model_prices\.openai/x\.output \(|^model_prices\.openai/x\.output in"
    ):
        settings(tmp_path, model_prices={"openai/x": {"input": 1}})
    with pytest.raises(SettingsError, match="model_prices"):
        settings(tmp_path, model_prices="one dollar")


async def test_if_the_multimodal_model_fails_the_agent_models_replace_it(
    tmp_path: Path,
) -> None:
    async with RecordedModel([RecordedTurn("Hello.")]) as endpoint:
        endpoint.add_faults(server_error(), server_error())
        made = build_models(
            settings(
                tmp_path,
                model="openai/one",
                model_fallbacks="openai/two",
                multimodal_model="openai/gpt-4o",
                model_base_url=endpoint.base_url,
                model_api_key="key",
            )
        )
        reply = await made.act.reply((UserMessage(text="This.", images=(PIXEL,)),), ())
    assert [request["model"] for request in endpoint.requests] == ["gpt-4o", "one", "two"]
    assert reply.usage.model == "openai/two"
    message, *unseen = [str(request["messages"]).count("data:image/png") for request in endpoint.requests]
    assert (message, unseen) == (1, [0, 0])


def test_a_model_that_is_also_the_multimodal_model_gets_images(tmp_path: Path) -> None:
    unknown = build_models(settings(tmp_path, model="openai/own"))
    named = build_models(settings(tmp_path, model="openai/own", multimodal_model="openai/own"))
    assert (unknown.act.supports_vision, named.act.supports_vision) == (False, True)
    assert named.vision is named.act


def test_the_log_of_a_run_gets_masked_models(tmp_path: Path) -> None:
    models = build_models(Settings(data=tmp_path, model="openai/m"), secrets=Secrets(["sk-canary-4711"]))
    assert {type(model) for model in vars(models).values()} == {MaskingModel}
