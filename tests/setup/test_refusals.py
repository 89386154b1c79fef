"""What the page of the setup refuses and survives, asked as browsers and strangers ask it; each server is a process."""

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

from bot.setup import kept
from tests.setup.conftest import Fresh, until

pytestmark = pytest.mark.redis

WEBHOOK = {"server_url": "", "organization": "", "public_url": "", "reach": "webhook"}


async def sent_to_github(fresh: Fresh, http: httpx.AsyncClient, **form: str) -> tuple[str, dict[str, object]]:
    """The address that the browser is to post to, and the manifest."""
    page = await http.post("/setup/app", data=WEBHOOK | form)
    assert page.status_code == 200, page.text
    (address,) = re.findall(r'action="(http[^"]+/settings/apps/new[^"]*)"', page.text)
    (manifest,) = re.findall(r'name="manifest" value="([^"]*)"', page.text)
    host = urlsplit(fresh.world.server_url).netloc
    assert f"form-action 'self' http://{host};" in page.headers["content-security-policy"]
    return html.unescape(address), json.loads(html.unescape(manifest))


async def made(fresh: Fresh, http: httpx.AsyncClient, **form: str) -> str:
    """The address that GitHub sends the browser back to, once it has made the App."""
    address, manifest = await sent_to_github(fresh, http, **form)
    answer = await http.post(address, data={"manifest": json.dumps(manifest), "agreed": "yes"})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"].removeprefix(fresh.url)


