"""The tabs of one browser, and their events: dialogs, popups, crashes, requests."""

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from patchwright.runtime.browser.browser_tab import RESPONSE_TIMEOUT, BrowserTab, TranslateErrors
from patchwright.runtime.browser.error_hints import BrowserCallFailed
from patchwright.runtime.observations import Tab
from patchwright.runtime.page.devtools import BidRegistry, DevToolsError

if TYPE_CHECKING:
    from patchwright.runtime.browser.vendor_types import (
        VendorContext,
        VendorDialog,
        VendorDownload,
        VendorPage,
        VendorRequest,
    )

MAX_TABS = 20
MAX_DIALOGS = 10  # number of dialogs of one page in one turn; a page that opens more is in a loop
MAX_NOTES = 20
MAX_UNRELEASED_DOCUMENTS = 5  # a garbage collection starts when a tab has shown this many documents
LOAD_TIMEOUT = 15.0  # maximum seconds for a server to respond, and then again for its page to load
QUIET_SECONDS = 0.03  # seconds without activity after which a page is idle
MAX_BUSY_SECONDS = 0.5  # maximum seconds to wait for a loaded page to become idle
_POLL_SECONDS = 0.01
_CLOSE_TIMEOUT = 3.0
_MAX_TEXT, _MAX_TITLE, _MAX_URL = 500, 200, 2_000  # maximum characters


