"""The setup wizard's test of the model: rejected keys, and models that fail the test. Each server is a process."""

import html

import pytest

from patchwright.bot.setup import credential_store
from tests.bot.setup.conftest import UnconfiguredServer
from tests.bot.setup.test_wizard import parse_alert

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_a_rejected_key_must_be_corrected(server: UnconfiguredServer) -> None:
    async with server.started(), server.authorized_browser() as http:
        form = {"model": "openai/scripted", "base_url": server.fake_model.base_url, "key": "sk-wrong"}
        rejected = await http.post("/setup/model", data=form)
        assert rejected.status_code == 400
        assert parse_alert(rejected) == (
            "The model cannot be used with these entries. Correct them and test again. The provider of "
            "openai/scripted rejects the API key (401). Check that the key is complete and belongs to this provider."
        )
        assert ("Use it anyway" in rejected.text, "sk-wrong" in rejected.text) == (False, False)
        assert "Enter the key again." in rejected.text
        first = (await http.get("/setup")).text
        assert ("Enter the key again." in first, "saved encrypted in" in first) == (False, True)
        empty = await http.post("/setup/model", data={"model": "anthropic/claude-sonnet-5"})
        assert "Enter the API key: the field is empty, and" in html.unescape(parse_alert(empty))
        anyway = await http.post("/setup/model", data={"anyway": "yes"})
        assert (anyway.status_code, "Enter a model name" in parse_alert(anyway)) == (400, True)


async def test_a_model_that_fails_the_test_can_be_used_anyway(server: UnconfiguredServer) -> None:
    server.fake_model.passes_probe = False
    async with server.started(), server.authorized_browser() as http:
        form = {
            "model": "openai/scripted",
            "base_url": server.fake_model.base_url,
            "key": "sk-story-model-key",
        }
        for wrong, message in (
            ({"model": "", "base_url": "http://here/v1"}, "Enter a model name"),
            ({"model": "m", "base_url": "javascript:alert(1)"}, "The base URL is invalid"),
        ):
            answer = await http.post("/setup/model", data=wrong)
            assert (answer.status_code, message in html.unescape(parse_alert(answer))) == (400, True)
            assert all(f'value="{html.escape(values)}"' in answer.text for values in wrong.values())
        nameless = await http.post("/setup/model", data={"model": "m", "key": "sk-story-model-key"})
        assert "names no provider: write the model name as provider/model" in html.unescape(
            parse_alert(nameless)
        )
        refused = await http.post("/setup/model", data=form)
        assert (refused.status_code, "I would rather talk" in parse_alert(refused)) == (400, True)
        assert refused.text.index("Test and save") < refused.text.index("Use it anyway")
        assert "sk-story-model-key" not in refused.text
        assert (await http.post("/setup/model", data={"anyway": "yes"})).status_code == 303
        assert "Create the GitHub App" in (await http.get("/setup")).text
    model = credential_store.load(server.data / "data").model
    assert model is not None
    assert (model.model, model.model_api_key) == ("openai/scripted", "sk-story-model-key")


async def test_a_model_whose_endpoint_is_not_running_can_be_used_anyway(server: UnconfiguredServer) -> None:
    form = {"model": "openai/scripted", "base_url": "http://127.0.0.1:1/v1", "key": "any"}
    async with server.started(), server.authorized_browser() as http:
        page = await http.post("/setup/model", data=form)
        assert "check that the endpoint is running." in parse_alert(page)
        assert "Use it anyway" in page.text
        assert (await http.post("/setup/model", data={"anyway": "yes"})).status_code == 303
    assert credential_store.load(server.data / "data").model is not None
