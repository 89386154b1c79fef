"""The setup wizard: valid and invalid input, attacks, and failures. Each server is a process."""

import asyncio
import html
import json
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from patchwright.bot.setup import credential_store
from tests.bot.setup.conftest import UnconfiguredServer, wait_until
from tests.preloaded_command import COMMAND

pytestmark = [pytest.mark.redis, pytest.mark.slow]

WEBHOOK = {"server_url": "", "organization": "", "public_url": "", "reach": "webhook"}


async def post_app_form(
    server: UnconfiguredServer, http: httpx.AsyncClient, **form: str
) -> tuple[str, dict[str, object]]:
    """Returns the URL that the browser posts the manifest to, and the manifest."""
    page = await http.post("/setup/app", data=WEBHOOK | form)
    assert page.status_code == 200, page.text
    (address,) = re.findall(r'action="(http[^"]+/settings/apps/new[^"]*)"', page.text)
    (manifest,) = re.findall(r'name="manifest" value="([^"]*)"', page.text)
    host = urlsplit(server.fake_github.server_url).netloc
    assert f"form-action 'self' http://{host};" in page.headers["content-security-policy"]
    return html.unescape(address), json.loads(html.unescape(manifest))


async def create_app(server: UnconfiguredServer, http: httpx.AsyncClient, **form: str) -> str:
    """The URL to which GitHub redirects the browser after it created the App."""
    address, manifest = await post_app_form(server, http, **form)
    answer = await http.post(address, data={"manifest": json.dumps(manifest), "agreed": "yes"})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"].removeprefix(server.url)


