"""The page in real Chromium: logged in to, watched, stopped, tried again; by eye, by keyboard, and judged by axe."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from resolver.events import Call, Decided, Event, Observed, Settled, Told, Usage
from runtime.actions import RunShell
from runtime.observations import Ran
from tests.page.browsing import NARROW, WIDE, Between, window
from tests.page.conftest import OPERATOR, Room, room_at
from tests.page.test_access import letters
from tests.resolver.seen_runs import started, whole_run
from tests.runners.conftest import NPM
from tests.runtime.looking import chromium

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

RUN = "acme-calc-1-live"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def room(short_tmp: Path) -> AsyncIterator[Room]:
    async with room_at(short_tmp) as room:
        yield room


def step(number: int, output: str = "") -> tuple[Event, Event]:
    call = Call(id=f"c{number}", action=RunShell(command=f"make step-{number}"))
    usage = Usage(model="m", prompt_tokens=100, completion_tokens=10)
    seen = Ran(output=output or f"did {number}", exit_code=0, cwd="/", seconds=1)
    return Decided(thought=f"Thought {number}.", calls=(call,), usage=usage), Observed(
        call=f"c{number}", observation=seen
    )


async def log_in(page: Page, person: str, room: Room) -> None:
    """By GitHub, with a click there."""
    room.world.sit_down(person)
    await page.goto("/")
    await page.get_by_role("link", name="Log in with GitHub").click()
    await page.get_by_role("button", name=f"Authorize patchwright as {person}").click()
    await page.get_by_role("heading", name="Runs", exact=True).wait_for()


async def enter(page: Page) -> None:
    """As the operator."""
    await page.goto("/login")
    await page.get_by_label("Operator token").fill(OPERATOR)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("heading", name="Runs", exact=True).wait_for()


async def test_somebody_logs_in_watches_a_run_stops_it_and_tries_it_again(
    room: Room, browser: Browser
) -> None:
    async with window(browser, room.url) as page:
        async with room.running(RUN) as worker:
            await worker.write(started(), *step(1))
            await log_in(page, "maintainer", room)
            await page.get_by_role("link", name="add() subtracts").click()
            await page.get_by_text("Live: what happens appears below.").wait_for()
            asked, answered = step(2)
            await worker.write(asked)
            await page.get_by_text("make step-2").wait_for()
            await worker.write(answered, Told(text="Somebody says <b>hello</b>", source="comment"))
            await page.get_by_text("did 2").wait_for()
            await page.get_by_text("Somebody says <b>hello</b>").wait_for()
            numbers = await page.locator("#timeline .item.step .number").all_inner_texts()
            assert numbers == ["Step 1", "Step 2"]
            assert await page.locator("#e3\\.1").count() == 1  # its answer took its place
            await page.get_by_role("button", name="Stop this run").click()
            await page.get_by_text("It is asked to stop.").wait_for()
            assert [json.loads(one.body)["verb"] for one in await letters(room)] == ["stop"]
            job = worker.job
        await room.end(job)
        await page.get_by_text("The run has ended.").wait_for()
        assert await page.locator("#state").inner_text() == "has ended"
        stop = page.get_by_role("button", name="Stop this run")
        assert await stop.is_disabled()
        assert (
            await stop.evaluate("it => getComputedStyle(it).backgroundColor") == "rgba(0, 0, 0, 0)"
        )  # and looks it
        await page.get_by_role("link", name="Show all of it").click()
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_text("Another run is asked for.").wait_for()
        assert [json.loads(one.body)["verb"] for one in await letters(room)] == ["retry"]
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_role("heading", name="Log in", exact=True).wait_for()
        await page.goto(f"/runs/{RUN}")
        assert "/login" in page.url


async def test_a_run_that_waits_says_so_until_it_goes_on(room: Room, browser: Browser) -> None:
    await room.queue.put(room.job(RUN))
    async with window(browser, room.url) as page:
        await enter(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: what happens appears below.").wait_for()
        assert await page.locator("#state").inner_text() == "waits for a worker"
        async with room.running(RUN) as worker:
            await worker.write(started(), *step(1))
            await page.get_by_text("did 1").wait_for()
            assert await page.locator("#state").inner_text() == "goes on"
            await page.get_by_role("heading", name="add() subtracts").wait_for()


async def test_what_is_unfolded_and_at_hand_stays_when_its_answer_comes(room: Room, browser: Browser) -> None:
    async with window(browser, room.url) as page, room.running(RUN) as worker:
        asked, answered = step(1)
        await worker.write(started(), asked)
        await enter(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: what happens appears below.").wait_for()
        item = page.locator("#e1\\.1")
        await item.focus()
        await worker.write(answered)
        await page.get_by_text("did 1").wait_for()
        assert await page.evaluate("document.activeElement.id") == "e1.1"
        await page.keyboard.press("p")  # the viewer's keys know what came
        assert await page.evaluate("document.activeElement.id") == "e1"


async def test_what_is_counted_is_counted_on_and_takes_nobody_off_the_link_they_are_on(
    room: Room, browser: Browser
) -> None:
    async with window(browser, room.url) as page, room.running(RUN) as worker:
        await worker.write(started(), *step(1))
        await enter(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: what happens appears below.").wait_for()
        await page.get_by_role("link", name="acme/calc#7").focus()
        await worker.write(*step(2), *step(3))
        await page.get_by_role("row", name="run shell 3 100 %").wait_for()
        await page.get_by_text("300 read, 30 written").wait_for()
        assert await page.evaluate("document.activeElement.innerText") == "acme/calc#7"


async def test_what_comes_while_something_is_searched_is_searched_too(room: Room, browser: Browser) -> None:
    async with window(browser, room.url) as page, room.running(RUN) as worker:
        await worker.write(started(), *step(1, "needle"))
        await enter(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: what happens appears below.").wait_for()
        await page.get_by_label("Search").fill("needle")
        await page.get_by_text("1 of 2").wait_for()
        await worker.write(*step(2, "needle"), *step(3, "hay"))
        await page.get_by_text("2 of 6").wait_for()
        assert await page.locator("#e5\\.1").is_hidden()


async def test_a_connection_that_breaks_is_told_and_made_again(room: Room, browser: Browser) -> None:
    async with (
        Between(room.url) as between,
        room.running(RUN) as worker,
        window(browser, between.url, complaints={"ERR_"}) as page,
    ):
        await worker.write(started())
        await enter(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: what happens appears below.").wait_for()
        await between.cut()
        await page.get_by_text("The connection is interrupted; it is tried again.").wait_for()
        await worker.write(*step(1))
        await between.mend()
        await page.get_by_text("did 1").wait_for()
        await page.get_by_text("Live: what happens appears below.").wait_for()
        assert await page.locator("#timeline > .timeline > .item").count() == 2


async def test_who_is_logged_out_meanwhile_is_told_that_nothing_more_comes(
    room: Room, browser: Browser
) -> None:
    async with (
        Between(room.url) as between,
        room.running(RUN) as worker,
        window(browser, between.url, complaints={"ERR_", "401"}) as page,
    ):
        await worker.write(started())
        await enter(page)
        await page.goto(f"/runs/{RUN}")
        await page.get_by_text("Live: what happens appears below.").wait_for()
        await between.cut()
        await page.context.clear_cookies()
        await between.mend()
        await page.get_by_text("Nothing more is told here").wait_for()


async def test_all_but_the_live_timeline_works_without_a_script(room: Room, browser: Browser) -> None:
    await room.ran("acme-calc-2-done", *whole_run())
    async with window(browser, room.url, script=False) as page, room.running(RUN) as worker:
        await worker.write(started(title="Goes on"), *step(1))
        await enter(page)
        await page.get_by_label("State").select_option("delivered")
        await page.get_by_role("button", name="Show").click()
        assert await page.get_by_role("link", name="Goes on").count() == 0
        await page.get_by_role("link", name="add() subtracts").click()
        await page.get_by_text("Pull request #8 is open.").wait_for()
        await page.goto(f"/runs/{RUN}")
        assert await page.get_by_text("did 1").count() == 1
        assert await page.get_by_text("load it again for more").is_visible()
        await page.get_by_role("button", name="Stop this run").click()
        await page.get_by_text("It is asked to stop.").wait_for()


async def test_the_keyboard_alone_reaches_everything_in_order(room: Room, browser: Browser) -> None:
    await room.ran("acme-calc-2-done", *whole_run())
    async with window(browser, room.url) as page:
        await enter(page)
        reached = []
        for _ in range(9):
            await page.keyboard.press("Tab")
            reached.append(
                await page.evaluate("document.activeElement.innerText || document.activeElement.id")
            )
        assert [text.split("\n")[0] for text in reached] == [
            "Skip to the content", "Patchwright", "Log out", "any", "any", "any", "text", "Show",
            "add() subtracts",
        ]  # fmt: skip
        await page.goto("/")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"


@dataclass
class Judge:
    """axe-core, as npm has it."""

    source: str

    async def faults(self, page: Page) -> list[str]:
        await page.evaluate(self.source)
        found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{page.url}: {one['id']} ({one['impact']}): {node['html'][:120]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]


@pytest.fixture
def judge() -> Judge:
    path = NPM / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not in the cache of npm packages: .ci/run puts it there")
    return Judge(path.read_text())


async def shown(room: Room, stack: AsyncExitStack) -> list[str]:
    """Paths of the pages, with something on each."""
    await room.ran("acme-calc-2-done", *whole_run())
    worker = await stack.enter_async_context(room.running(RUN))
    await worker.write(started(), *step(1), *list(whole_run())[4:12])
    await room.queue.put(room.job("acme-calc-3-waiting", number=3))
    return ["/", "/?state=delivered", "/?text=nothing+fits", "/runs/acme-calc-2-done", f"/runs/{RUN}",
            "/runs/acme-calc-3-waiting", "/nothing"]  # fmt: skip


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)], ids=["light", "dark"])
async def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(
    room: Room, browser: Browser, judge: Judge, size: tuple[int, int], dark: bool
) -> None:
    found = []
    async with AsyncExitStack() as stack:
        paths = await shown(room, stack)
        page = await stack.enter_async_context(window(browser, room.url, size, dark=dark, complaints={"404"}))
        await page.goto("/login")
        found += await judge.faults(page)
        await enter(page)
        for path in paths:
            await page.goto(path)
            found += await judge.faults(page)
            await page.set_viewport_size({"width": 320, "height": 640})
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            found += [f"{path} is wider than a phone by {wide}"] if wide > 0 else []
            await page.set_viewport_size({"width": size[0], "height": size[1]})
    assert found == []


async def test_axe_would_find_something(room: Room, browser: Browser, judge: Judge) -> None:
    async with window(browser, room.url) as page:
        await page.goto("/login")
        await page.evaluate("document.querySelector('label[for=token]').remove()")
        assert any("label" in fault for fault in await judge.faults(page))


async def test_two_people_watch_and_one_is_shown_the_other_nothing(room: Room, browser: Browser) -> None:
    async with (
        room.running(RUN) as worker,
        window(browser, room.url) as reader,
        window(browser, room.url, complaints={"404"}) as stranger,
    ):
        await worker.write(started())
        await log_in(reader, "reader", room)
        await reader.goto(f"/runs/{RUN}")
        assert await reader.get_by_role("button", name="Stop this run").count() == 0
        await log_in(stranger, "stranger", room)
        answer = await stranger.goto(f"/runs/{RUN}")
        assert answer is not None
        assert answer.status == 404
        await worker.write(*step(1), Settled(outcome=list(whole_run())[-1].outcome))  # type: ignore[union-attr]
        await reader.get_by_text("did 1").wait_for()
        await reader.get_by_text("Pull request #8 is open.").wait_for()
