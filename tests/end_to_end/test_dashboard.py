"""The dashboard of `patchwright serve`: a run is watched, stopped, retried, and found in the list."""

import asyncio
import re
import signal

import httpx
import pytest

from tests.bot.dashboard.event_stream import watch_run
from tests.end_to_end.conftest import CODE, Scenario
from tests.end_to_end.test_commands import answers, until, wait_until_requested, waiting, when

pytestmark = pytest.mark.redis

OPERATOR = "operator-token-of-a-story"


async def press(browser: httpx.AsyncClient, run: str, verb: str) -> None:
    page = (await browser.get(f"/runs/{run}")).text
    hidden = dict(re.findall(r'name="(csrf|nonce)" value="(\w+)"', page))
    assert f'action="/runs/{run}/{verb}"' in page
    answer = await browser.post(f"/runs/{run}/{verb}", data=hidden)
    assert answer.status_code == 303


async def wait_for_runs(browser: httpx.AsyncClient, state: str, count: int) -> list[str]:
    """Waits for this number of runs in this state and returns them."""
    async with asyncio.timeout(60):
        while True:
            page = (await browser.get("/", params={"state": state})).text
            if len(found := re.findall(r'<a href="/runs/([^"?]+)">', page)) >= count:
                return found
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_run_is_watched_stopped_and_retried_with_buttons(scenario: Scenario) -> None:
    requested = asyncio.Event()
    await scenario.script_model(*waiting(scenario), on_request=when(1, requested))
    scenario.environment["PATCHWRIGHT_OPERATOR_TOKEN"] = OPERATOR
    async with (
        scenario.serve() as served,
        httpx.AsyncClient(
            base_url=served.webhook.removesuffix("/webhook"), trust_env=False, timeout=30
        ) as browser,
    ):
        assert (await browser.post("/login", data={"token": OPERATOR})).status_code == 303
        await wait_until_requested(scenario, served, requested)
        (run,) = await wait_for_runs(browser, "running", 1)
        async with watch_run(browser, run) as watch:
            text = ""
            while "a + b" not in text:  # the first edit, shown live
                text += str((await watch.until("entries")).data)
            await press(browser, run, "stop")
            await until(lambda: answers(scenario)[0].startswith("I had to stop"))
            await watch.until("end")
        assert await wait_for_runs(browser, "stopped", 1) == [run]
        stopped = (await browser.get(f"/runs/{run}")).text
        assert "The operator stopped this run." in stopped
        (branch,) = re.findall("The work so far is on the branch <code>([^<]+)</code>", stopped)
        assert "a + b" in scenario.repo.read(branch, "calc.py")
        (scenario.data / "again").touch()
        await press(browser, run, "retry")
        (again,) = await wait_for_runs(browser, "published", 1)
        page = (await browser.get(f"/runs/{again}")).text
        parts = re.findall(
            r'<dt>(\w+)</dt><dd><span class="mark \w+">([\w ]+)</span>', (await browser.get("/")).text
        )
    assert again != run
    assert "Pull request #2 is open." in page
    assert dict(parts) == {
        "Receiver": "healthy",
        "Redis": "healthy",
        "Workers": "healthy",
        "Queue": "healthy",
        "Engine": "healthy",
        "Model": "healthy",
        "GitHub": "healthy",
    }
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert len(scenario.repo.pulls) == 1


@pytest.mark.slow
async def test_a_stopped_run_continues_on_the_command_line_and_is_shown(scenario: Scenario) -> None:
    requested, continued, again = asyncio.Event(), asyncio.Event(), scenario.data / "again"

    async def note(number: int, body: object) -> None:
        if requested.is_set() and not again.exists():
            continued.set()
            await asyncio.sleep(60)
        if number == 1:
            requested.set()

    await scenario.script_model(*waiting(scenario), on_request=note)
    scenario.environment["PATCHWRIGHT_OPERATOR_TOKEN"] = OPERATOR
    async with (
        scenario.serve() as served,
        httpx.AsyncClient(
            base_url=served.webhook.removesuffix("/webhook"), trust_env=False, timeout=30
        ) as browser,
    ):
        assert (await browser.post("/login", data={"token": OPERATOR})).status_code == 303
        await wait_until_requested(scenario, served, requested)
        (run,) = await wait_for_runs(browser, "running", 1)
        await press(browser, run, "stop")
        await wait_for_runs(browser, "stopped", 1)
        await until(lambda: answers(scenario)[0].startswith("I had to stop"))
        process = await scenario.cli("resolve", "--continue", run)
        await asyncio.wait_for(continued.wait(), 60)
        assert answers(scenario)[0].startswith("The operator is continuing this run on the server's machine.")
        assert "To stop me" not in answers(scenario)[0]
        process.send_signal(signal.SIGINT)
        assert "\nSo far: " in (await process.communicate())[1].decode() and process.returncode == 130
        stopped, work, _ = answers(scenario)[0].split("\n\n", 2)
        assert stopped == "I had to stop before I finished. The operator stopped this run."
        assert work.startswith("The work so far (1 file) is on the branch `patchwright/issue-1-after-")
        again.touch()
        code, _, error = await scenario.command("resolve", "--continue", run)
        assert code == 0, error
        assert await wait_for_runs(browser, "published", 1) == [run]
        page = (await browser.get(f"/runs/{run}")).text
    assert "Pull request #2 is open." in page and "Stop requested" not in page
    assert "The run continued in a new sandbox" in page
    assert "- The run continued in a new sandbox." in scenario.repo.pulls[0].body


@pytest.mark.slow
async def test_a_run_that_a_comment_resumed_is_one_row_and_is_stopped_on_its_page(scenario: Scenario) -> None:
    requested = asyncio.Event()
    await scenario.script_model(*waiting(scenario), on_request=when(1, requested))
    scenario.environment["PATCHWRIGHT_OPERATOR_TOKEN"] = OPERATOR
    async with (
        scenario.serve() as served,
        httpx.AsyncClient(
            base_url=served.webhook.removesuffix("/webhook"), trust_env=False, timeout=30
        ) as browser,
    ):
        assert (await browser.post("/login", data={"token": OPERATOR})).status_code == 303
        await wait_until_requested(scenario, served, requested)
        (run,) = await wait_for_runs(browser, "running", 1)
        await press(browser, run, "stop")
        await until(lambda: answers(scenario)[0].startswith("I had to stop"))
        await scenario.fake_github.add_comment(scenario.issue, "@agent resume", by="maintainer")
        # Until the job has read the thread, nobody knows that it resumes a run, so it has a row of its own.
        async with asyncio.timeout(60):
            while await wait_for_runs(browser, "running", 1) != [run]:
                await asyncio.sleep(0.1)
        assert "resolve --continue" not in (await browser.get(f"/runs/{run}")).text
        await press(browser, run, "stop")
        await until(lambda: [one[:13] for one in answers(scenario)] == ["I had to stop"] * 2)
        assert await wait_for_runs(browser, "stopped", 1) == [run]
        (scenario.data / "again").touch()
        await scenario.fake_github.add_comment(scenario.issue, "@agent resume", by="maintainer")
        assert await wait_for_runs(browser, "published", 1) == [run]
        assert await wait_for_runs(browser, "stopped", 0) == []
        assert len(await wait_for_runs(browser, "resumed", 2)) == 2
