"""A run's page and the list, as somebody sees them who has logged in."""

from typing import get_args

import pytest

from bot.jobs import Failed
from bot.observe.faults import Fault
from resolver.domain import RunId
from tests.page.conftest import Room
from tests.resolver.seen_runs import started, whole_run

pytestmark = pytest.mark.redis


async def test_the_operator_sees_a_run_in_the_list_and_opens_it(room: Room) -> None:
    await room.ran("acme-calc-1-done", *whole_run())
    browser = await room.operator()
    seen = await browser.get("/")
    assert seen.status_code == 200
    assert 'href="/runs/acme-calc-1-done"' in seen.text
    page = await browser.get("/runs/acme-calc-1-done")
    assert page.status_code == 200
    assert "Timeline" in page.text


async def test_a_run_that_broke_off_says_so_and_whose_failure_it_was(room: Room) -> None:
    browser = await room.operator()
    await room.ran("acme-calc-1-off", started())
    page = (await browser.get("/runs/acme-calc-1-off")).text
    assert "The run broke off before it came to an end." in page
    assert "The comment in its thread says more." not in page
    listed = await room.runs.get(RunId("acme-calc-1-off"))
    assert listed is not None
    for fault in get_args(Fault):
        await room.runs.put(listed.after(Failed(error="It is down.", fault=fault)))
        page = (await browser.get("/runs/acme-calc-1-off")).text
        assert ('class="mark failed">failed<' in page, "The comment in its thread says more." in page) == (
            True,
            True,
        ), fault


async def test_a_run_that_waits_is_not_said_to_go_on(room: Room) -> None:
    job = room.job("acme-calc-9-waiting", number=9)
    await room.queue.put(job)
    browser = await room.operator()
    page = (await browser.get("/runs/acme-calc-9-waiting")).text
    assert 'class="mark waiting">waits for a worker<' in page
    assert "The run has not begun." in page
