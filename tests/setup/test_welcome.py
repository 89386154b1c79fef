"""The page with what is left to do: it follows the first run to its pull request, for who has set the server up."""

import asyncio
import html
import re

import httpx
import pytest

from bot.glance import Glance, State
from bot.setup.welcome import first_run
from resolver.domain import RunId
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


@pytest.mark.redis
async def test_who_set_it_up_is_led_to_the_first_pull_request_without_a_script(fresh: Fresh) -> None:
    fresh.know_a_model()
    async with fresh.serving(), fresh.visitor() as http:
        await http.get(await made(fresh, http))
        waiting = await shown(http, "Choose the repositories that it is to work in.")
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