def parse_alert(answer: httpx.Response) -> str:
    """Returns the error message of a page."""
    (alert,) = re.findall(r'<div role="alert" class="alert">(.*?)</div>', answer.text, re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", alert)).split())


def confirmations(answer: httpx.Response) -> dict[str, str]:
    """Returns the hidden fields of the App's form, with which a person confirms what was doubted."""
    return {
        name: html.unescape(value)
        for name, value in re.findall(r'name="(confirmed_\w+)" value="([^"]*)"', answer.text)
    }


@contextmanager
def full_disk(server: UnconfiguredServer) -> Iterator[None]:
    """Limits the size of the server's files: writes fail halfway, as on a full disk."""
    assert server.process is not None
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


async def test_twenty_wrong_codes_invalidate_the_code(server: UnconfiguredServer) -> None:
    async with server.started(), server.browser() as http:
        assert (await http.get("/")).headers["location"] == "/setup"
        first = await http.post("/setup/code", data={"code": "AAAA-BBBB-CCCC"})
        assert (first.status_code, "set-cookie" in first.headers) == (403, False)
        assert parse_alert(first).startswith("The code is wrong.")
        guesses = (http.post("/setup/code", data={"code": f"guess-{n}"}) for n in range(19))
        assert {answer.status_code for answer in await asyncio.gather(*guesses)} == {403}
        right = await http.post("/setup/code", data={"code": server.code})
        assert (right.status_code, "Restart the server to get a new code" in parse_alert(right)) == (
            403,
            True,
        )
        assert server.log.count('"wrong setup code"') == 20
        first_code = server.code
    async with server.started(), server.authorized_browser() as http:  # a restart creates a new code
        assert server.code != first_code
        again = await http.post("/setup/code", data={"code": server.code})
        assert (again.status_code, "it was used" in parse_alert(again)) == (403, True)
        _, checks = await server.command("doctor")
        assert "running, but its setup in the browser is not complete" in checks


async def test_the_setup_requires_the_code(server: UnconfiguredServer) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as visitor, server.browser() as http:
        back = await create_app(server, visitor)
        response = [
            await http.post("/setup/model", data={"model": "openai/evil"}),
            await http.post("/setup/app", data=WEBHOOK),
            await http.post("/setup/retry"),
            await http.get(back),
            await http.get(back, headers={"cookie": "patchwright-setup=x"}),
        ]
        assert [answer.status_code for answer in response] == [401] * 5
        assert "has not entered the setup code" in parse_alert(response[0])
        elsewhere = {"origin": "https://evil.example"}
        forged = await visitor.post("/setup/app", data=WEBHOOK, headers=elsewhere)
        assert (forged.status_code, "did not come from this page" in parse_alert(forged)) == (403, True)
        huge = await visitor.post("/setup/app", data={"organization": "x" * 20_000})
        assert huge.status_code == 413
        statuses = [
            (await http.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics", "/jobs")
        ]
        assert statuses == [200, 503, 404, 404]
        assert (await http.post("/webhook", content=b"{}")).status_code == 503
        assert credential_store.load(server.data / "data") == credential_store.StoredSetup()


async def _status_code(http: httpx.AsyncClient, url: str) -> int | None:
    """Returns None if the setup's server closed the connection while it was stopping."""
    try:
        return (await http.get(url)).status_code
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return None


async def test_a_wrong_state_and_a_used_manifest_code_are_rejected(
    server: UnconfiguredServer,
) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        back = await create_app(server, http)
        code = back.partition("code=")[2].partition("&")[0]
        for wrong in (
            f"/setup/callback?code={code}",
            f"/setup/callback?code={code}&state=x",
            "/setup/callback",
        ):
            answer = await http.get(wrong)
            assert (
                answer.status_code,
                parse_alert(answer).startswith("GitHub's response does not belong"),
            ) == (
                400,
                True,
            )
        conversion = f"{server.fake_github.api_url}/app-manifests/{code}/conversions"
        assert (await http.post(conversion)).status_code == 201  # another person used the code
        used = await http.get(back)
        assert (used.status_code, "Delete the App in its settings on GitHub" in parse_alert(used)) == (
            410,
            True,
        )
        again = await create_app(server, http)
        assert (await http.get(again)).headers["location"] == "/welcome"
        async with asyncio.timeout(60):  # the page is gone as soon as the server itself answers
            while await _status_code(http, again) != 404:
                await asyncio.sleep(0.1)


async def test_the_callback_can_be_retried_when_github_fails(server: UnconfiguredServer) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        back = await create_app(server, http)
        server.fake_github.fail_next_request("POST", "/conversions", status=500)
        server.fake_github.fail_next_request(
            "POST", "/conversions", status=201, body={"id": "none", "pem": "hunter2"}
        )
        for _ in range(2):
            answer = await http.get(back)
            assert (
                answer.status_code,
                parse_alert(answer).startswith("GitHub did not return the App."),
            ) == (
                502,
                True,
            )
            assert "hunter2" not in answer.text
            assert back in html.unescape(answer.text)  # the link to try again
        assert (await http.get(back)).headers["location"] == "/welcome"


async def test_a_full_disk_loses_no_app(server: UnconfiguredServer) -> None:
    server.configure_model()
    async with server.started(program=COMMAND), server.authorized_browser() as http:
        with full_disk(server):
            early = await http.post("/setup/app", data=WEBHOOK)
            assert (early.status_code, "No App was created yet" in parse_alert(early)) == (507, True)
        back = await create_app(server, http)
        with full_disk(server):
            late = await http.get(back)
            assert (late.status_code, "The server still has the key in memory" in parse_alert(late)) == (
                507,
                True,
            )
            assert (await http.post("/setup/retry")).status_code == 507
        directory = credential_store.store_path(server.data / "data").parent
        assert list(directory.iterdir()) == []  # no partial files
        assert server.fake_github.apps[0].private_key_pem not in late.text
        assert (await http.post("/setup/retry")).headers["location"] == "/welcome"
        (app,) = server.fake_github.apps
        found = credential_store.load(server.data / "data").app
        assert found is not None
        assert found.private_key == app.private_key_pem


async def test_an_address_that_cannot_work_is_reported_before_the_app_is_created(
    server: UnconfiguredServer,
) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        nowhere = WEBHOOK | {"server_url": "https://github.invalid", "public_url": server.url}
        warned = await http.post("/setup/app", data=nowhere)
        assert (warned.status_code, parse_alert(warned)) == (
            400,
            "GitHub cannot reach the URL of this server, because it is a loopback address. Choose polling, or "
            "enter a URL that GitHub can reach. To use this URL anyway, press Continue again.",
        )
        (confirmed,) = re.findall(r'name="confirmed_url" value="([^"]*)"', warned.text)
        response = await http.post("/setup/app", data=nowhere | {"confirmed_url": confirmed})
        assert response.status_code == 502
        assert parse_alert(response).startswith("This server cannot reach GitHub at this URL.")
        assert "No response from github.invalid (" in parse_alert(response)
        assert "[Errno" not in parse_alert(response)
        typed = await http.post("/setup/app", data=WEBHOOK | {"server_url": "github.com"})
        assert "Enter it with https:// or http://, such as https://github.com." in parse_alert(typed)


async def test_a_misspelled_organization_and_a_wrong_port_are_reported(server: UnconfiguredServer) -> None:
    server.configure_model()
    wrong = {"organization": "acmee", "public_url": "http://127.0.0.1:1", "reach": "poll"}
    async with server.started(), server.authorized_browser() as http:
        for name, problem in {
            "acmee": "GitHub has no organization of this name.",
            "maintainer": "GitHub has no organization of this name.",
            "acme": "This server does not respond at the URL that you entered for it. Check the port.",
        }.items():
            answer = await http.post("/setup/app", data=WEBHOOK | wrong | {"organization": name})
            assert (answer.status_code, parse_alert(answer).startswith(problem)) == (400, True)
        answer = await http.post("/setup/app", data=WEBHOOK | wrong)
        for problem in ("no organization", "Check the port."):
            assert problem in parse_alert(answer)
            answer = await http.post("/setup/app", data=WEBHOOK | wrong | confirmations(answer))
        assert (answer.status_code, "Permissions of the App" in answer.text) == (200, True)
        assert "change its name there, for example if GitHub says that the name is taken." in answer.text
        assert (await http.post("/setup/app", data=WEBHOOK | {"reach": "poll"})).status_code == 200


async def test_a_redis_that_does_not_respond_is_reported_before_the_setup(server: UnconfiguredServer) -> None:
    code, output = await server.command("serve", "--port", "0", REDIS_URL="redis://127.0.0.1:1/0")
    problem = "Redis at redis://127.0.0.1:1/0 does not respond (connection refused)."
    assert (code, f"{problem} Start it, or correct REDIS_URL." in output) == (2, True), output
    assert "enter this code" not in output


async def test_with_polling_the_app_has_no_webhook(server: UnconfiguredServer) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        _, manifest = await post_app_form(server, http, reach="poll")
        assert not {"hook_attributes", "default_events"} & manifest.keys()
        assert manifest["default_permissions"] == {
            "metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write",
            "checks": "write", "actions": "read", "statuses": "read",
        }  # fmt: skip
        await http.get(await create_app(server, http, reach="poll"))
        await wait_until(lambda: "patchwright is polling GitHub" in "".join(server.lines))
        page = (await http.get("/welcome")).text
        looks = r"This server polls GitHub every 30 seconds(; last poll at \d\d:\d\d:\d\d UTC, \d repositor(y|ies))?\."
        assert re.search(looks, page)
        stranger = await http.get("/welcome", headers={"cookie": ""})
        assert (stranger.status_code, stranger.headers["location"]) == (303, "/")
    async with server.restarted() as lines:  # a restart skips the setup
        prefix = "patchwright is polling GitHub; the dashboard is at "
        assert lines[0].startswith(prefix)
        url = lines[0].removeprefix(prefix).strip()
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as browser:
            entrance = await browser.get("/", follow_redirects=True)
            assert (entrance.status_code, "Sign in with GitHub" in entrance.text) == (200, True)
            installed = await browser.get("/welcome?installation_id=1&setup_action=install")
            assert (installed.status_code, installed.headers["location"]) == (303, "/")


async def test_people_can_sign_in_at_a_loopback_url(
    server: UnconfiguredServer,
) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        assert server.url.startswith("http://127.0.0.1:")
        await http.get(await create_app(server, http, reach="poll"))
        await wait_until(lambda: "patchwright is polling GitHub" in "".join(server.lines))
        async with server.browser() as browser:
            entrance = await browser.get("/", follow_redirects=True)
            (way,) = re.findall(r'href="(/login/github[^"]*)"', entrance.text)
            response = await browser.get(html.unescape(way), follow_redirects=True)
            assert str(response.url).startswith(f"{server.fake_github.server_url}/login/oauth/authorize?")
            runs = await browser.post(str(response.url), follow_redirects=True)
            assert (runs.status_code, str(runs.url)) == (200, f"{server.url}/")
            assert [answer.url.path for answer in runs.history] == [
                "/login/oauth/authorize",
                "/login/callback",
            ]
            assert '<span class="user">maintainer</span>' in runs.text


async def test_forms_remember_their_values_but_no_secrets(server: UnconfiguredServer) -> None:
    server.fake_model.passes_probe = False
    values = {
        "server_url": server.fake_github.server_url + "/",
        "organization": "acme",
        "public_url": "https://patchwright.example.com",
        "reach": "webhook",
    }
    async with server.started(), server.authorized_browser() as http:
        model = {
            "model": "openai/scripted",
            "base_url": server.fake_model.base_url,
            "key": "sk-story-model-key",
        }
        await http.post("/setup/model", data=model)
        back = (await http.get("/setup")).text
        assert all(f'value="{model[name]}"' in back for name in ("model", "base_url"))
        assert "sk-story-model-key" not in back
        await http.post("/setup/model", data={"anyway": "yes"})
        fields = (await http.get("/setup")).text
        assert 'value="poll" checked' in fields
        assert f"{server.url} is only reachable from this machine, so polling is selected." in fields
        assert "Only people on this machine can then sign in to the dashboard" in fields
        await http.post("/setup/app", data=values)
        fields = (await http.get("/setup")).text
        assert all(f'value="{value}"' in fields for value in values.values())
        assert 'value="webhook" checked' in fields
        assert "only reachable from this machine" not in fields
        await http.post("/setup/app", data=values | {"organization": ""})
        assert "acme" not in (await http.get("/setup")).text


async def test_a_model_with_an_unknown_price_shows_the_remaining_limits(server: UnconfiguredServer) -> None:
    form = {"model": "openai/scripted", "base_url": server.fake_model.base_url, "key": "sk-story-model-key"}
    async with server.started(), server.authorized_browser() as http:
        page = html.unescape((await http.post("/setup/model", data=form)).text)
        for words in (
            "its price is unknown", "$2.00 per run and $50.00 per day cannot be enforced", "100 steps and 1 h",
            """PATCHWRIGHT_MODEL_PRICES='{"openai/scripted": {"input": 0.5, "output": 1.5}}'""",
            "PATCHWRIGHT_MAX_TOKENS=",
        ):  # fmt: skip
            assert words in page
        assert "sk-story-model-key" not in page
        assert "Choose a model" in (await http.get("/setup")).text  # nothing is saved yet
        assert (await http.post("/setup/model", data={"anyway": "yes"})).status_code == 303
        assert "Create the GitHub App" in (await http.get("/setup")).text
    prices = '{"openai/scripted": {"input": 0.5, "output": 1.5}}'
    credential_store.store_path(server.data / "data").unlink()
    async with server.started(PATCHWRIGHT_MODEL_PRICES=prices), server.authorized_browser() as http:
        assert (await http.post("/setup/model", data=form)).status_code == 303


async def test_an_app_can_belong_to_an_organization(server: UnconfiguredServer) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        address, manifest = await post_app_form(server, http, organization="acme")
        assert urlsplit(address).path == "/organizations/acme/settings/apps/new"
        assert manifest["hook_attributes"] == {"url": f"{server.url}/webhook", "active": True}
        assert "installation" not in str(manifest["default_events"])


async def test_partial_settings_are_reported_instead_of_starting_the_setup(
    server: UnconfiguredServer,
) -> None:
    server.configure_model()
    for part, says in (
        ({"PATCHWRIGHT_WEBHOOK_SECRET": "x"}, "GITHUB_TOKEN is not set"),
        ({"GITHUB_TOKEN": "ghp_x"}, "run `unset GITHUB_TOKEN` to set the server up in the browser"),
        ({"PATCHWRIGHT_APP_ID": "7"}, "PATCHWRIGHT_WEBHOOK_SECRET is not set"),
    ):
        code, output = await server.command("serve", "--port", "0", **part)
        assert (code, says in output) == (2, True), output
    code, output = await server.command("work", REDIS_URL="redis://127.0.0.1:1/0")
    assert (code, "`patchwright serve` can create the App" in output) == (2, True), output
