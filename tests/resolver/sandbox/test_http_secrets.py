"""Secrets come from the operator's secret server, and a new value is requested when the old one expired."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from patchwright.resolver.domain import Repo
from patchwright.resolver.sandbox.secret_injection import SecretInjectingSandbox
from patchwright.resolver.sandbox.secret_sources import (
    MAX_VALUE_LENGTH,
    SecretSource,
    SecretUnavailable,
    load_secret_sources,
)
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, MaskingSandbox, Secrets
from patchwright.runtime.actions import RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.search_apis import Api, served

REPO = Repo(owner="acme", name="calc")


@pytest.fixture
def api() -> Iterator[Api]:
    with served(Api(answer={"data": {"token": "first-value"}})) as api:
        yield api


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, os.environ).open("lending") as opened:
        yield opened


def load(tmp_path: Path, api: Api, options: str = 'field = "data.token"') -> SecretSource:
    """Returns the only secret of a file that names the server."""
    path = tmp_path / "secrets.toml"
    path.write_text(f'["acme/calc"]\nTOKEN = {{ url = "{api.url}/v1/shop", {options} }}\n')
    path.chmod(0o600)
    return load_secret_sources(path, REPO, {"VAULT": "key-of-the-operator"})["TOKEN"]


async def print_secret(sandbox: MaskingSandbox) -> str:
    result = await sandbox.act(RunShell(command="echo $TOKEN; echo $TOKEN >> kept"))
    assert isinstance(result, ShellResult), result
    return result.output


async def test_each_command_gets_the_current_value_and_every_value_is_masked(
    tmp_path: Path, api: Api, sandbox: Sandbox
) -> None:
    secrets = Secrets()
    sources = {"TOKEN": load(tmp_path, api)}
    masked = MaskingSandbox(SecretInjectingSandbox(sandbox, sources, secrets), secrets)
    assert await print_secret(masked) == f"{SECRET_PLACEHOLDER}\n"
    api.answer = {"data": {"token": "second-value"}}
    assert await print_secret(masked) == f"{SECRET_PLACEHOLDER}\n"
    kept = RunShell(command="cat kept")
    shown, raw = await masked.act(kept), await sandbox.act(kept)
    assert isinstance(shown, ShellResult) and shown.output == f"{SECRET_PLACEHOLDER}\n" * 2
    assert isinstance(raw, ShellResult) and raw.output == "first-value\nsecond-value\n"


async def test_a_value_is_used_again_until_it_expires(tmp_path: Path, api: Api) -> None:
    source = load(tmp_path, api, 'field = "data.token", max_age = 1')
    assert await source.get_value() == await source.get_value() == "first-value"
    assert len(api.requests) == 1
    api.answer = {"data": {"token": "second-value"}}
    await asyncio.sleep(1.1)
    assert await source.get_value() == "second-value"
    api.status = 500
    await asyncio.sleep(1.1)
    with pytest.raises(SecretUnavailable):  # An expired value is not used again.
        await source.get_value()


async def test_headers_are_secrets_that_are_read_for_each_request(tmp_path: Path, api: Api) -> None:
    (tmp_path / "user").write_text("one\n")
    source = load(
        tmp_path,
        api,
        'field = "data.token", headers = { X-Key = { env = "VAULT" }, X-User = { file = "user" }, X-App = "a" }',
    )
    await source.get_value()
    (tmp_path / "user").write_text("two\n")
    await source.get_value()
    names = ("x-key", "x-user", "x-app")
    sent = [tuple(request.headers[name] for name in names) for request in api.requests]
    assert sent == [("key-of-the-operator", "one", "a"), ("key-of-the-operator", "two", "a")]
    assert "key-of-the-operator" not in repr(source)


async def test_a_body_without_a_field_is_the_value(tmp_path: Path, api: Api) -> None:
    api.answer = b"plain-value\n"
    assert await load(tmp_path, api, "max_age = 0").get_value() == "plain-value"


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (403, b"key-of-the-operator", "the secret server returned 403"),
        (200, b"no json", "the response of the secret server has another form"),
        (200, {"data": {}}, "the response of the secret server has another form"),
        (200, {"data": {"token": 7}}, "the response of the secret server has another form"),
        (200, b"x" * (3 * MAX_VALUE_LENGTH), "the response of the secret server is too long"),
    ],
)
async def test_a_response_without_a_value_is_reported_without_its_content(
    tmp_path: Path, api: Api, status: int, answer: object, reason: str
) -> None:
    api.status, api.answer = status, answer
    with pytest.raises(SecretUnavailable) as caught:
        await load(tmp_path, api).get_value()
    assert str(caught.value) == reason


async def test_a_redirect_does_not_send_the_headers_to_another_server(tmp_path: Path, api: Api) -> None:
    with served(Api(answer=b"value")) as other:
        api.status, api.headers = 302, {"location": other.url}
        with pytest.raises(SecretUnavailable, match="returned 302"):
            await load(tmp_path, api, 'headers = { X-Key = { env = "VAULT" } }').get_value()
        assert other.requests == []
    api.url = other.url  # Nothing listens there any more.
    with pytest.raises(SecretUnavailable, match="cannot be reached"):
        await load(tmp_path, api).get_value()
