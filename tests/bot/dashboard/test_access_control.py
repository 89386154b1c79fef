"""Who may see a run, and who may stop or retry it."""

import re

import httpx
import pytest

from patchwright.bot.dashboard.access_control import CACHE_SECONDS, MAX_CHECKED_REPOSITORIES, AccessControl
from patchwright.bot.dashboard.github_oauth import GitHubOAuth, OAuthConfig
from patchwright.bot.redis.delivery_inbox import StoredDelivery
from patchwright.bot.redis.sessions import DashboardUser, Session
from patchwright.bot.run_summary import RunSummary
from patchwright.bot.webhooks.triggers import DASHBOARD_EVENT, TriggerRequest
from patchwright.resolver.domain import JobId, Repo, User
from tests.bot.dashboard.conftest import DashboardServer
from tests.resolver.sample_runs import full_run, started

pytestmark = pytest.mark.redis

RUN, SECRET_RUN = "acme-calc-1-x", "umbrella-vault-3-x"


async def stored_commands(server: DashboardServer) -> list[StoredDelivery]:
    if not await server.inbox.size():
        return []
    return [one for one in await server.inbox.read("a-test") if one.event == DASHBOARD_EVENT]


def parse_csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def parse_nonce(page: str) -> str:
    found = re.search(r'name="nonce" value="([0-9a-f]{12})"', page)
    assert found is not None
    return found[1]


async def press(
    browser: httpx.AsyncClient, verb: str, run: str = RUN, csrf: str | None = None, nonce: str = "0" * 12
) -> httpx.Response:
    csrf = parse_csrf((await browser.get("/")).text) if csrf is None else csrf
    return await browser.post(f"/runs/{run}/{verb}", data={"csrf": csrf, "nonce": nonce})


@pytest.fixture
async def private_server(server: DashboardServer) -> DashboardServer:
    """A server with a run of acme/calc, and a run of a private repository that only its owner can read."""
    other = server.fake_github.create_repository(
        "umbrella/vault", {"a": "1"}, permissions={"owner": "admin"}, private=True
    )
    server.fake_github.install_app(server.login.app, other)
    await server.add_finished_run(SECRET_RUN, *full_run(), repo="umbrella/vault", number=3)
    await server.add_finished_run(RUN, *full_run())
    return server


async def test_a_run_is_visible_to_readers_of_its_repository(private_server: DashboardServer) -> None:
    results = {}
    for person in ("maintainer", "reader", "owner", "stranger"):
        browser = await private_server.person(person)
        for run in (RUN, SECRET_RUN):
            results[person, run] = (await browser.get(f"/runs/{run}")).status_code
        listed = (await browser.get("/")).text
        assert (RUN in listed, SECRET_RUN in listed) == tuple(
            results[person, run] == 200 for run in (RUN, SECRET_RUN)
        )
        assert ("umbrella" in listed) == (person == "owner")
    assert [who for who, status in results.items() if status == 200] == [
        ("maintainer", RUN),
        ("reader", RUN),
        ("owner", SECRET_RUN),
    ]
    assert {status for status in results.values() if status != 200} == {404}


async def test_an_inaccessible_run_looks_like_a_missing_run(private_server: DashboardServer) -> None:
    browser = await private_server.person("stranger")
    for path in ("", "/events"):
        hidden = await browser.get(f"/runs/{SECRET_RUN}{path}")
        unknown = await browser.get(f"/runs/umbrella-vault-3-nothing{path}")
        assert hidden.status_code == unknown.status_code == 404
        assert hidden.text == unknown.text
        assert dict(hidden.headers) | {"date": ""} == dict(unknown.headers) | {"date": ""}
    csrf = parse_csrf((await browser.get("/")).text)
    hidden = await press(browser, "stop", SECRET_RUN, csrf)
    assert (hidden.status_code, hidden.text) == (404, unknown.text)


async def test_runs_of_public_repositories_need_a_sign_in(server: DashboardServer) -> None:
    server.repo.private = False
    await server.add_finished_run(RUN, *full_run())
    nobody = server.browser()
    assert (await nobody.get(f"/runs/{RUN}")).headers["location"].startswith("/login")
    assert (
        await nobody.get(f"/runs/{RUN}/events", headers={"accept": "text/event-stream"})
    ).status_code == 401
    somebody = await server.person("stranger")
    assert (await somebody.get(f"/runs/{RUN}")).status_code == 200


