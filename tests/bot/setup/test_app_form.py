"""Parsing the form that describes the App."""

import asyncio
from pathlib import Path

import pytest

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.setup.app_api import check_github_reachable
from patchwright.bot.setup.app_form import AppForm, parse_app_form
from patchwright.resolver.settings.settings import Settings

WEBHOOK = {"server_url": "", "organization": "", "public_url": "", "reach": "webhook"}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"server_url": "github.com"}, "invalid_github_url"),
        ({"server_url": "https://evil.example/<script>"}, "invalid_github_url"),
        ({"organization": "../settings"}, "invalid_organization"),
        ({"public_url": "https://a b"}, "invalid_public_url"),
        ({"public_url": "https://user:word@host"}, "invalid_public_url"),
        ({"public_url": "https://localhost:8000/"}, "loopback_webhook"),
        ({"public_url": "https://[::1]", "confirmed_url": "https://localhost"}, "loopback_webhook"),
    ],
)
def test_each_invalid_field_has_its_own_message(tmp_path: Path, wrong: dict[str, str], problem: str) -> None:
    assert parse_app_form(WEBHOOK | wrong, Settings(data=tmp_path), "https://bot.example.com") == problem


def test_a_loopback_url_is_accepted_with_polling_a_local_github_or_confirmation(tmp_path: Path) -> None:
    here = "http://localhost:8000"
    for form in ({"reach": "poll"}, {"server_url": "http://127.0.0.1:3000"}, {"confirmed_url": here}):
        assert isinstance(parse_app_form(WEBHOOK | form, Settings(data=tmp_path), here), AppForm), form


@pytest.mark.parametrize(
    ("status", "is_github"), [("200 OK", False), ("404 Not Found", False), ("401 Unauthorized", True)]
)
async def test_a_server_that_is_not_github_is_reported(status: str, is_github: bool) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        check = check_github_reachable(GitHubServer(github_server_url=f"http://{host}"), None)
        if is_github:
            await check
        else:
            with pytest.raises(ForgeUnavailable, match=f"{host} responds, but not as GitHub's API does"):
                await check
