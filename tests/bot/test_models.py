"""From settings to models: where each key goes, and who does what."""

from pathlib import Path
from typing import Any

import pytest

from bot.models import models
from demo.model import Endpoint, Turn, server_error
from resolver.errors import SettingsError
from resolver.events import Usage
from resolver.llm.model import FromUser
from resolver.llm.textual import Textual
from resolver.settings.settings import Settings, build
from resolver.tools.talk import talk_tools
from tests.resolver.llm.test_pictures import PIXEL

BRIEF = (FromUser(text="Issue 7"),)


def settings(tmp_path: Path, **values: Any) -> Settings:
    return build({"data": tmp_path, "model_patience": 0.01, **values}, "the test")


async def test_a_purpose_has_its_own_model_and_the_provider_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with Endpoint([Turn("Hello.")], key="sk-ours") as ours, Endpoint([Turn("Hi.")]) as theirs:
        monkeypatch.setenv("DEEPSEEK_API_BASE", theirs.base_url)
        monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-theirs")
        made = models(
            settings(
                tmp_path,
                model="openai/recorded",
                model_base_url=ours.base_url,
                model_api_key="sk-ours",
                model_condense="openai/small",
                model_judge="deepseek/deepseek-chat",
            )
        )
        assert (await made.act.reply(BRIEF, ())).usage.model == "openai/recorded"
        assert (await made.condense.reply(BRIEF, ())).usage.model == "openai/small"
        assert (await made.judge.reply(BRIEF, ())).usage.model == "deepseek/deepseek-chat"
        assert (made.browse, made.senses) == (made.act, made.act)
    assert [request["model"] for request in ours.requests] == ["recorded", "small"]
    assert [request["model"] for request in theirs.requests] == ["deepseek-chat"]


async def test_fallbacks_go_on_where_the_model_fails(tmp_path: Path) -> None:
    async with Endpoint([Turn("Hello.")]) as endpoint:
        endpoint.fail(server_error(), server_error())
        made = models(
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


async def test_prices_of_ones_own_count_before_all_others(tmp_path: Path) -> None:
    async with Endpoint(
        [Turn("Hello.", usage={"prompt_tokens": 2_000_000, "completion_tokens": 1})]
    ) as endpoint:
        made = models(
            settings(
                tmp_path,
                model="openai/gpt-4o",
                model_base_url=endpoint.base_url,
                model_api_key="key",
                model_prices='{"openai/gpt-4o": {"input": "0.5", "output": "1000000"}}',
            )
        )
        usage = (await made.act.reply(BRIEF, ())).usage
    assert usage == Usage(
        model="openai/gpt-4o", prompt_tokens=2_000_000, completion_tokens=1, usd=2, seconds=usage.seconds
    )


async def test_a_model_without_function_calling_gets_its_tools_as_text(tmp_path: Path) -> None:
    async with Endpoint([Turn("Hello.")]) as endpoint:
        made = models(
            settings(
                tmp_path,
                model="openai/recorded",
                model_base_url=endpoint.base_url,
                model_api_key="key",
                model_tools="text",
            )
        )
        assert isinstance(made.act, Textual)
        await made.act.reply(BRIEF, [tool.spec for tool in talk_tools()])
    (request,) = endpoint.requests
    assert "tools" not in request and "## think" in request["messages"][0]["content"]


def test_a_price_that_is_none_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"^model_prices\.openai/x\.output \(|^model_prices\.openai/x\.output in"
    ):
        settings(tmp_path, model_prices={"openai/x": {"input": 1}})
    with pytest.raises(SettingsError, match="model_prices"):
        settings(tmp_path, model_prices="one dollar")


async def test_where_the_model_for_pictures_fails_those_that_act_are_shown_what_they_can(
    tmp_path: Path,
) -> None:
    async with Endpoint([Turn("Hello.")]) as endpoint:
        endpoint.fail(server_error(), server_error())
        made = models(
            settings(
                tmp_path,
                model="openai/one",
                model_fallbacks="openai/two",
                model_pictures="openai/gpt-4o",
                model_base_url=endpoint.base_url,
                model_api_key="key",
            )
        )
        reply = await made.act.reply((FromUser(text="This.", pictures=(PIXEL,)),), ())
    assert [request["model"] for request in endpoint.requests] == ["gpt-4o", "one", "two"]
    assert reply.usage.model == "openai/two"
    seen, *unseen = [str(request["messages"]).count("data:image/png") for request in endpoint.requests]
    assert (seen, unseen) == (1, [0, 0])
