"""the fake server's flow to make an App from a manifest, and to install it, in a browser's own requests."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from patchwright.demo.github import FakeGitHub

MANIFEST = {
    "name": "Patchwright 1",
    "url": "https://bot.example",
    "redirect_url": "http://127.0.0.1:1/setup/callback",
    "setup_url": "http://127.0.0.1:1/welcome",
    "hook_attributes": {"url": "http://127.0.0.1:1/webhook", "active": True},
    "default_permissions": {"issues": "write", "contents": "write"},
    "default_events": ["issues"],
}


async def made(
    fake_github: FakeGitHub, http: httpx.AsyncClient, path: str = "/settings/apps/new", **manifest: Any
) -> str:
    """The code with which the browser is sent back."""
    data = {"manifest": json.dumps(MANIFEST | manifest), "agreed": "yes"}
    answer = await http.post(f"{fake_github.server_url}{path}?state=abc", data=data)
    assert answer.status_code == 302, answer.text
    back = urlsplit(answer.headers["location"])
    assert (back.path, parse_qs(back.query)["state"]) == ("/setup/callback", ["abc"])
    return parse_qs(back.query)["code"][0]


async def test_a_manifest_becomes_an_app_whose_secrets_are_shown_once() -> None:
    async with FakeGitHub() as fake_github, httpx.AsyncClient(trust_env=False) as http:
        fake_github.sign_in("maintainer")
        fake_github.create_repository("acme/calc", {"a": "b"})
        shown = await http.post(
            f"{fake_github.server_url}/settings/apps/new", data={"manifest": json.dumps(MANIFEST)}
        )
        assert "Create GitHub App for maintainer" in shown.text
        assert fake_github.apps == ()
        code = await made(fake_github, http)
        conversion = f"{fake_github.api_url}/app-manifests/{code}/conversions"
        response = await http.post(conversion)
        (app,) = fake_github.apps
        assert (response.status_code, response.json()["pem"]) == (201, app.private_key_pem)
        assert response.json()["permissions"] == {"metadata": "read", "issues": "write", "contents": "write"}
        assert response.json()["events"] == ["issues"]
        assert (await http.post(conversion)).status_code == 404
        installed = await http.post(f"{fake_github.server_url}/apps/patchwright-1/installations/new")
        assert installed.headers["location"].startswith("http://127.0.0.1:1/welcome?installation_id=")
        (ping,) = fake_github.deliveries
        assert (ping.event, ping.status) == ("ping", None)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "x" * 35}, "too long"),
        ({"name": ""}, "blank"),
        ({"private": True}, "unknown private"),
        ({"hook_attributes": {"url": "nonsense"}}, "Hook url"),
        ({"redirect_url": ""}, "url wasn't supplied"),
    ],
)
async def test_an_invalid_manifest_creates_no_app(wrong: dict[str, object], why: str) -> None:
    async with FakeGitHub() as fake_github, httpx.AsyncClient(trust_env=False) as http:
        fake_github.sign_in("maintainer")
        data = {"manifest": json.dumps(MANIFEST | wrong), "agreed": "yes"}
        answer = await http.post(f"{fake_github.server_url}/settings/apps/new", data=data)
        assert answer.status_code == 422
        assert why in answer.text
        assert fake_github.apps == ()


async def test_an_organization_has_its_own_page_and_a_used_name_is_rejected() -> None:
    async with FakeGitHub() as fake_github, httpx.AsyncClient(trust_env=False) as http:
        fake_github.sign_in("maintainer")
        fake_github.create_repository("acme/calc", {"a": "b"})
        await made(fake_github, http, "/organizations/acme/settings/apps/new")
        data = {"manifest": json.dumps(MANIFEST), "agreed": "yes"}
        nobody = await http.post(
            f"{fake_github.server_url}/organizations/nobody/settings/apps/new", data=data
        )
        taken = await http.post(f"{fake_github.server_url}/settings/apps/new", data=data)
        assert (nobody.status_code, taken.status_code) == (404, 422)
        assert "already taken" in taken.text
