"""Logging in through an App, at the fake server: as strict as GitHub."""

import base64
import hashlib
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.github.oauth import ACCESS_TOKEN, AUTHORIZE, OAuthClient

BACK = "http://bot.test/login/callback"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
Api = Callable[..., httpx.AsyncClient]


@pytest.fixture
def login(fake_github: FakeGitHub, repo: Repository) -> OAuthClient:
    app = fake_github.create_app()
    fake_github.install_app(app, repo)
    return fake_github.create_oauth_client(app, BACK)


async def authorized(fake_github: FakeGitHub, login: OAuthClient, **more: str) -> dict[str, list[str]]:
    """What the browser is sent back with."""
    query = {
        "client_id": login.id,
        "state": "s",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    async with httpx.AsyncClient(base_url=fake_github.server_url) as http:
        answer = await http.post(AUTHORIZE, params=query | more)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith(BACK)
    return parse_qs(urlsplit(answer.headers["location"]).query)


async def exchanged(
    fake_github: FakeGitHub, login: OAuthClient, code: str, other: dict[str, str] | None = None
) -> dict[str, str]:
    data = {"client_id": login.id, "client_secret": login.secret, "code": code, "code_verifier": VERIFIER}
    async with httpx.AsyncClient(base_url=fake_github.server_url) as http:
        answer = await http.post(
            ACCESS_TOKEN, data=data | (other or {}), headers={"accept": "application/json"}
        )
    assert answer.status_code == 200
    found: dict[str, str] = answer.json()
    return found


async def test_a_user_authorizes_once_and_returns_with_a_code_for_a_token(
    fake_github: FakeGitHub, repo: Repository, login: OAuthClient, client: Api
) -> None:
    fake_github.set_role(repo, "writer", "write")
    fake_github.sign_in("writer")
    async with httpx.AsyncClient(base_url=fake_github.server_url) as http:
        response = await http.get(AUTHORIZE, params={"client_id": login.id})
        assert (response.status_code, "Authorize patchwright as writer" in response.text) == (200, True)
    back = await authorized(fake_github, login)
    assert back["state"] == ["s"]
    async with httpx.AsyncClient(base_url=fake_github.server_url) as http:
        assert (await http.get(AUTHORIZE, params={"client_id": login.id})).status_code == 302
    token = (await exchanged(fake_github, login, back["code"][0]))["access_token"]
    async with client(fake_github, token) as api:
        assert (await api.get("/user")).json()["login"] == "writer"
        may = (await api.get("/repos/acme/sample")).json()["permissions"]
    assert may == {"pull": True, "triage": True, "push": True, "maintain": False, "admin": False}


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"client_secret": "wrong"}, "incorrect_client_credentials"),
        ({"code": "unknown"}, "bad_verification_code"),
        ({"code_verifier": "w" * 50}, "bad_verification_code"),
        ({"redirect_uri": "http://elsewhere.test/"}, "redirect_uri_mismatch"),
    ],
)
async def test_invalid_parameters_get_no_token(
    fake_github: FakeGitHub, login: OAuthClient, other: dict[str, str], error: str
) -> None:
    fake_github.sign_in("reader")
    (code,) = (await authorized(fake_github, login))["code"]
    assert await exchanged(fake_github, login, code, other) == {"error": error}


async def test_a_code_works_once_and_is_sent_only_to_the_apps_callback(
    fake_github: FakeGitHub, login: OAuthClient
) -> None:
    fake_github.sign_in("reader")
    (code,) = (await authorized(fake_github, login))["code"]
    assert "access_token" in await exchanged(fake_github, login, code)
    assert await exchanged(fake_github, login, code) == {"error": "bad_verification_code"}
    refused = await authorized(fake_github, login, redirect_uri="http://elsewhere.test/")
    assert (refused["error"], "code" in refused) == (["redirect_uri_mismatch"], False)


async def test_a_user_token_sees_private_repositories_of_both_user_and_app(
    fake_github: FakeGitHub, login: OAuthClient, client: Api
) -> None:
    results = {}
    hidden, shared = (
        fake_github.create_repository(f"acme/{name}", {"a": "1"}, private=True)
        for name in ("hidden", "shared")
    )
    fake_github.set_role(hidden, "reader", "read")
    fake_github.set_role(shared, "reader", "read")
    fake_github.install_app(login.app, shared)
    for who in ("reader", "stranger"):
        fake_github.sign_in(who)
        (code,) = (await authorized(fake_github, login))["code"]
        async with client(fake_github, (await exchanged(fake_github, login, code))["access_token"]) as api:
            for name in ("hidden", "shared", "sample"):
                results[who, name] = (await api.get(f"/repos/acme/{name}")).status_code
    assert [name for name, status in results.items() if status == 200] == [
        ("reader", "shared"),
        ("reader", "sample"),
        ("stranger", "sample"),
    ]


async def test_only_the_app_of_a_token_can_revoke_it(
    fake_github: FakeGitHub, login: OAuthClient, client: Api
) -> None:
    fake_github.sign_in("reader")
    (code,) = (await authorized(fake_github, login))["code"]
    token = (await exchanged(fake_github, login, code))["access_token"]
    other = fake_github.create_oauth_client(fake_github.create_app("another"), BACK)
    received = []
    async with client(fake_github) as api:
        for of, secret, given in (
            (login, "wrong", token),
            (other, other.secret, token),
            (login, login.secret, fake_github.create_token("reader")),
            (login, login.secret, token),
        ):
            path = f"/applications/{of.id}/token"
            answer = await api.request("DELETE", path, auth=(of.id, secret), json={"access_token": given})
            received.append(answer.status_code)
            working = (await api.get("/user", headers={"authorization": f"Bearer {token}"})).status_code
            assert working == (401 if received[-1] == 204 else 200)
    assert received == [401, 422, 422, 204]
