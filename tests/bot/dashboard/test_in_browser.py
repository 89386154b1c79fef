"""The dashboard in Chromium: sign-in, live runs, commands, keyboard use, and accessibility checks by axe."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from patchwright.bot.jobs import Stopped
from patchwright.bot.observe.run_index import index_result
from patchwright.bot.run_summary import summarize_log
from patchwright.resolver.domain import Job, Verdict
from patchwright.resolver.events import (
    Event,
    JobCompleted,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    ToolResult,
    VerificationCompleted,
)
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult
from tests.bot.dashboard.browsing import NARROW, WIDE, UnreliableProxy, browser_window
from tests.bot.dashboard.conftest import OPERATOR, DashboardServer, dashboard_server
from tests.bot.dashboard.test_access_control import stored_commands
from tests.resolver.sample_runs import full_run, run_of, started
from tests.runners.conftest import NPM
from tests.runtime.chromium_page import chromium

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

RUN = "acme-calc-1-live"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def server(short_tmp: Path) -> AsyncIterator[DashboardServer]:
    async with dashboard_server(short_tmp) as server:
        yield server


def step(number: int, output: str = "") -> tuple[Event, Event]:
    call = ToolCall(id=f"c{number}", action=RunShell(command=f"make step-{number}"))
    usage = ReplyUsage(model="m", prompt_tokens=100, completion_tokens=10)
    result = ShellResult(output=output or f"did {number}", exit_code=0, cwd="/", seconds=1)
    return ModelReply(thought=f"Thought {number}.", calls=(call,), usage=usage), ToolResult(
        call_id=f"c{number}", observation=result
    )


async def sign_in_with_github(page: Page, person: str, server: DashboardServer) -> None:
    """Signs in with GitHub, with a click on GitHub's page."""
    server.fake_github.sign_in(person)
    await page.goto("/")
    await page.get_by_role("link", name="Sign in with GitHub").click()
    await page.get_by_role("button", name=f"Authorize patchwright as {person}").click()
    await page.get_by_role("heading", name="Runs", exact=True).wait_for()


async def end_as_stopped(server: DashboardServer, job: Job) -> None:
    """Ends a run as a worker does after a stop."""
    stopped = Stopped(by="maintainer")
    await index_result(job.id, stopped, server.runs, server.queue)
    await server.queue.complete(job, stopped)


async def sign_in_as_operator(page: Page) -> None:
    """Signs in with the operator token."""
    await page.goto("/login")
    await page.get_by_label("Operator token").fill(OPERATOR)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("heading", name="Runs", exact=True).wait_for()


@pytest.mark.slow
async def test_a_person_signs_in_watches_stops_and_retries_a_run(
    server: DashboardServer, browser: Browser
) -> None:
    async with browser_window(browser, server.url) as page:
        async with server.add_running_run(RUN) as worker:
            await worker.write(started(), *step(1))
            await sign_in_with_github(page, "maintainer", server)
            await page.get_by_role("link", name="add() subtracts").click()
            await page.get_by_text("Live: new entries appear below.").wait_for()
            request, answered = step(2)
            await worker.write(request)
            await page.get_by_text("make step-2").wait_for()
            await worker.write(answered, Message(text="Somebody says <b>hello</b>", source="comment"))
            await page.get_by_text("did 2").wait_for()
            await page.get_by_text("Somebody says <b>hello</b>").wait_for()
            numbers = await page.locator("#timeline .item.step .number").all_inner_texts()
            assert numbers == ["Step 1", "Step 2"]
            assert await page.locator("#e3\\.1").count() == 1  # the result replaced the call
            await page.get_by_role("button", name="Stop this run").click()
            await page.get_by_text("Stop requested.").wait_for()
            assert [json.loads(one.body)["job"]["command"] for one in await stored_commands(server)] == [
                "stop"
            ]
            stop, state = page.get_by_role("button", name="Stop this run"), page.locator("#state")
            assert (await stop.count(), await state.inner_text()) == (0, "stopping")
            await worker.write(*step(3))
            await page.get_by_text("did 3").wait_for()
            assert await state.inner_text() == "stopping"
            job = worker.job
        await end_as_stopped(server, job)
        await page.get_by_text("The run has ended.").wait_for()
        for _ in range(2):  # in place, and after a reload
            assert (await stop.count(), await state.inner_text()) == (0, "stopped")
            assert await page.locator("#run-header .verdict").inner_text() == (
                "– no verdict\n\nThe run stopped before it finished."
            )
            assert await page.get_by_text("Stop requested.").count() == 0
            await page.reload()
        assert await page.get_attribute("body", "data-events") is None
        await page.get_by_role("button", name="Retry").click()
        await page.get_by_text("Retry requested.").wait_for()
        assert [json.loads(one.body)["job"]["command"] for one in await stored_commands(server)] == ["retry"]
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("heading", name="Sign in", exact=True).wait_for()
        await page.goto(f"/runs/{RUN}")
        assert "/login" in page.url


