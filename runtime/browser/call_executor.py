"""Executes the browser's calls. Playwright itself checks that an element is ready for a call."""

import asyncio
import contextlib
import re
import secrets
from typing import TYPE_CHECKING, Literal

from patchwright.runtime.browser.action_space import MAX_WAIT_MS, Button, Modifier
from patchwright.runtime.browser.error_hints import BrowserCallFailed, is_local_url, normalize_url
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

ACTION_TIMEOUT_MS = 2_000.0  # milliseconds to wait until an element is ready
_DRAG_STEPS = 5  # mouse events of one drag; pages need several to detect the movement
_MAX_FILES = 20
_GOTO_ATTEMPTS, _INTERRUPTED_ERRORS = 5, ("interrupted by another navigation", "frame was detached")

# Stores an element in the page under a random name, until Playwright has a handle to the element.
_STORE_ELEMENT_JS = """function (key) {
  const element = this.nodeType === 9 ? this.documentElement : this;
  Object.defineProperty(element.ownerDocument.defaultView, key, { value: element, configurable: true });
}"""
_TAKE_ELEMENT_JS = "key => { const element = window[key]; delete window[key]; return element; }"
_LIST_OPTIONS_JS = "e => Array.from(e.options || []).slice(0, 40).map(option => option.label || option.value)"
_WAIT_TWO_FRAMES_JS = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class CallExecutor:
    """Executes each call. The method for a call has the same name and arguments as the call.

    The methods raise BrowserCallFailed with advice for the model, or DevToolsError with the browser's own
    message.
    """

    def __init__(self, tab_manager: TabManager, paths: PathGuard) -> None:
        self._tab_manager = tab_manager
        self._paths = paths
        self.user_message: str | None = None
        self.infeasible_reason: str | None = None

    @property
    def is_done(self) -> bool:
        """True if the model has ended the task, with an answer or because the goal cannot be reached."""
        return self.user_message is not None or self.infeasible_reason is not None

    async def noop(self, wait_ms: float = 1000) -> None:
        await asyncio.sleep(min(max(wait_ms, 0), MAX_WAIT_MS) / 1000)

    async def send_msg_to_user(self, text: str) -> None:
        self.user_message = text

    async def report_infeasible(self, reason: str) -> None:
        self.infeasible_reason = reason

    # --- elements ---------------------------------------------------------------------------------------------------

    async def scroll(self, delta_x: float, delta_y: float) -> None:
        page = await self._active_page()
        await page.mouse.wheel(delta_x, delta_y)
        with contextlib.suppress(
            TimeoutError
        ):  # a page that does not respond is handled by the next snapshot
            async with asyncio.timeout(1):
                await page.evaluate(_WAIT_TWO_FRAMES_JS)

    async def fill(self, bid: str, value: str) -> None:
        await (await self._find_element(bid)).fill(value, timeout=ACTION_TIMEOUT_MS)

    async def check(self, bid: str) -> None:
        await (await self._find_element(bid)).check(timeout=ACTION_TIMEOUT_MS)

    async def uncheck(self, bid: str) -> None:
        await (await self._find_element(bid)).uncheck(timeout=ACTION_TIMEOUT_MS)

    async def select_option(self, bid: str, options: str | list[str]) -> None:
        element = await self._find_element(bid)
        try:
            with self._tab_manager.translate_errors():
                await element.select_option(options, timeout=ACTION_TIMEOUT_MS)
        except DevToolsError as error:
            if "did not find some options" not in str(error):
                raise
            labels = [" ".join(str(label).split())[:80] for label in await element.evaluate(_LIST_OPTIONS_JS)]
            raise BrowserCallFailed(f"there is no such option; the options are {labels}") from error

    async def click(self, bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
        element = await self._find_element(bid)
        await element.click(button=button, modifiers=modifiers, timeout=ACTION_TIMEOUT_MS)

    async def dblclick(self, bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
        element = await self._find_element(bid)
        await element.dblclick(button=button, modifiers=modifiers, timeout=ACTION_TIMEOUT_MS)

    async def hover(self, bid: str) -> None:
        await (await self._find_element(bid)).hover(timeout=ACTION_TIMEOUT_MS)

    async def press(self, bid: str, key_comb: str) -> None:
        await (await self._find_element(bid)).press(key_comb, timeout=ACTION_TIMEOUT_MS)

    async def focus(self, bid: str) -> None:
        await (await self._find_element(bid)).focus()

    async def clear(self, bid: str) -> None:
        await (await self._find_element(bid)).fill("", timeout=ACTION_TIMEOUT_MS)

    async def drag_and_drop(self, from_bid: str, to_bid: str) -> None:
        mouse = (await self._active_page()).mouse
        source, target = await self._find_element(from_bid), await self._find_element(to_bid)
        await source.hover(timeout=ACTION_TIMEOUT_MS)
        await mouse.down()
        try:
            # Playwright's hover() is not used. It fails if the dragged element covers the target, but that is
            # no error in a drag.
            await target.scroll_into_view_if_needed(timeout=ACTION_TIMEOUT_MS)
            if (box := await target.bounding_box()) is None:
                raise BrowserCallFailed(f"element {to_bid} is not visible: you cannot drop anything on it")
            await mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=_DRAG_STEPS)
        finally:
            await mouse.up()

    async def upload_file(self, bid: str, file: str | list[str]) -> None:
        files = self._resolve_files(file)
        page, element = await self._active_page(), await self._find_element(bid)
        _check_is_local(page, await element.owner_frame())
        if await element.evaluate("e => e instanceof HTMLInputElement && e.type === 'file'"):
            # this works even if the page hides the input behind a button
            await element.set_input_files(files, timeout=ACTION_TIMEOUT_MS)
            return
        async with page.expect_file_chooser(timeout=ACTION_TIMEOUT_MS) as opened:
            await element.click(timeout=ACTION_TIMEOUT_MS)
        chooser = await opened.value
        _check_is_local(page, await chooser.element.owner_frame())
        await chooser.set_files(files, timeout=ACTION_TIMEOUT_MS)

    # --- navigation -------------------------------------------------------------------------------------------------

    async def goto(self, url: str) -> None:
        full_url = normalize_url(url)
        response = await self._navigate(full_url)
        if response is not None and response.status >= 400:
            self._tab_manager.add_note(
                f"the server responded with status {response.status} {response.status_text[:80]}"
            )

    async def go_back(self) -> None:
        await self._go_in_history(-1)

    async def go_forward(self) -> None:
        await self._go_in_history(1)

    # --- coordinates ------------------------------------------------------------------------------------------------

    async def mouse_move(self, x: float, y: float) -> None:
        await (await self._active_page()).mouse.move(x, y)

    async def mouse_up(self, x: float, y: float, button: Button = "left") -> None:
        mouse = (await self._active_page()).mouse
        await mouse.move(x, y)
        await mouse.up(button=button)

    async def mouse_down(self, x: float, y: float, button: Button = "left") -> None:
        mouse = (await self._active_page()).mouse
        await mouse.move(x, y)
        await mouse.down(button=button)

    async def mouse_click(self, x: float, y: float, button: Button = "left") -> None:
        await (await self._active_page()).mouse.click(x, y, button=button)

    async def mouse_dblclick(self, x: float, y: float, button: Button = "left") -> None:
        await (await self._active_page()).mouse.dblclick(x, y, button=button)

    async def mouse_drag_and_drop(self, from_x: float, from_y: float, to_x: float, to_y: float) -> None:
        mouse = (await self._active_page()).mouse
        await mouse.move(from_x, from_y)
        await mouse.down()
        try:
            await mouse.move(to_x, to_y, steps=_DRAG_STEPS)
        finally:
            await mouse.up()

    async def mouse_upload_file(self, x: float, y: float, file: str | list[str]) -> None:
        files = self._resolve_files(file)
        page = await self._active_page()
        _check_is_local(page, None)
        async with page.expect_file_chooser(timeout=ACTION_TIMEOUT_MS) as opened:
            await page.mouse.click(x, y)
        chooser = await opened.value
        _check_is_local(page, await chooser.element.owner_frame())
        await chooser.set_files(files, timeout=ACTION_TIMEOUT_MS)

    # --- the keyboard -----------------------------------------------------------------------------------------------

    async def keyboard_press(self, key: str) -> None:
        await (await self._active_page()).keyboard.press(key)

    async def keyboard_up(self, key: str) -> None:
        await (await self._active_page()).keyboard.up(key)

    async def keyboard_down(self, key: str) -> None:
        await (await self._active_page()).keyboard.down(key)

    async def keyboard_type(self, text: str) -> None:
        await (await self._active_page()).keyboard.type(text)

    async def keyboard_insert_text(self, text: str) -> None:
        await (await self._active_page()).keyboard.insert_text(text)

    # --- tabs -------------------------------------------------------------------------------------------------------

    async def new_tab(self) -> None:
        await self._tab_manager.open_tab()

    async def tab_close(self) -> None:
        await self._tab_manager.close_tab(await self._tab_manager.active_tab())

    async def tab_focus(self, index: int) -> None:
        if not 0 <= index < len(self._tab_manager.tabs):
            raise BrowserCallFailed(
                f"there is no tab {index}: the open tabs are 0 to {len(self._tab_manager.tabs) - 1}"
            )
        await self._tab_manager.focus_tab(index)

    # --- helpers --------------------------------------------------------------------------------------------

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


def _check_is_local(page: "VendorPage", frame: "VendorFrame | None") -> None:
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
