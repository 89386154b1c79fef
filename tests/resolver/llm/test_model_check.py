"""Wrong model settings are reported before a run starts."""

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import RecordedModel
from patchwright.resolver.errors import ModelAccessDenied, SettingsError
from patchwright.resolver.llm.litellm import get_provider
from patchwright.resolver.llm.model_check import KEY_VARIABLES, check_endpoint, check_models
from patchwright.resolver.llm.model_table import find_similar_models
from patchwright.resolver.settings.connection_check import is_key_rejected
from patchwright.resolver.settings.settings import Settings


def make_settings(**values: object) -> Settings:
    return Settings(data=Path("/nowhere"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "environ", "message"),
    [
        ({"model": "anthropic/claude"}, {}, "ANTHROPIC_API_KEY is not set. Set it to your API key for anth"),
        ({"model": "openai/x"}, {}, "or set PATCHWRIGHT_MODEL_API_KEY."),
        ({"model": "openai/x", "model_base_url": "http://h/v1"}, {}, "(any text, if the endpoint needs no key)"),
        (
            {"model": "claude-sonnet-4-5", "model_base_url": "http://h/v1"},
            {},
            "If the endpoint is OpenAI-compatible, write the model as openai/claude-sonnet-4-5.",
        ),
        ({"model": "groq/x", "model_fallbacks": ("mistral/y",)}, {"GROQ_API_KEY": "k"}, "MISTRAL_API_KEY is not set"),
        ({"model": "gpt-of-mine"}, {}, "`gpt-of-mine` names no provider: write PATCHWRIGHT_MODEL as provider/model"),
        ({"model": "openia/local"}, {}, "Did you mean openai/local?"),
        ({}, {}, "PATCHWRIGHT_MODEL is not set. Set it or pass --model, for example anthropic/claude-sonnet-5."),
        ({"model": "antropic/claude-sonnet-4-5"}, {}, "Did you mean anthropic/claude-sonnet-4-5 or "),
        (
            {"model": "openai/x", "model_api_key": "k", "review_model": "mine"},
            {},
            "`mine` names no provider: write PATCHWRIGHT_REVIEW_MODEL as",
        ),
    ],
)  # fmt: skip
def test_a_wrong_model_is_named(values: dict[str, object], environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_models(make_settings(**values), environ)
    assert message in str(refused.value)


def test_an_environment_file_that_the_shell_does_not_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patchwright.env").write_text("PATCHWRIGHT_MODEL=openai/x\n")
    with pytest.raises(
        SettingsError, match=r"Only Compose and systemd read patchwright\.env: .* run `set -a; "
    ):
        check_models(make_settings(), {})


@pytest.mark.parametrize(
    ("values", "environ"),
    [
        ({"model": "openai/x", "model_api_key": "k", "model_fallbacks": ("openai/y",)}, {}),
        ({"model": "gemini/x"}, {"GOOGLE_API_KEY": "k"}),
        ({"model": "claude-sonnet-4-5"}, {"ANTHROPIC_API_KEY": "k"}),
        ({"model": "hosted_vllm/x"}, {}),
    ],
)
def test_a_complete_configuration_is_accepted(values: dict[str, object], environ: dict[str, str]) -> None:
    check_models(make_settings(**values), environ)


def test_litellm_knows_all_providers_with_a_key() -> None:
    assert {get_provider(f"{provider}/some-model") for provider in KEY_VARIABLES} == set(KEY_VARIABLES)
    assert find_similar_models("openai/gpt-5-mni") != ()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9/v1", "endpoint 127.0.0.1:9 cannot be reached (connection refused)"),
        ("http://me:hunter2@no-such-host.invalid/v1", "no-such-host.invalid cannot be reached"),
        ("http://me:hunter2@a..b/v1", "a..b cannot be reached (the host name is not valid)"),
    ],
)
async def test_an_endpoint_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError) as refused:
        await check_endpoint(make_settings(model_base_url=url))
    assert reason in str(refused.value) and "Check PATCHWRIGHT_MODEL_BASE_URL" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    await check_endpoint(make_settings(model_base_url=url, model_fallbacks=("openai/y",)))


async def test_a_base_url_without_v1_is_reported_before_the_sandbox_starts() -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read(1_000)  # empty for the check that something listens
        status = b"401 Unauthorized" if b" /v1/models " in request else b"404 Not Found"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for wrong in (url, f"{url}/"):
            with pytest.raises(SettingsError, match="add /v1 to the end of PATCHWRIGHT_MODEL_BASE_URL"):
                await check_endpoint(make_settings(model="openai/x", model_base_url=wrong))
        await check_endpoint(make_settings(model="openai/x", model_base_url=f"{url}/v1"))
        await check_endpoint(make_settings(model="openai/x", model_base_url=f"{url}/other"))
        await check_endpoint(make_settings(model="anthropic/x", model_base_url=url))


async def test_a_wrong_key_is_reported_before_the_sandbox_starts() -> None:
    async with RecordedModel((), key="right") as model:
        settings = make_settings(
            model="openai/x", model_base_url=model.base_url, model_api_key=SecretStr("right")
        )
        await check_endpoint(settings)
        wrong = settings.model_copy(update={"model_api_key": SecretStr("wrong-4711")})
        with pytest.raises(
            ModelAccessDenied, match=r"rejects the API key \(401\): check PATCHWRIGHT_MODEL_API_KEY"
        ):
            await check_endpoint(wrong)
        assert model.requests == []
        await check_endpoint(wrong.model_copy(update={"model_fallbacks": ("openai/y",)}))


@pytest.mark.parametrize("reply", [b"200 OK\r\n", b"403 Forbidden\r\n", b"302 Found\r\nlocation: /login\r\n"])
async def test_an_endpoint_that_rejects_only_the_list_of_models_accepts_the_key(reply: bytes) -> None:
    paths: list[bytes] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.read(10_000)).split(b" ")[1])
        status = b"401 Unauthorized\r\n" if paths[-1].endswith(b"/models") else reply
        writer.write(b"HTTP/1.1 " + status + b"content-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        assert not await is_key_rejected(url, "key", "x", None)
    assert paths == [b"/v1/models", b"/v1/chat/completions"]


async def test_an_endpoint_that_listens_is_accepted() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await check_endpoint(make_settings(model_base_url=f"http://127.0.0.1:{port}/v1"))
