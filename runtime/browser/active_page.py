"""The page in the browser's active tab: opens URLs in it, and finds its elements."""

import asyncio
import contextlib
import re
import secrets
from typing import TYPE_CHECKING, Literal

from patchwright.runtime.browser.error_hints import BrowserCallFailed, is_local_url
from patchwright.runtime.browser.tab_manager import TabManager
from patchwright.runtime.observations import SnapshotOptions
from patchwright.runtime.page.page_reader import DevToolsError, find_node, read_page
from patchwright.runtime.path_guard import PathGuard, ToolInputError

if TYPE_CHECKING:
    from patchwright.runtime.browser.vendor_types import (
        VendorElement,
        VendorFrame,
        VendorPage,
        VendorResponse,
    )

_MAX_FILES = 20
_GOTO_ATTEMPTS, _INTERRUPTED_ERRORS = 5, ("interrupted by another navigation", "frame was detached")


# Stores an element in the page under a random name, until Playwright has a handle to the element.
_STORE_ELEMENT_JS = """function (key) {
  const element = this.nodeType === 9 ? this.documentElement : this;
  Object.defineProperty(element.ownerDocument.defaultView, key, { value: element, configurable: true });
}"""
_TAKE_ELEMENT_JS = "key => { const element = window[key]; delete window[key]; return element; }"


class ActivePage:
    """The page in the active tab."""

    def __init__(self, tab_manager: TabManager, paths: PathGuard) -> None:
        self._tab_manager = tab_manager
        self._paths = paths

    async def _navigate(self, url: str) -> "VendorResponse | None":
        """Open a URL in the active tab. Return None if there is no response to show, for example because the
        URL leads to a download.
        """
        tab, seconds = await self._tab_manager.active_tab(), self._tab_manager.load_timeout
        downloads = self._tab_manager.download_count
        for attempt in range(_GOTO_ATTEMPTS):
            if attempt > 1 or tab.is_in_navigation_loop():
                await self._tab_manager.leave_page(tab)
            try:
                with self._tab_manager.translate_errors():
                    response = await tab.page.goto(url, wait_until="commit", timeout=seconds * 1000)
                if response is not None or not tab.is_in_navigation_loop():
                    return response
            except DevToolsError as error:
                message = str(error)
                if "Download is starting" in message:
                    await self._tab_manager.wait_for_download(downloads)
                    return None
                if "Timeout" in message:
                    await self._tab_manager.stop_loading(tab)
                    raise BrowserCallFailed(f"the server did not respond within {seconds:g} s") from error
                # Try again if the old page opened another document at the same moment.
                if attempt == _GOTO_ATTEMPTS - 1 or not any(
                    words in message for words in _INTERRUPTED_ERRORS
                ):
                    raise
        return None

    async def _active_page(self) -> "VendorPage":
        return (await self._tab_manager.active_tab()).page

    async def _find_element(self, bid: str) -> "VendorElement":
        """Return the element with this bid (element id). Searches all frames and shadow trees of the active
        tab.
        """
        tab = await self._tab_manager.active_tab()
        not_found = (
            f"there is no element {bid[:20]!r} on this page now: choose an element of the current tree"
        )
        node = await find_node(tab.send, tab.bids, bid)
        if node is None and not tab.has_bids:  # the page was opened by an earlier call of this turn
            await read_page(tab.send, tab.bids, SnapshotOptions())
            tab.has_bids, node = True, tab.bids.find_node(bid)
        if node is None:
            raise BrowserCallFailed(not_found)
        key = f"_{secrets.token_hex(12)}"
        try:
            resolved = await tab.send("DOM.resolveNode", {"backendNodeId": node})
            request = {"objectId": resolved["object"]["objectId"], "arguments": [{"value": key}]}
            stored = await tab.send(
                "Runtime.callFunctionOn", {**request, "functionDeclaration": _STORE_ELEMENT_JS}
            )
        except DevToolsError as error:
            raise BrowserCallFailed(not_found) from error
        if "exceptionDetails" in stored:  # the element's frame is gone
            raise BrowserCallFailed(not_found)
        main, *others = [tab.page.main_frame, *(f for f in tab.page.frames if f is not tab.page.main_frame)]
        handles = [await self._take_element(main, key)]
        if handles == [None]:
            handles = await asyncio.gather(*(self._take_element(frame, key) for frame in others))
        if (element := next(filter(None, handles), None)) is None:
            raise BrowserCallFailed(not_found)
        return element

    async def _take_element(self, frame: "VendorFrame", key: str) -> "VendorElement | None":
        with contextlib.suppress(DevToolsError), self._tab_manager.translate_errors():
            return (await frame.evaluate_handle(_TAKE_ELEMENT_JS, key)).as_element()
        return None

    async def _go_in_history(self, step: Literal[-1, 1]) -> None:
        tab = await self._tab_manager.active_tab()
        history = await tab.send("Page.getNavigationHistory", {})
        index = history["currentIndex"] + step
        if not 0 <= index < len(history["entries"]):
            raise BrowserCallFailed(
                f"this tab has no {'earlier' if step < 0 else 'later'} page: open one with goto(url)"
            )
        move = tab.page.go_back if step < 0 else tab.page.go_forward
        await move(wait_until="commit", timeout=self._tab_manager.load_timeout * 1000)

    def _resolve_files(self, file: str | list[str]) -> list[str]:
        names = [file] if isinstance(file, str) else file
        if len(names) > _MAX_FILES:
            raise BrowserCallFailed(f"upload at most {_MAX_FILES} files at once")
        try:
            return [str(self._paths.resolve_file(name)) for name in names]
        except ToolInputError as error:
            raise BrowserCallFailed(error.failure.message) from error


def check_is_local(page: "VendorPage", frame: "VendorFrame | None") -> None:
    """Check that the sandbox itself serves the page, the frame, and the frames around it. Raises
    BrowserCallFailed.
    """
    urls = [page.url]
    while frame is not None:
        urls.append(frame.url)
        frame = frame.parent_frame
    # A frame without its own URL belongs to the page that created it.
    if foreign := [
        url for url in urls if not is_local_url(url) and not re.match("about:(blank|srcdoc)$", url)
    ]:
        raise BrowserCallFailed(
            f"files can be uploaded only to pages on the sandbox's own localhost, not to {foreign[0][:200]}"
        )
    if not is_local_url(page.url):
        raise BrowserCallFailed(
            "files can be uploaded only to pages on the sandbox's own localhost: open one with goto first"
        )