class TabManager:
    """The tabs of one browser context, in the order in which they were opened."""

    def __init__(
        self, context: "VendorContext", translate_errors: TranslateErrors, load_timeout: float
    ) -> None:
        self.load_timeout = load_timeout
        self.context = context
        self.translate_errors = translate_errors
        self.tabs: list[BrowserTab] = []
        self.active_index = 0
        """Index of the tab that receives calls."""
        self.notes: list[str] = []
        self.has_exited = False
        """True if the browser has ended."""
        self.download_count = 0
        """Number of downloads that have started."""
        self._bid_counter = itertools.count(1)
        self._ignored_targets: set[str] = set()
        """Ids of DevTools targets for which no call waits any longer: closed tabs, and tabs that did not open
        in time.
        """
        self._tasks: set[asyncio.Task[None]] = set()
        context.on("page", self._on_page)
        context.on("close", self._on_context_close)
        for page in context.pages:
            self._on_page(page)
        self.notes.clear()

    def add_note(self, text: str) -> None:
        """Add a note for the model. Only the next snapshot contains it."""
        if text not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def begin_turn(self) -> None:
        """Start a new turn: reset everything that is counted per turn."""
        for tab in self.tabs:
            tab.pending_requests.clear()
            tab.dialog_count = 0

    async def active_tab(self) -> BrowserTab:
        """Return the active tab. If there is none, open one."""
        if not self.tabs:
            await self.open_tab()
        self.active_index = min(max(self.active_index, 0), len(self.tabs) - 1)
        return self.tabs[self.active_index]

    async def open_tab(self) -> None:
        """Open a blank tab and make it the active one."""
        if len(self.tabs) >= MAX_TABS:
            raise BrowserCallFailed(f"at most {MAX_TABS} tabs can be open: close one with tab_close()")
        with self.translate_errors():
            page = await self.context.new_page()
        self._on_page(page)
        self.active_index = next(index for index, tab in enumerate(self.tabs) if tab.page is page)
        self.notes = [note for note in self.notes if not note.startswith("a tab opened")]

    async def focus_tab(self, index: int) -> None:
        self.active_index = index
        with self.translate_errors():
            await self.tabs[index].page.bring_to_front()

    async def close_tab(self, tab: BrowserTab) -> None:
        """Close a tab and make the previous tab the active one. If no tab is left, open a blank tab."""
        self._remove_tab(tab)
        if not self.tabs:
            await self.open_tab()
        with contextlib.suppress(TimeoutError), self.translate_errors():
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await tab.page.close()
        await self.focus_tab(self.active_index)

    def record_call(self) -> None:
        """Record the time of a call. `wait_until_idle` then gives the page time to react to the call."""
        if self.tabs:
            tab = self.tabs[min(self.active_index, len(self.tabs) - 1)]
            tab.record_activity()
            tab.document_times.clear()

    async def wait_until_idle(self) -> None:
        """Wait until the active tab is loaded and idle, and until its new tabs are open. The waiting time is
        limited."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.load_timeout
        while True:
            tab = await self.active_tab()
            await asyncio.gather(
                self._wait_for_requests(tab, max(end, loop.time() + RESPONSE_TIMEOUT)),
                self._wait_for_new_tabs(tab, end),
            )
            if await self.active_tab() is tab or loop.time() > end:
                return

    async def _wait_for_requests(self, tab: BrowserTab, end: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < end:
            await self._wait_until_loaded(tab, end)
            idle_deadline = min(loop.time() + MAX_BUSY_SECONDS, end)
            while not tab.is_loading() and loop.time() < idle_deadline:
                if not tab.pending_requests and loop.time() - tab.last_activity > QUIET_SECONDS:
                    return
                await asyncio.sleep(_POLL_SECONDS)
            if not tab.is_loading():
                return
        if not tab.page.is_closed():
            self.add_note(
                f"the page is still loading after {self.load_timeout:g} s; the tree shows its current state"
            )
            await self.stop_loading(tab)

    async def _wait_for_new_tabs(self, tab: BrowserTab, end: float) -> None:
        """Wait until the events of new tabs have arrived. Chromium lists a new tab right after a click, but
        its event comes later.
        """
        loop = asyncio.get_running_loop()
        while unreported := await self._find_unreported_targets(tab):
            if loop.time() > end:
                self._ignored_targets |= unreported
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _find_unreported_targets(self, tab: BrowserTab) -> set[str]:
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                targets = (await tab.send("Target.getTargets", {}))["targetInfos"]
                known = {await each.fetch_target_id() for each in self.tabs}
        except (DevToolsError, TimeoutError):
            return set()
        # A target with a subtype is not a tab yet. Chromium prepares it for a future tab.
        pages = {each["targetId"] for each in targets if each["type"] == "page" and not each.get("subtype")}
        return pages - known - self._ignored_targets

    async def wait_for_download(self, before: int) -> None:
        """Wait for the event of a new download, for at most RESPONSE_TIMEOUT seconds.

        The event can arrive after the call that started the download has returned. `before` is the value of
        `download_count` before that call.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                while self.download_count == before:  # noqa: ASYNC110  # it may time out
                    await asyncio.sleep(_POLL_SECONDS)

    async def stop_loading(self, tab: BrowserTab) -> None:
        """Stop loading the tab."""
        tab.pending_requests.clear()
        tab.stopped_loading = True
        with contextlib.suppress(DevToolsError, TimeoutError):
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                await tab.send("Page.stopLoading", {})

    async def leave_page(self, tab: BrowserTab) -> None:
        """Leave a page whose scripts open other pages again and again. Otherwise, the scripts would replace the
        page that a call opens.
        """
        try:
            with contextlib.suppress(DevToolsError, TimeoutError):
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    await tab.send("Emulation.setScriptExecutionDisabled", {"value": True})
                    await tab.send("Page.stopLoading", {})
                    with self.translate_errors():
                        await tab.page.goto("about:blank")
        finally:  # enables scripts for the next page, even after a timeout
            with contextlib.suppress(DevToolsError, TimeoutError):
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    await tab.send("Emulation.setScriptExecutionDisabled", {"value": False})

    async def ensure_responsive_tab(self) -> BrowserTab:
        """Return the active tab as soon as it responds. Stops scripts that do not end, and closes tabs that
        stay blocked.
        """
        for _ in range(MAX_TABS):
            tab = await self.active_tab()
            if await tab.is_responsive():
                return tab
            if self.has_exited:
                raise DevToolsError("the browser has been closed")
            with contextlib.suppress(DevToolsError, TimeoutError):
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    await tab.send("Runtime.terminateExecution", {})
                if await tab.is_responsive():
                    self.add_note("an endless script of the page was stopped")
                    return tab
            self.add_note(f"the page at {tab.page.url[:_MAX_TEXT]} stopped responding: its tab was closed")
            await self.close_tab(tab)
        raise DevToolsError("no tab responds")

    def collect_garbage(self) -> None:
        """Make Chromium release old documents, in the background. Chromium would keep them for a long time.

        Without this, a tab took 350 MB after it had opened a page of 200 rows 60 times.
        """
        for tab in self.tabs:
            if tab.unreleased_documents >= MAX_UNRELEASED_DOCUMENTS:
                tab.unreleased_documents = 0
                self._start_task(self._collect_garbage(tab))

    async def list_tabs(self) -> tuple[Tab, ...]:
        """Return the tabs for a snapshot. Includes tabs whose pages are blocked, because the data comes from the
        browser and not from the pages.
        """
        urls_and_titles = await asyncio.gather(*map(self._read_url_and_title, self.tabs))
        return tuple(
            Tab(url=url, title=title, active=index == self.active_index)
            for index, (url, title) in enumerate(urls_and_titles)
        )

    async def _collect_garbage(self, tab: BrowserTab) -> None:
        with contextlib.suppress(DevToolsError, TimeoutError):
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                await tab.send("HeapProfiler.collectGarbage", {})

    async def _read_url_and_title(self, tab: BrowserTab) -> tuple[str, str]:
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                target = (await tab.send("Target.getTargetInfo", {}))["targetInfo"]
        except (DevToolsError, TimeoutError):
            return tab.page.url[:_MAX_URL], ""
        title = "" if target["title"] == target["url"] else target["title"]
        return (target["url"] or tab.page.url)[:_MAX_URL], " ".join(title.split())[:_MAX_TITLE]

    async def _wait_until_loaded(self, tab: BrowserTab, end: float) -> None:
        loop = asyncio.get_running_loop()
        while tab.is_loading() and loop.time() < end:  # noqa: ASYNC110  # it may time out
            await asyncio.sleep(_POLL_SECONDS)
        if tab.stopped_loading:
            return
        with contextlib.suppress(DevToolsError), self.translate_errors():
            remaining = max(end - loop.time(), 0.001)
            await tab.page.wait_for_load_state("load", timeout=remaining * 1000)

    # --- events ---------------------------------------------------------------------------------------------

    def _on_page(self, page: "VendorPage") -> None:
        if any(tab.page is page for tab in self.tabs):
            return
        if len(self.tabs) >= MAX_TABS:
            self.add_note(f"a new tab was closed at once, because at most {MAX_TABS} tabs can be open")
            self._start_task(self._close_page(page))
            return
        tab = BrowserTab(page, self.translate_errors, BidRegistry(self._bid_counter))
        tab.record_activity()
        self.tabs.append(tab)
        self.active_index = len(self.tabs) - 1
        self.add_note(f"a new tab was opened and is now the active one: tab {self.active_index}")

        def on_request(request: "VendorRequest") -> None:
            tab.record_activity()
            if request.is_navigation_request():
                tab.stopped_loading = False
            if request.resource_type not in ("eventsource", "websocket", "ping", "media"):
                tab.pending_requests.add(request)

        def on_response(request: "VendorRequest") -> None:
            tab.record_activity()
            tab.pending_requests.discard(request)

        page.on("request", on_request)
        page.on("requestfinished", on_response)
        page.on("requestfailed", on_response)
        page.on("load", lambda _: tab.record_activity())
        page.on("domcontentloaded", lambda _: tab.record_document())
        page.on("framenavigated", lambda _: tab.record_activity())
        # The subscription is permanent. If it starts just before the click, Playwright sometimes misses the
        # file chooser.
        page.on("filechooser", lambda _: tab.record_activity())
        page.on("dialog", lambda dialog: self._start_task(self._on_dialog(tab, dialog)))
        page.on("download", self._on_download)
        page.on("crash", lambda _: self._on_crash(tab))
        page.on("close", lambda _: self._remove_tab(tab))

    def _on_download(self, download: "VendorDownload") -> None:
        self.download_count += 1
        self.add_note(
            f"the page offered the file {download.suggested_filename[:80]!r}, which the browser does not save: "
            f"a shell command can fetch {download.url[:300]!r}"
        )

    async def _close_page(self, page: "VendorPage") -> None:
        with contextlib.suppress(DevToolsError), self.translate_errors():
            await page.close()

    async def _on_dialog(self, tab: BrowserTab, dialog: "VendorDialog") -> None:
        tab.record_activity()
        tab.dialog_count += 1
        text = " ".join(dialog.message[: 2 * _MAX_TEXT].split())[:_MAX_TEXT]
        with contextlib.suppress(DevToolsError):
            if tab.dialog_count > MAX_DIALOGS:
                if tab in self.tabs:  # no command can stop a script between two dialogs
                    self.add_note(f"the page opened more than {MAX_DIALOGS} dialogs: its tab was closed")
                    await self.close_tab(tab)
                return
            if dialog.type == "prompt":
                default = dialog.default_value[:_MAX_TEXT]
                self.add_note(
                    f"the page asked {text!r}; the browser answered with the suggested text {default!r}"
                )
            elif dialog.type == "beforeunload":
                self.add_note("the page asked whether to leave it; the browser answered yes")
            else:
                self.add_note(f"the page opened the {dialog.type} {text!r}; the browser pressed OK")
            with self.translate_errors():
                await dialog.accept(dialog.default_value if dialog.type == "prompt" else None)

    def _on_crash(self, tab: BrowserTab) -> None:
        self.add_note(
            f"the page at {tab.page.url[:_MAX_TEXT]} crashed (out of memory, perhaps): its tab was closed"
        )
        self._remove_tab(tab)
        self._start_task(self._close_page(tab.page))

    def _remove_tab(self, tab: BrowserTab) -> None:
        if tab not in self.tabs:
            return
        self._ignored_targets.add(tab.target_id)
        index = self.tabs.index(tab)
        del self.tabs[index]
        if self.active_index >= index:
            self.active_index = max(self.active_index - 1, 0)

    def _on_context_close(self, _: object) -> None:
        self.has_exited = True

    def _start_task(self, work: "Any") -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