@pytest.mark.slow
async def test_a_queued_run_is_shown_as_queued_until_it_runs(
    server: DashboardServer, browser: Browser
) -> None:
    await server.queue.put(server.job(RUN))
    async with browser_window(browser, server.url) as page:
        await sign_in_as_operator(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: new entries appear below.").wait_for()
        assert await page.locator("#state").inner_text() == "queued"
        async with server.add_running_run(RUN) as worker:
            await worker.write(started(), *step(1))
            await page.get_by_text("did 1").wait_for()
            assert await page.locator("#state").inner_text() == "running"
            await page.get_by_role("heading", name="add() subtracts").wait_for()


@pytest.mark.slow
async def test_a_tool_result_keeps_focus_and_open_folds(server: DashboardServer, browser: Browser) -> None:
    async with browser_window(browser, server.url) as page, server.add_running_run(RUN) as worker:
        request, answered = step(1)
        await worker.write(started(), request)
        await sign_in_as_operator(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: new entries appear below.").wait_for()
        item = page.locator("#e1\\.1")
        await item.focus()
        await worker.write(answered)
        await page.get_by_text("did 1").wait_for()
        assert await page.evaluate("document.activeElement.id") == "e1.1"
        await page.keyboard.press("p")  # keyboard navigation knows the new item
        assert await page.evaluate("document.activeElement.id") == "e1"


@pytest.mark.slow
async def test_sidebar_updates_keep_the_focus(server: DashboardServer, browser: Browser) -> None:
    async with browser_window(browser, server.url) as page, server.add_running_run(RUN) as worker:
        await worker.write(started(), *step(1))
        await sign_in_as_operator(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: new entries appear below.").wait_for()
        await page.get_by_role("link", name="acme/calc#7").focus()
        await worker.write(*step(2), *step(3))
        await page.get_by_role("row", name="run shell 3 100 %").wait_for()
        await page.get_by_text("300 read, 30 written").wait_for()
        assert await page.evaluate("document.activeElement.innerText") == "acme/calc#7"


@pytest.mark.slow
async def test_new_entries_are_searched(server: DashboardServer, browser: Browser) -> None:
    async with browser_window(browser, server.url) as page, server.add_running_run(RUN) as worker:
        await worker.write(started(), *step(1, "needle"))
        await sign_in_as_operator(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: new entries appear below.").wait_for()
        await page.get_by_label("Search").fill("needle")
        await page.get_by_text("1 of 2").wait_for()
        await worker.write(*step(2, "needle"), *step(3, "hay"))
        await page.get_by_text("2 of 6").wait_for()
        assert await page.locator("#e5\\.1").is_hidden()


@pytest.mark.slow
async def test_a_lost_connection_is_shown_and_restored(server: DashboardServer, browser: Browser) -> None:
    async with (
        UnreliableProxy(server.url) as proxy,
        server.add_running_run(RUN) as worker,
        browser_window(browser, proxy.url, expected_errors={"ERR_"}) as page,
    ):
        await worker.write(started())
        await sign_in_as_operator(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: new entries appear below.").wait_for()
        await proxy.cut()
        await page.get_by_text("Connection lost. Reconnecting...").wait_for()
        await worker.write(*step(1))
        await proxy.restore()
        await page.get_by_text("did 1").wait_for()
        await page.get_by_text("Live: new entries appear below.").wait_for()
        assert await page.locator("#timeline > .timeline > .item").count() == 2


@pytest.mark.slow
async def test_an_expired_session_stops_live_updates(server: DashboardServer, browser: Browser) -> None:
    async with (
        UnreliableProxy(server.url) as proxy,
        server.add_running_run(RUN) as worker,
        browser_window(browser, proxy.url, expected_errors={"ERR_", "401"}) as page,
    ):
        await worker.write(started())
        await sign_in_as_operator(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: new entries appear below.").wait_for()
        await proxy.cut()
        await page.context.clear_cookies()
        await proxy.restore()
        await page.get_by_text("Live updates stopped").wait_for()


@pytest.mark.slow
async def test_everything_but_the_live_timeline_works_without_javascript(
    server: DashboardServer, browser: Browser
) -> None:
    await server.add_finished_run("acme-calc-2-done", *full_run())
    async with (
        browser_window(browser, server.url, script=False) as page,
        server.add_running_run(RUN) as worker,
    ):
        await worker.write(started(title="Goes on"), *step(1))
        await sign_in_as_operator(page)
        await page.get_by_label("State").select_option("published")
        await page.get_by_role("button", name="Filter").click()
        assert await page.get_by_role("link", name="Goes on").count() == 0
        await page.get_by_role("link", name="add() subtracts").click()
        await page.get_by_text("Pull request #8 is open.").wait_for()
        await page.goto(f"/runs/{RUN}")
        assert await page.get_by_text("did 1").count() == 1
        assert await page.get_by_text("reload the page for updates").is_visible()
        await page.get_by_role("button", name="Stop this run").click()
        await page.get_by_text("Stop requested.").wait_for()


@pytest.mark.slow
async def test_the_button_of_the_filter_is_one_line_at_every_width(
    server: DashboardServer, browser: Browser
) -> None:
    async with browser_window(browser, server.url) as page:
        await sign_in_as_operator(page)
        await page.goto("/?text=add")
        for width in (320, 390, 600, 768, 900, 1280):
            await page.set_viewport_size({"width": width, "height": 700})
            for role, name in (("button", "Filter"), ("link", "Clear filter")):
                box = await page.get_by_role(role, name=name).first.bounding_box()  # type: ignore[arg-type]
                assert box is not None and box["height"] < 40, (width, name, box)
            assert await page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.slow
async def test_the_keyboard_reaches_everything_in_order(server: DashboardServer, browser: Browser) -> None:
    await server.add_finished_run("acme-calc-2-done", *full_run())
    async with browser_window(browser, server.url) as page:
        await sign_in_as_operator(page)
        reached = []
        for _ in range(9):
            await page.keyboard.press("Tab")
            reached.append(
                await page.evaluate("document.activeElement.innerText || document.activeElement.id")
            )
        assert [text.split("\n")[0] for text in reached] == [
            "Skip to content", "Patchwright", "Sign out", "any", "any", "any", "text", "Filter",
            "add() subtracts",
        ]  # fmt: skip
        await page.goto("/")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"


@dataclass
class AxeChecker:
    """Runs axe-core, the accessibility checker, in a page."""

    source: str

    async def find_violations(self, page: Page) -> list[str]:
        await page.evaluate(self.source)
        found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{page.url}: {one['id']} ({one['impact']}): {node['html'][:120]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]


@pytest.fixture
def axe() -> AxeChecker:
    path = NPM / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not in the cache of npm packages: .ci/run puts it there")
    return AxeChecker(path.read_text())


async def test_long_words_in_the_list_of_runs_fit_a_phone(server: DashboardServer, browser: Browser) -> None:
    log = run_of(
        started(title="a_name_in_the_title_that_is_longer_than_a_line_of_a_phone_and_has_no_space"),
        VerificationCompleted(verdict=Verdict(kind="empty")),
    )
    summary = summarize_log(server.job(RUN), log, is_running=False)
    await server.runs.put(summary.model_copy(update={"failure": "tests_not_run", "failed_tries": 2}))
    async with browser_window(browser, server.url) as page:
        await sign_in_as_operator(page)
        await page.set_viewport_size({"width": 360, "height": 740})
        assert await page.evaluate("document.documentElement.scrollWidth") == 360


async def create_pages(server: DashboardServer, stack: AsyncExitStack) -> list[str]:
    """Creates runs, and returns the paths of pages that show them."""
    await server.add_finished_run("acme-calc-2-done", *full_run())
    worker = await stack.enter_async_context(server.add_running_run(RUN))
    await worker.write(started(), *step(1), *list(full_run())[4:12])
    await server.queue.put(server.job("acme-calc-3-waiting", number=3))
    return ["/", "/?state=published", "/?text=nothing+fits", "/runs/acme-calc-2-done", f"/runs/{RUN}",
            "/runs/acme-calc-3-waiting", "/nothing"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)], ids=["light", "dark"])
async def test_pages_are_accessible_and_fit_a_phone(
    server: DashboardServer, browser: Browser, axe: AxeChecker, size: tuple[int, int], dark: bool
) -> None:
    found = []
    async with AsyncExitStack() as stack:
        paths = await create_pages(server, stack)
        page = await stack.enter_async_context(
            browser_window(browser, server.url, size, dark=dark, expected_errors={"404"})
        )
        await page.goto("/login")
        found += await axe.find_violations(page)
        await sign_in_as_operator(page)
        for path in paths:
            await page.goto(path)
            found += await axe.find_violations(page)
            await page.set_viewport_size({"width": 320, "height": 640})
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            found += [f"{path} is wider than a phone by {wide}"] if wide > 0 else []
            await page.set_viewport_size({"width": size[0], "height": size[1]})
    assert found == []


@pytest.mark.slow
async def test_axe_detects_a_missing_label(
    server: DashboardServer, browser: Browser, axe: AxeChecker
) -> None:
    async with browser_window(browser, server.url) as page:
        await page.goto("/login")
        await page.evaluate("document.querySelector('label[for=token]').remove()")
        assert any("label" in fault for fault in await axe.find_violations(page))


@pytest.mark.slow
async def test_a_run_is_visible_only_to_people_with_access(server: DashboardServer, browser: Browser) -> None:
    async with (
        server.add_running_run(RUN) as worker,
        browser_window(browser, server.url) as reader,
        browser_window(browser, server.url, expected_errors={"404"}) as stranger,
    ):
        await worker.write(started())
        await sign_in_with_github(reader, "reader", server)
        await reader.goto(f"/runs/{RUN}")
        assert await reader.get_by_role("button", name="Stop this run").count() == 0
        await sign_in_with_github(stranger, "stranger", server)
        answer = await stranger.goto(f"/runs/{RUN}")
        assert answer is not None
        assert answer.status == 404
        await worker.write(*step(1), JobCompleted(outcome=list(full_run())[-1].outcome))  # type: ignore[union-attr]
        await reader.get_by_text("did 1").wait_for()
        await reader.get_by_text("Pull request #8 is open.").wait_for()
