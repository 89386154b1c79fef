"""The page with what is left to do: it follows the first run to its pull request, for who has set the server up."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from bot.embedded import embedded_redis
from bot.glance import Glance, State
from bot.redis.lookout import Trouble
from bot.serve import Stores
from bot.setup.code import Visitor
from bot.setup.images import Images
from bot.setup.kept import OwnApp, Place
from bot.setup.site import COOKIE
from bot.setup.welcome import PATH, Welcome, first_run, welcome
from demo.world import World
from resolver.domain import RunId
from resolver.settings.settings import Settings
from tests.bot.jobs import job
from tests.setup.conftest import LONGEST, Fresh
from tests.setup.test_refusals import made

REFRESH = '<noscript><meta http-equiv="refresh" content="10"></noscript>'


def text(page: str) -> str:
    """What a person reads."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


async def shown(http: httpx.AsyncClient, words: str) -> str:
    """The page, once it says that: it is loaded again and again, as without JavaScript."""
    async with asyncio.timeout(LONGEST):
        while words not in text(page := (await http.get("/welcome", follow_redirects=True)).text):
            assert "All set" not in page, page
            assert REFRESH in page or "/setup" in page
            await asyncio.sleep(0.2)
    return page


@pytest.mark.slow
@pytest.mark.redis
async def test_who_set_it_up_is_led_to_the_first_pull_request_without_a_script(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        await http.get(await made(fresh, http))
        waiting = await shown(http, "Choose the repositories that it is to work in.")
        assert "GitHub offers those of the App's owner alone" in text(waiting)
        assert "GitHub asks first who you are: runs show private code" in text(waiting)
        (app,) = fresh.world.apps
        await http.post(f"{fresh.world.server_url}/apps/{app.slug}/installations/new")
        await shown(http, "1 with openai/scripted, ready.")
        assert "Give an issue the label fix-me." in text(await shown(http, "It is installed for acme."))
        await fresh.world.label(fresh.issue, "fix-me", by="maintainer")
        page = await shown(http, "All set")
        (pull,) = fresh.repo.pulls
        address = f"{fresh.world.server_url}/acme/calc/pull/{pull.number}"
        assert f'<a class="button" href="{address}">Pull request #{pull.number}</a>' in page
        (way,) = re.findall(r'<a href="(/runs/[^"]+)">What the run did</a>', page)
        assert REFRESH not in page
        async with fresh.stranger() as other:
            for path, place in (("/welcome", "/"), (way, "/login")):
                turned = await other.get(path)
                assert (turned.status_code, turned.headers["location"].partition("?")[0]) == (303, place)


def glance(state: State, began: float) -> Glance:
    return Glance(run=RunId(f"{state}-{began:.0f}"), state=state, began=began)


def test_a_run_that_failed_is_told_until_one_is_answered_and_earlier_ones_are_not() -> None:
    old, failed, working = glance("delivered", 5), glance("failed", 10), glance("working", 11)
    first, second = glance("delivered", 12), glance("commented", 13)
    assert first_run([old], since=6) is None
    assert first_run([failed, old], since=6) == failed
    assert first_run([working, failed, old], since=6) == working
    assert first_run([second, first, working, failed, old], since=6) == first


@asynccontextmanager
async def without_a_worker(data: Path) -> AsyncIterator[tuple[Stores, httpx.AsyncClient]]:
    """The page of a server whose GitHub does not answer, and who has set it up."""
    async with World() as world, embedded_redis(data) as url, Stores.opened(url) as stores:
        made = world.app()
        nowhere = Place(
            github_server_url="http://127.0.0.1:1",
            github_api_url="http://127.0.0.1:1/api/v3",
            github_graphql_url="http://127.0.0.1:1/api/graphql",
        )
        app = OwnApp(
            id=made.id,
            slug="patchwright",
            html_url="http://127.0.0.1:1/apps/patchwright",
            client_id="",
            client_secret="",
            private_key=made.private_key_pem,
            webhook_secret=None,
            place=nowhere,
            public_url="http://here",
        )
        visitor = Visitor()
        page = Welcome(
            Settings(data=data), app, visitor, stores.presence, stores.runs, stores.queue, stores.lookout, {}, Images()
        )  # fmt: skip
        way = httpx.ASGITransport(welcome(page)[PATH])
        cookies = {COOKIE: visitor.admit()}
        async with httpx.AsyncClient(transport=way, base_url="http://here", cookies=cookies) as http:
            yield stores, http


@pytest.mark.redis
async def test_a_server_that_cannot_look_at_github_does_not_say_that_it_hears_of_issues(
    short_tmp: Path,
) -> None:
    since = datetime(2026, 11, 22, 7, 5, tzinfo=UTC)
    async with without_a_worker(short_tmp) as (stores, http):
        await stores.lookout.note(Trouble(reason="no answer from GitHub: GET app", since=since))
        away = text((await http.get(PATH)).text)
        await stores.lookout.note(None)
        back = text((await http.get(PATH)).text)
        for place in ("", "acme/sample"):
            await stores.lookout.see(place, since)
        looked = text((await http.get(PATH)).text)
    assert (
        "Hear of issues to do GitHub has not answered this server since 07:05 UTC. It is asked again" in away
    )
    assert "Hear of issues done This server looks at GitHub every 30 s." in back
    assert "looks at GitHub every 30 s; last at 07:05:00 UTC, in 1 repository." in looked


@pytest.mark.redis
async def test_what_is_labelled_before_there_is_a_worker_is_seen_to_be_queued(short_tmp: Path) -> None:
    async with without_a_worker(short_tmp) as (stores, http):
        unlabelled = text((await http.get(PATH)).text)
        await stores.queue.put(job())
        labelled = text((await http.get(PATH)).text)
    assert (
        "The first issue to do Once the App is installed, give an issue the label fix-me. It is picked up when the "
        "worker is ready." in unlabelled
    )
    assert (
        "The first issue in progress The first run is queued, and begins when a worker is ready." in labelled
    )