def why(answer: httpx.Response) -> str:
    """What the page says has gone wrong."""
    (alert,) = re.findall(r'<div role="alert" class="why">(.*?)</div>', answer.text, re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", alert)).split())


@contextmanager
def full_disk(fresh: Fresh) -> Iterator[None]:
    """No file of the server's may grow: what writes to a full disk sees the same, in the middle of a write."""
    assert fresh.process is not None
    _, hard = resource.prlimit(fresh.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(fresh.process.pid, resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.prlimit(fresh.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


async def test_a_wrong_code_is_refused_and_twenty_of_them_shut_the_door(fresh: Fresh) -> None:
    async with fresh.serving(), fresh.stranger() as http:
        assert (await http.get("/")).headers["location"] == "/setup"
        first = await http.post("/setup/code", data={"code": "AAAA-BBBB-CCCC"})
        assert (first.status_code, "set-cookie" in first.headers) == (403, False)
        assert why(first).startswith("That is not the code.")
        guesses = (http.post("/setup/code", data={"code": f"guess-{n}"}) for n in range(19))
        assert {answer.status_code for answer in await asyncio.gather(*guesses)} == {403}
        right = await http.post("/setup/code", data={"code": fresh.code})
        assert (right.status_code, "A restart of the server prints a new one" in why(right)) == (403, True)
        assert fresh.log.count('"wrong setup code"') == 20
        first_code = fresh.code
    async with fresh.serving(), fresh.visitor() as http:  # a restart: a new one
        assert fresh.code != first_code
        again = await http.post("/setup/code", data={"code": fresh.code})
        assert (again.status_code, "it was used" in why(again)) == (403, True)


async def test_who_has_not_entered_the_code_sees_and_changes_nothing(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as visitor, fresh.stranger() as http:
        back = await made(fresh, visitor)
        asked = [
            await http.post("/setup/model", data={"model": "openai/evil"}),
            await http.post("/setup/app", data=WEBHOOK),
            await http.post("/setup/again"),
            await http.get(back),
            await http.get(back, headers={"cookie": "patchwright-setup=x"}),
        ]
        assert [answer.status_code for answer in asked] == [401] * 5
        assert "has not entered the code" in why(asked[0])
        elsewhere = {"origin": "https://evil.example"}
        forged = await visitor.post("/setup/app", data=WEBHOOK, headers=elsewhere)
        assert (forged.status_code, "not made with a button" in why(forged)) == (403, True)
        huge = await visitor.post("/setup/app", data={"organization": "x" * 20_000})
        assert huge.status_code == 413
        statuses = [
            (await http.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics", "/jobs")
        ]
        assert statuses == [200, 503, 404, 404]
        assert (await http.post("/webhook", content=b"{}")).status_code == 503
        assert kept.read(fresh.data / "data") == kept.Kept()


async def test_a_state_that_is_missing_or_wrong_makes_nothing_and_a_used_code_says_how_to_go_on(
    fresh: Fresh,
) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        back = await made(fresh, http)
        code = back.partition("code=")[2].partition("&")[0]
        for wrong in (f"/setup/made?code={code}", f"/setup/made?code={code}&state=x", "/setup/made"):
            answer = await http.get(wrong)
            assert (answer.status_code, why(answer).startswith("GitHub's answer belongs to no App")) == (
                400,
                True,
            )
        conversion = f"{fresh.world.api_url}/app-manifests/{code}/conversions"
        assert (await http.post(conversion)).status_code == 201  # somebody was faster
        used = await http.get(back)
        assert (used.status_code, "delete it in its settings, under Advanced" in why(used)) == (410, True)
        again = await made(fresh, http)
        assert (await http.get(again)).headers["location"] == "/welcome"
        async with asyncio.timeout(60):  # the page is gone as soon as the server itself answers
            while (await http.get(again)).status_code != 404:
                await asyncio.sleep(0.1)


async def test_when_github_fails_the_same_address_works_later(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        back = await made(fresh, http)
        fresh.world.refuse_next("POST", "/conversions", status=500)
        fresh.world.refuse_next("POST", "/conversions", status=201, body={"id": "none", "pem": "hunter2"})
        for _ in range(2):
            answer = await http.get(back)
            assert (answer.status_code, why(answer).startswith("GitHub did not tell of the App.")) == (
                502,
                True,
            )
            assert "hunter2" not in answer.text
            assert back in html.unescape(answer.text)  # the link to try again
        assert (await http.get(back)).headers["location"] == "/welcome"


async def test_a_full_disk_stops_before_an_app_is_made_and_loses_none_that_was(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        with full_disk(fresh):
            early = await http.post("/setup/app", data=WEBHOOK)
            assert (early.status_code, "No App was made yet" in why(early)) == (507, True)
        back = await made(fresh, http)
        with full_disk(fresh):
            late = await http.get(back)
            assert (late.status_code, "This page still has it" in why(late)) == (507, True)
            assert (await http.post("/setup/again")).status_code == 507
        directory = kept.path_in(fresh.data / "data").parent
        assert list(directory.iterdir()) == []  # nothing half
        assert fresh.world.apps[0].private_key_pem not in late.text
        assert (await http.post("/setup/again")).headers["location"] == "/welcome"
        (app,) = fresh.world.apps
        found = kept.read(fresh.data / "data").app
        assert found is not None
        assert found.private_key == app.private_key_pem


async def test_a_model_that_does_not_call_is_told_and_can_be_used_anyway(fresh: Fresh) -> None:
    fresh.mind.fit = False
    async with fresh.serving(), fresh.visitor() as http:
        said = {"model": "openai/scripted", "base_url": fresh.mind.base_url, "key": "sk-story-model-key"}
        for wrong, told in (
            ({"model": "", "base_url": "http://here/v1"}, "The model needs a name"),
            ({"model": "m", "base_url": "javascript:alert(1)"}, "The model's address makes no sense"),
        ):
            answer = await http.post("/setup/model", data=wrong)
            assert (answer.status_code, told in html.unescape(why(answer))) == (400, True)
            assert all(f'value="{html.escape(typed)}"' in answer.text for typed in wrong.values())
        nameless = await http.post("/setup/model", data={"model": "m", "key": "sk-story-model-key"})
        assert "names no provider: write the name as provider/model" in html.unescape(why(nameless))
        refused = await http.post("/setup/model", data=said)
        assert (refused.status_code, "I would rather talk" in why(refused)) == (400, True)
        assert "sk-story-model-key" not in refused.text
        assert (await http.post("/setup/model", data={"anyway": "yes"})).status_code == 303
        assert "The GitHub App" in (await http.get("/setup")).text
    model = kept.read(fresh.data / "data").model
    assert model is not None
    assert (model.model, model.model_api_key) == ("openai/scripted", "sk-story-model-key")


@pytest.mark.parametrize(
    "wrong",
    [
        {"server_url": "github.com"},
        {"server_url": "https://evil.example/<script>"},
        {"organization": "../settings"},
        {"public_url": "https://a b"},
        {"public_url": "https://user:word@host"},
    ],
)
async def test_addresses_that_make_no_sense_are_refused(fresh: Fresh, wrong: dict[str, str]) -> None:
    from bot.setup.wish import wish
    from resolver.settings.settings import Settings

    assert wish(WEBHOOK | wrong, Settings(data=fresh.data), "http://localhost:8000") is None


@pytest.mark.slow
async def test_behind_a_firewall_the_app_has_no_webhook_and_the_server_looks(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        _, manifest = await sent_to_github(fresh, http, reach="poll")
        assert not {"hook_attributes", "default_events"} & manifest.keys()
        assert manifest["default_permissions"] == {
            "metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write",
            "checks": "write", "actions": "read", "statuses": "read",
        }  # fmt: skip
        await http.get(await made(fresh, http, reach="poll"))
        await until(lambda: "patchwright looks at GitHub again and again" in "".join(fresh.lines))
        page = (await http.get("/welcome")).text
        looks = (
            r"This server looks at GitHub every 30 s(; last at \d\d:\d\d:\d\d UTC, in \d repositor(y|ies))?\."
        )
        assert re.search(looks, page)
        stranger = await http.get("/welcome", headers={"cookie": ""})
        assert (stranger.status_code, stranger.headers["location"]) == (303, "/")
    async with fresh.serving_again() as lines:  # a restart asks nothing
        said = "patchwright looks at GitHub again and again; its page is at "
        assert lines[0].startswith(said)
        url = lines[0].removeprefix(said).strip()
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as browser:
            entrance = await browser.get("/", follow_redirects=True)
            assert (entrance.status_code, "Log in with GitHub" in entrance.text) == (200, True)
            installed = await browser.get("/welcome?installation_id=1&setup_action=install")
            assert (installed.status_code, installed.headers["location"]) == (303, "/")


async def test_people_at_that_machine_log_in_with_github_where_it_was_set_up_at_loopback(
    fresh: Fresh,
) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        assert fresh.url.startswith("http://127.0.0.1:")
        await http.get(await made(fresh, http, reach="poll"))
        await until(lambda: "patchwright looks at GitHub again and again" in "".join(fresh.lines))
        async with fresh.stranger() as browser:
            entrance = await browser.get("/", follow_redirects=True)
            (way,) = re.findall(r'href="(/login/github[^"]*)"', entrance.text)
            asked = await browser.get(html.unescape(way), follow_redirects=True)
            assert str(asked.url).startswith(f"{fresh.world.server_url}/login/oauth/authorize?")
            runs = await browser.post(str(asked.url), follow_redirects=True)
            assert (runs.status_code, str(runs.url)) == (200, f"{fresh.url}/")
            assert [answer.url.path for answer in runs.history] == [
                "/login/oauth/authorize",
                "/login/callback",
            ]
            assert '<span class="who">maintainer</span>' in runs.text


async def test_what_was_typed_stands_there_again_for_who_comes_back_but_no_key(fresh: Fresh) -> None:
    fresh.mind.fit = False
    typed = {
        "server_url": fresh.world.server_url + "/",
        "organization": "acme",
        "public_url": "https://patchwright.example.com",
        "reach": "webhook",
    }
    async with fresh.serving(), fresh.visitor() as http:
        model = {"model": "openai/scripted", "base_url": fresh.mind.base_url, "key": "sk-story-model-key"}
        await http.post("/setup/model", data=model)
        back = (await http.get("/setup")).text
        assert all(f'value="{model[name]}"' in back for name in ("model", "base_url"))
        assert "sk-story-model-key" not in back
        await http.post("/setup/model", data={"anyway": "yes"})
        fields = (await http.get("/setup")).text
        assert 'value="poll" checked' in fields
        assert f"Only this machine reaches {fresh.url}, so polling is chosen." in fields
        await http.post("/setup/app", data=typed)
        fields = (await http.get("/setup")).text
        assert all(f'value="{value}"' in fields for value in typed.values())
        assert 'value="webhook" checked' in fields
        assert "Only this machine" not in fields
        await http.post("/setup/app", data=typed | {"organization": ""})
        assert "acme" not in (await http.get("/setup")).text


async def test_a_model_whose_price_nobody_knows_is_told_with_the_limits_that_hold(fresh: Fresh) -> None:
    said = {"model": "openai/scripted", "base_url": fresh.mind.base_url, "key": "sk-story-model-key"}
    async with fresh.serving(), fresh.visitor() as http:
        page = html.unescape((await http.post("/setup/model", data=said)).text)
        for words in (
            "its price is unknown", "$2.00 for a run and $50.00 for a day cannot be held", "100 steps and 1 h",
            """PATCHWRIGHT_MODEL_PRICES='{"openai/scripted": {"input": 0.5, "output": 1.5}}'""",
            "PATCHWRIGHT_MAX_TOKENS=",
        ):  # fmt: skip
            assert words in page
        assert "sk-story-model-key" not in page
        assert "The model" in (await http.get("/setup")).text  # nothing is kept yet
        assert (await http.post("/setup/model", data={"anyway": "yes"})).status_code == 303
        assert "The GitHub App" in (await http.get("/setup")).text
    prices = '{"openai/scripted": {"input": 0.5, "output": 1.5}}'
    kept.path_in(fresh.data / "data").unlink()
    async with fresh.serving(PATCHWRIGHT_MODEL_PRICES=prices), fresh.visitor() as http:
        assert (await http.post("/setup/model", data=said)).status_code == 303


async def test_an_organization_owns_the_app_that_is_made_for_it(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        address, manifest = await sent_to_github(fresh, http, organization="acme")
        assert urlsplit(address).path == "/organizations/acme/settings/apps/new"
        assert manifest["hook_attributes"] == {"url": f"{fresh.url}/webhook", "active": True}
        assert "installation" not in str(manifest["default_events"])


async def test_who_has_set_a_part_is_told_what_lacks_and_a_worker_where_to_begin(fresh: Fresh) -> None:
    fresh.know_a_model()
    for part, says in (
        ({"PATCHWRIGHT_WEBHOOK_SECRET": "x"}, "GITHUB_TOKEN is not set"),
        ({"GITHUB_TOKEN": "ghp_x"}, "PATCHWRIGHT_WEBHOOK_SECRET is not set"),
        ({"PATCHWRIGHT_APP_ID": "7"}, "PATCHWRIGHT_WEBHOOK_SECRET is not set"),
    ):
        code, said = await fresh.command("serve", "--port", "0", **part)
        assert (code, says in said) == (2, True), said
    code, said = await fresh.command("work", REDIS_URL="redis://127.0.0.1:1/0")
    assert (code, "`patchwright serve` begins with a page that makes an App" in said) == (2, True), said
