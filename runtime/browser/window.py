"""The tabs of one browser, and what happens in them unasked: dialogs, popups, crashes, requests."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.browser.advice import Undone
from runtime.browser.tab import ANSWER_SECONDS, Fence, OpenTab
from runtime.observations import Tab
from runtime.page.devtools import Bids, NoAnswer

if TYPE_CHECKING:
    from runtime.browser.browser import (
        VendorContext,
        VendorDialog,
        VendorDownload,
        VendorPage,
        VendorRequest,
    )

MOST_TABS = 20
MOST_DIALOGS = 10  # of one page in one turn: more are a loop
MOST_NOTES = 20
MOST_LEFT = 5  # documents that a tab keeps without need
LOAD_SECONDS = 15.0  # for a server to answer, and then for its page to load
QUIET_SECONDS = 0.03  # without news, after which a page is taken as finished
BUSY_SECONDS = 0.5  # at most, that a loaded page is waited for
_POLL_SECONDS = 0.01
_CLOSE_SECONDS = 3.0
_LONGEST_TEXT, _LONGEST_TITLE, _LONGEST_URL = 500, 200, 2_000  # characters


class Window:
    """One context's tabs, in the order in which they were opened."""

    def __init__(
        self,
        context: "VendorContext",
        fence: Fence,
        download: Callable[["VendorDownload"], None],
        load_seconds: float,
    ) -> None:
        self.load_seconds = load_seconds
        self.context = context
        self.fence = fence
        self.tabs: list[OpenTab] = []
        self.active = 0
        """Index of the tab that calls go to."""
        self.notes: list[str] = []
        self.gone = False
        """The browser has ended."""
        self.downloads = 0
        """That have begun, ever."""
        self._download = download
        self._numbers = itertools.count(1)
        self._let_go: set[str] = set()
        """Targets that nobody waits for: of closed tabs, and what did not come in time."""
        self._tasks: set[asyncio.Task[None]] = set()
        context.on("page", self._opened)
        context.on("close", self._ended)
        for page in context.pages:
            self._opened(page)
        self.notes.clear()

    def note(self, text: str) -> None:
        """Say something to the model, once, with what it sees next."""
        if text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    def begin(self) -> None:
        """A turn begins."""
        for tab in self.tabs:
            tab.asked.clear()
            tab.dialogs = 0

    async def tab(self) -> OpenTab:
        """The active tab; a new one when there is none."""
        if not self.tabs:
            await self.open()
        self.active = min(max(self.active, 0), len(self.tabs) - 1)
        return self.tabs[self.active]

    async def open(self) -> None:
        """Open a blank tab and make it the active one."""
        if len(self.tabs) >= MOST_TABS:
            raise Undone(f"at most {MOST_TABS} tabs are open at a time: close one with tab_close()")
        with self.fence():
            page = await self.context.new_page()
        self._opened(page)
        self.active = next(index for index, tab in enumerate(self.tabs) if tab.page is page)
        self.notes = [note for note in self.notes if not note.startswith("a tab opened")]

    async def focus(self, index: int) -> None:
        self.active = index
        with self.fence():
            await self.tabs[index].page.bring_to_front()

    async def close(self, tab: OpenTab) -> None:
        """Close a tab; the one before it becomes active, or a blank one when it was the last."""
        self._forget(tab)
        if not self.tabs:
            await self.open()
        with contextlib.suppress(TimeoutError), self.fence():
            async with asyncio.timeout(_CLOSE_SECONDS):
                await tab.page.close()
        await self.focus(self.active)

    def acted(self) -> None:
        """A call was made: what it has set off may come at once."""
        if self.tabs:
            tab = self.tabs[min(self.active, len(self.tabs) - 1)]
            tab.hear()
            tab.opened.clear()

    async def settle(self) -> None:
        """Wait until the active tab has loaded and is quiet, and what it opened is there, for a bounded time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.load_seconds
        while True:
            tab = await self.tab()
            await asyncio.gather(
                self._quiet(tab, max(end, loop.time() + ANSWER_SECONDS)), self._opens(tab, end)
            )
            if await self.tab() is tab or loop.time() > end:
                return

    async def _quiet(self, tab: OpenTab, end: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < end:
            await self._loaded(tab, end)
            busy = min(loop.time() + BUSY_SECONDS, end)
            while not tab.loads() and loop.time() < busy:
                if not tab.asked and loop.time() - tab.news > QUIET_SECONDS:
                    return
                await asyncio.sleep(_POLL_SECONDS)
            if not tab.loads():
                return
        if not tab.page.is_closed():
            self.note(f"the page is still loading after {self.load_seconds:g} s: this is what has come")
            await self.stop(tab)

    async def _opens(self, tab: OpenTab, end: float) -> None:
        """Wait for the tabs that Chromium has opened: it has them when a click ends, we hear with their documents."""
        loop = asyncio.get_running_loop()
        while unheard := await self._unheard(tab):
            if loop.time() > end:
                self._let_go |= unheard
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _unheard(self, tab: OpenTab) -> set[str]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                there = (await tab.send("Target.getTargets", {}))["targetInfos"]
                known = {await each.name() for each in self.tabs}
        except (NoAnswer, TimeoutError):
            return set()
        # What has a subtype is no tab, but prepared for one.
        pages = {each["targetId"] for each in there if each["type"] == "page" and not each.get("subtype")}
        return pages - known - self._let_go

    async def downloading(self, before: int) -> None:
        """Wait for a download that the browser has announced, as the next after `before`: the news may come late."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while self.downloads == before:  # noqa: ASYNC110  # a clock may end it too
                    await asyncio.sleep(_POLL_SECONDS)

    async def stop(self, tab: OpenTab) -> None:
        """Load nothing more of what the tab waits for."""
        tab.asked.clear()
        tab.stopped = True
        with contextlib.suppress(NoAnswer, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await tab.send("Page.stopLoading", {})

    async def quieten(self, tab: OpenTab) -> None:
        """Leave a page whose scripts open one thing after the other, which would overtake what a call opens."""
        try:
            with contextlib.suppress(NoAnswer, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await tab.send("Emulation.setScriptExecutionDisabled", {"value": True})
                    await tab.send("Page.stopLoading", {})
                    with self.fence():
                        await tab.page.goto("about:blank")
        finally:  # the next page's scripts are to run, also where the call's time ends here
            with contextlib.suppress(NoAnswer, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await tab.send("Emulation.setScriptExecutionDisabled", {"value": False})

    async def responsive(self) -> OpenTab:
        """The active tab, able to answer: a script without end is stopped, what still does not answer is replaced."""
        for _ in range(MOST_TABS):
            tab = await self.tab()
            if await tab.answers():
                return tab
            if self.gone:
                raise NoAnswer("the browser has been closed")
            with contextlib.suppress(NoAnswer, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await tab.send("Runtime.terminateExecution", {})
                if await tab.answers():
                    self.note("a script of the page ran without end and was stopped")
                    return tab
            self.note(
                f"the page at {tab.page.url[:_LONGEST_TEXT]} did not answer any more: its tab was closed"
            )
            await self.close(tab)
        raise NoAnswer("no tab answers")

    def tidy(self) -> None:
        """Throw away the documents that were left, while nobody waits.

        Chromium keeps them for long: a tab that opened a page of 200 rows 60 times took 350 MB.
        """
        for tab in self.tabs:
            if tab.left >= MOST_LEFT:
                tab.left = 0
                self._spawn(self._tidy(tab))

    async def listed(self) -> tuple[Tab, ...]:
        """The tabs as a model sees them; known by the browser, whatever their pages do."""
        shown = await asyncio.gather(*map(self._shown, self.tabs))
        return tuple(
            Tab(url=url, title=title, active=index == self.active) for index, (url, title) in enumerate(shown)
        )

    async def _tidy(self, tab: OpenTab) -> None:
        with contextlib.suppress(NoAnswer, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await tab.send("HeapProfiler.collectGarbage", {})

    async def _shown(self, tab: OpenTab) -> tuple[str, str]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                target = (await tab.send("Target.getTargetInfo", {}))["targetInfo"]
        except (NoAnswer, TimeoutError):
            return tab.page.url[:_LONGEST_URL], ""
        title = "" if target["title"] == target["url"] else target["title"]
        return (target["url"] or tab.page.url)[:_LONGEST_URL], " ".join(title.split())[:_LONGEST_TITLE]

    async def _loaded(self, tab: OpenTab, end: float) -> None:
        loop = asyncio.get_running_loop()
        while tab.loads() and loop.time() < end:  # noqa: ASYNC110  # a clock may end it too
            await asyncio.sleep(_POLL_SECONDS)
        if tab.stopped:
            return
        with contextlib.suppress(NoAnswer), self.fence():
            left = max(end - loop.time(), 0.001)
            await tab.page.wait_for_load_state("load", timeout=left * 1000)

    # --- what happens unasked -----------------------------------------------------------------------------------

    def _opened(self, page: "VendorPage") -> None:
        if any(tab.page is page for tab in self.tabs):
            return
        if len(self.tabs) >= MOST_TABS:
            self.note(f"a further tab was closed: at most {MOST_TABS} are kept")
            self._spawn(self._drop(page))
            return
        tab = OpenTab(page, self.fence, Bids(self._numbers))
        tab.hear()
        self.tabs.append(tab)
        self.active = len(self.tabs) - 1
        self.note(f"a tab opened and is the active one now: number {self.active}")

        def asked(request: "VendorRequest") -> None:
            tab.hear()
            if request.is_navigation_request():
                tab.stopped = False
            if request.resource_type not in ("eventsource", "websocket", "ping", "media"):
                tab.asked.add(request)

        def answered(request: "VendorRequest") -> None:
            tab.hear()
            tab.asked.discard(request)

        page.on("request", asked)
        page.on("requestfinished", answered)
        page.on("requestfailed", answered)
        page.on("load", lambda _: tab.hear())
        page.on("domcontentloaded", lambda _: tab.another())
        page.on("framenavigated", lambda _: tab.hear())
        # Heard all the time: told to listen just before a click, the vendor at times still misses what it opens.
        page.on("filechooser", lambda _: tab.hear())
        page.on("dialog", lambda dialog: self._spawn(self._answer(tab, dialog)))
        page.on("download", self._begun)
        page.on("crash", lambda _: self._crashed(tab))
        page.on("close", lambda _: self._forget(tab))

    def _begun(self, download: "VendorDownload") -> None:
        self.downloads += 1
        self._download(download)

    async def _drop(self, page: "VendorPage") -> None:
        with contextlib.suppress(NoAnswer), self.fence():
            await page.close()

    async def _answer(self, tab: OpenTab, dialog: "VendorDialog") -> None:
        tab.hear()
        tab.dialogs += 1
        text = " ".join(dialog.message[: 2 * _LONGEST_TEXT].split())[:_LONGEST_TEXT]
        with contextlib.suppress(NoAnswer):
            if tab.dialogs > MOST_DIALOGS:
                if tab in self.tabs:  # no command stops a script between two dialogs
                    self.note(f"the page opened more than {MOST_DIALOGS} dialogs: its tab was closed")
                    await self.close(tab)
                return
            if dialog.type == "prompt":
                given = dialog.default_value[:_LONGEST_TEXT]
                self.note(f"the page asked {text!r} and was given its own suggestion {given!r}")
            elif dialog.type == "beforeunload":
                self.note("the page asked whether to leave it, and was left")
            else:
                self.note(f"the page opened this {dialog.type}, and OK was pressed: {text!r}")
            with self.fence():
                await dialog.accept(dialog.default_value if dialog.type == "prompt" else None)

    def _crashed(self, tab: OpenTab) -> None:
        self.note(
            f"the page at {tab.page.url[:_LONGEST_TEXT]} crashed (out of memory, perhaps): its tab was closed"
        )
        self._forget(tab)
        self._spawn(self._drop(tab.page))

    def _forget(self, tab: OpenTab) -> None:
        if tab not in self.tabs:
            return
        self._let_go.add(tab.target)
        index = self.tabs.index(tab)
        del self.tabs[index]
        if self.active >= index:
            self.active = max(self.active - 1, 0)

    def _ended(self, _: object) -> None:
        self.gone = True

    def _spawn(self, work: "Any") -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
