"""The list of runs and the page of a run."""

from typing import get_args

import pytest

from patchwright.bot.faults import Fault
from patchwright.bot.jobs import Failed
from patchwright.resolver.domain import RunId
from tests.bot.dashboard.conftest import DashboardServer
from tests.resolver.sample_runs import full_run, started

pytestmark = pytest.mark.redis


async def test_the_operator_opens_a_run_from_the_list(server: DashboardServer) -> None:
    await server.add_finished_run("acme-calc-1-done", *full_run())
    browser = await server.operator()
    response = await browser.get("/")
    assert response.status_code == 200
    assert 'href="/runs/acme-calc-1-done"' in response.text
    page = await browser.get("/runs/acme-calc-1-done")
    assert page.status_code == 200
    assert "Timeline" in page.text


async def test_an_interrupted_run_shows_who_is_responsible(server: DashboardServer) -> None:
    browser = await server.operator()
    await server.add_finished_run("acme-calc-1-off", started())
    page = (await browser.get("/runs/acme-calc-1-off")).text
    assert "The run stopped before it finished." in page
    assert "See the comment on the issue or pull request for details." not in page
    listed = await server.runs.get(RunId("acme-calc-1-off"))
    assert listed is not None
    for fault in get_args(Fault):
        await server.runs.put(listed.with_result(Failed(error="It is down.", fault=fault)))
        page = (await browser.get("/runs/acme-calc-1-off")).text
        assert (
            'class="mark failed">failed<' in page,
            "See the comment on the issue or pull request for details." in page,
        ) == (
            True,
            True,
        ), fault


async def test_a_queued_run_is_shown_as_queued(server: DashboardServer) -> None:
    job = server.job("acme-calc-9-waiting", number=9)
    await server.queue.put(job)
    browser = await server.operator()
    page = (await browser.get("/runs/acme-calc-9-waiting")).text
    assert 'class="mark queued">queued<' in page
    assert "The run has not started." in page


async def test_a_run_that_is_being_stopped_has_no_stop_button(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run("acme-calc-1-live") as worker:
        await worker.write(started())
        page = (await browser.get("/runs/acme-calc-1-live")).text
        assert ('class="mark running">running<' in page, "Stop this run" in page) == (True, True)
        await server.queue.cancel(worker.job.id)  # by a comment, for example
        page = (await browser.get("/runs/acme-calc-1-live")).text
        assert ('class="mark stopping">stopping<' in page, "Stop this run" in page) == (True, False)
        assert "Stop requested." in page