async def test_a_writer_can_stop_a_run_with_the_button(server: DashboardServer) -> None:
    async with server.add_running_run(RUN, number=5) as worker:
        await worker.write(started())
        browser = await server.person("maintainer")
        page = (await browser.get(f"/runs/{RUN}")).text
        assert ("Stop this run" in page, ">Retry<" in page) == (True, False)
        answer = await press(browser, "stop")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{RUN}?requested=stop")
        assert "Stop requested." in (await browser.get(answer.headers["location"])).text
    (delivery,) = await stored_commands(server)
    found = TriggerRequest.model_validate_json(delivery.body)
    maintainer = server.fake_github.user("maintainer")
    assert (found.request.verb, found.job.repo, found.job.number) == (
        "stop",
        Repo(owner="acme", name="calc"),
        5,
    )
    assert found.job.requester == User(id=maintainer.id, login="maintainer")


async def test_pressing_a_button_twice_sends_one_command(server: DashboardServer) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser = await server.person("maintainer")
    page, another = [(await browser.get(f"/runs/{RUN}")).text for _ in range(2)]
    for shown in (page, page, another):
        assert (await press(browser, "retry", nonce=parse_nonce(shown))).status_code == 303
    ids = [
        TriggerRequest.model_validate_json(delivery.body).job.id for delivery in await stored_commands(server)
    ]
    assert (ids[0] == ids[-1], len(set(ids))) == (False, 2)  # a reloaded page sends a new command


@pytest.mark.parametrize("nonce", ["", "x" * 12, "0" * 11, "0" * 13, "../../../../"])
async def test_a_command_with_an_invalid_nonce_is_rejected(server: DashboardServer, nonce: str) -> None:
    await server.add_finished_run(RUN, *full_run())
    answer = await press(await server.operator(), "retry", nonce=nonce)
    assert (answer.status_code, await stored_commands(server)) == (400, [])


async def test_the_operator_can_retry_a_finished_run_without_a_github_account(
    server: DashboardServer,
) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser = await server.operator()
    page = (await browser.get(f"/runs/{RUN}")).text
    assert ("Stop this run" in page, ">Retry<" in page) == (False, True)
    answer = await press(browser, "retry")
    assert answer.headers["location"] == f"/runs/{RUN}?requested=retry"
    (delivery,) = await stored_commands(server)
    found = TriggerRequest.model_validate_json(delivery.body)
    assert (found.request.verb, found.job.requester, found.job.command) == ("retry", None, "retry")
    assert (found.run, found.job.retry_of) == (RUN, RUN)


async def test_a_reader_sees_no_buttons_and_cannot_send_commands(server: DashboardServer) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser = await server.person("reader")
    page = (await browser.get(f"/runs/{RUN}")).text
    assert ("Stop this run" in page, ">Retry<" in page) == (False, False)
    for verb in ("stop", "retry"):
        answer = await press(browser, verb)
        assert (answer.status_code, "Write access required" in answer.text) == (403, True)
    assert await stored_commands(server) == []


async def test_write_access_is_checked_again_for_each_command(
    server: DashboardServer,
) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser = await server.person("maintainer")
    assert ">Retry<" in (await browser.get(f"/runs/{RUN}")).text
    server.fake_github.set_role(server.repo, "maintainer", "read")
    assert (await press(browser, "retry")).status_code == 403
    assert await stored_commands(server) == []


async def test_cross_site_commands_are_rejected(server: DashboardServer) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser, other = await server.person("maintainer"), await server.operator()
    theirs, mine = [parse_csrf((await one.get("/")).text) for one in (other, browser)]
    for forged in ("", "x", "ä", theirs, mine[:-1], mine.upper()):
        answer = await press(browser, "stop", csrf=forged)
        assert (answer.status_code, "Request rejected" in answer.text) == (403, True)
    for headers in ({"origin": "https://evil.test"}, {"sec-fetch-site": "same-site"}, {"origin": "null"}):
        form = {"csrf": mine, "nonce": "0" * 12}
        answer = await browser.post(f"/runs/{RUN}/stop", data=form, headers=headers)
        assert answer.status_code == 403
    assert (await browser.get(f"/runs/{RUN}/stop")).status_code == 405
    assert (await press(browser, "delete")).status_code == 404
    assert await stored_commands(server) == []
    assert (await press(browser, "stop", csrf=mine)).status_code == 303  # the positive control


