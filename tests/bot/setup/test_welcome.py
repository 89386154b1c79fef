"""The welcome page: the remaining steps, and the first run up to its pull request."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from patchwright.bot.dashboard.views import PageContext
from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.leader_lease import PollFailure
from patchwright.bot.run_summary import RunState, RunSummary
from patchwright.bot.setup.credential_store import RegisteredApp
from patchwright.bot.setup.image_preparation import ImagePreparation
from patchwright.bot.setup.setup_code import SetupSession
from patchwright.bot.setup.setup_views import SetupStep, render_welcome_page
from patchwright.bot.setup.welcome import PATH, WelcomePage, create_welcome_apps, find_first_run
from patchwright.bot.setup.wizard import SESSION_COOKIE
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.demo.github.fake_github import FakeGitHub
from patchwright.resolver.domain import RunId
from patchwright.resolver.settings.settings import Settings
from tests.bot.jobs import job
from tests.bot.setup.conftest import TIMEOUT_SECONDS, UnconfiguredServer
from tests.bot.setup.test_wizard import create_app

REFRESH = '<noscript><meta http-equiv="refresh" content="10"></noscript>'


def visible_text(page: str) -> str:
    """Returns the visible text of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


async def wait_for_text(http: httpx.AsyncClient, words: str) -> str:
    """Reloads the page until it contains these words, as a browser without JavaScript does."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while words not in visible_text(page := (await http.get("/welcome", follow_redirects=True)).text):
            assert "Setup complete" not in page, page
            assert REFRESH in page or "/setup" in page
            await asyncio.sleep(0.2)
    return page


@pytest.mark.slow
@pytest.mark.redis
async def test_the_welcome_page_leads_to_the_first_pull_request_without_javascript(
    server: UnconfiguredServer,
) -> None:
    server.configure_model()
    async with server.started(), server.authorized_browser() as http:
        await http.get(await create_app(server, http))
        waiting = await wait_for_text(http, "Choose the repositories that the App may access.")
        assert "GitHub offers only repositories of the App's owner" in visible_text(waiting)
        assert "Sign in with GitHub to see the runs" in visible_text(waiting)
        (app,) = server.fake_github.apps
        await http.post(f"{server.fake_github.server_url}/apps/{app.slug}/installations/new")
        await wait_for_text(http, "1 worker is ready with openai/scripted.")
        assert "Add the label fix-me to an issue." in visible_text(
            await wait_for_text(http, "Installed for acme.")
        )
        await server.fake_github.add_label(server.issue, "fix-me", by="maintainer")
        page = await wait_for_text(http, "Setup complete")
        (pull,) = server.repo.pulls
        address = f"{server.fake_github.server_url}/acme/calc/pull/{pull.number}"
        assert f'<a class="button" href="{address}">Pull request #{pull.number}</a>' in page
        (way,) = re.findall(r'<a href="(/runs/[^"]+)">Show the run</a>', page)
        assert REFRESH not in page
        async with server.browser() as other:
            for path, place in (("/welcome", "/"), (way, "/login")):
                turned = await other.get(path)
                assert (turned.status_code, turned.headers["location"].partition("?")[0]) == (303, place)


def run_summary(state: RunState, began: float) -> RunSummary:
    return RunSummary(run=RunId(f"{state}-{began:.0f}"), state=state, started_at=began)


def test_the_first_answered_run_is_preferred() -> None:
    old, failed, running = run_summary("published", 5), run_summary("failed", 10), run_summary("running", 11)
    first, second = run_summary("published", 12), run_summary("reported", 13)
    assert find_first_run([old], since=6) is None
    assert find_first_run([failed, old], since=6) == failed
    assert find_first_run([running, failed, old], since=6) == running
    assert find_first_run([second, first, running, failed, old], since=6) == first


@asynccontextmanager
async def welcome_page(data: Path) -> AsyncIterator[tuple[RedisStores, httpx.AsyncClient]]:
    """Serves the welcome page of a server whose GitHub does not respond."""
    async with FakeGitHub() as fake_github, run_embedded_redis(data) as url, RedisStores.open(url) as stores:
        created = fake_github.create_app()
        nowhere = GitHubServer(
            github_server_url="http://127.0.0.1:1",
        )
        app = RegisteredApp(
            id=created.id,
            slug="patchwright",
            html_url="http://127.0.0.1:1/apps/patchwright",
            client_id="",
            client_secret="",
            private_key=created.private_key_pem,
            webhook_secret=None,
            server=nowhere,
            public_url="http://here",
        )
        visitor = SetupSession()
        page = WelcomePage(Settings(data=data), app, visitor, stores, {}, ImagePreparation())
        way = httpx.ASGITransport(create_welcome_apps(page)[PATH])
        cookies = {SESSION_COOKIE: visitor.start()}
        async with httpx.AsyncClient(transport=way, base_url="http://here", cookies=cookies) as http:
            yield stores, http


@pytest.mark.redis
async def test_failed_polls_are_shown(
    short_tmp: Path,
) -> None:
    since = datetime(2026, 11, 22, 7, 5, tzinfo=UTC)
    async with welcome_page(short_tmp) as (stores, http):
        await stores.leader_lease.record_failure(
            PollFailure(reason="no answer from GitHub: GET app", since=since)
        )
        away = visible_text((await http.get(PATH)).text)
        await stores.leader_lease.record_failure(None)
        back = visible_text((await http.get(PATH)).text)
        for place in ("", "acme/sample"):
            await stores.leader_lease.advance_cursor(place, since)
        looked = visible_text((await http.get(PATH)).text)
    assert "Receive events to do GitHub has not responded since 07:05 UTC. The server retries" in away
    assert "Receive events done This server polls GitHub every 30 seconds." in back
    assert "polls GitHub every 30 seconds; last poll at 07:05:00 UTC, 1 repository." in looked


@pytest.mark.redis
async def test_a_queued_first_run_is_shown(short_tmp: Path) -> None:
    async with welcome_page(short_tmp) as (stores, http):
        unlabeled = visible_text((await http.get(PATH)).text)
        await stores.queue.put(job())
        labeled = visible_text((await http.get(PATH)).text)
    assert (
        "Label the first issue to do Once the App is installed, add the label fix-me to an issue. The run starts "
        "when the worker is ready." in unlabeled
    )
    assert (
        "Label the first issue in progress The first run is queued and starts when a worker is ready."
        in labeled
    )


def test_an_unreachable_webhook_leads_to_polling(tmp_path: Path) -> None:
    steps = (
        SetupStep("install", is_done=True, detail="acme"),
        SetupStep("webhook", is_done=False, detail="https://here.test/webhook"),
        SetupStep("worker", is_done=True, detail="1 worker is ready"),
        SetupStep("first_issue", is_done=False, detail="fix-me"),
    )
    page = render_welcome_page(PageContext("", None), steps, Settings(data=tmp_path))
    assert "restart the server with patchwright serve --poll." in visible_text(page)