async def test_a_webhook_delivery_cannot_send_a_dashboard_command(server: DashboardServer) -> None:
    from tests.bot.deliveries import signed

    headers, body = signed(DASHBOARD_EVENT, b"{}", secret="story-webhook-secret")
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{server.url}/webhook", headers=headers, content=body)
    assert answer.json()["status"] == "ignored"
    assert await stored_commands(server) == []


async def test_runs_are_hidden_while_github_is_unavailable(server: DashboardServer) -> None:
    browser = await server.person("reader")
    await server.add_finished_run(RUN, *full_run())
    server.fake_github.fail_next_request("GET", "/repos/acme/calc", status=500, times=2)
    for path in ("/", f"/runs/{RUN}"):
        answer = await browser.get(path)
        assert (answer.status_code, "GitHub is not responding" in answer.text) == (502, True)
    assert (await browser.get(f"/runs/{RUN}")).status_code == 200


async def test_access_levels_are_cached(server: DashboardServer) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser = await server.person("reader")
    for _ in range(5):
        assert (await browser.get(f"/runs/{RUN}")).status_code == 200
    server.fake_github.fail_next_request("GET", "/repos/acme/calc", status=500)
    assert (await browser.get("/")).status_code == 200


@pytest.mark.slow
async def test_repositories_beyond_the_limit_are_checked_by_the_next_view(server: DashboardServer) -> None:
    for number in range(MAX_CHECKED_REPOSITORIES + 5):
        repo = server.fake_github.create_repository(
            f"acme/r{number}", permissions={"reader": "read"}, private=True
        )
        server.fake_github.install_app(server.login.app, repo)
        run = JobId(f"acme-r{number}-1-x")
        await server.runs.put(
            RunSummary(run=run, state="running", repository=f"acme/r{number}", number=1, started_at=number)
        )
    server.fake_github.sign_in("reader")
    browser = await server.person("reader")  # which shows the list for the first time
    second = (await browser.get("/")).text
    assert (f"{MAX_CHECKED_REPOSITORIES + 5} runs" in second, "has not been checked yet" in second) == (
        True,
        False,
    )
    other = await server.person("stranger")
    assert "0 runs" in (await other.get("/")).text


async def test_the_number_of_unchecked_repositories_is_shown(server: DashboardServer) -> None:
    for number in range(MAX_CHECKED_REPOSITORIES + 5):
        await server.runs.put(
            RunSummary(
                run=JobId(f"x-{number}"),
                state="running",
                repository=f"acme/r{number}",
                number=1,
                started_at=number,
            )
        )
    server.fake_github.sign_in("stranger")
    browser = server.browser()
    first = await browser.get("/login/github", follow_redirects=True)
    first = await browser.post(str(first.url), follow_redirects=True)
    assert "Your access to 5 more repositories has not been checked yet" in first.text


@pytest.mark.slow
async def test_lost_access_takes_effect_when_the_cache_expires(server: DashboardServer) -> None:
    """Repositories whose cached level has expired are hidden until they are checked again."""
    names = [f"acme/r{number}" for number in range(MAX_CHECKED_REPOSITORIES + 5)]
    repositories = [
        server.fake_github.create_repository(name, permissions={"reader": "read"}, private=True)
        for name in names
    ]
    server.fake_github.install_app(server.login.app, *repositories)
    now = 0.0
    reader = DashboardUser(login="reader", id=server.fake_github.user("reader").id)
    session = Session(
        reader, server.fake_github.create_token("reader"), csrf_token="", expires_at=float("inf")
    )
    oauth = GitHubOAuth(
        OAuthConfig(server.fake_github.server_url, server.fake_github.api_url, "id", "secret")
    )
    access_control = AccessControl(oauth, lambda: now)
    await access_control.filter_readable(session, names)
    assert await access_control.filter_readable(session, names) == set(names)
    for repository in repositories:
        server.fake_github.set_role(repository, "reader", "none")
    for _ in range(3):
        now += CACHE_SECONDS + 1
        assert await access_control.filter_readable(session, names) == set()
    await oauth.close()
