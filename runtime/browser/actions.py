"""What each call of the browser's language does, with the browser's own checks that an element can take it."""

import asyncio
import contextlib
import re
import secrets
from typing import TYPE_CHECKING, Literal

from runtime.browser.advice import Undone, address, is_local
from runtime.browser.calls import MOST_WAIT_MS, Button, Modifier
from runtime.browser.window import Window
from runtime.observations import Look
from runtime.page.page import NoAnswer, find, look_at
from runtime.tree import Tree, Unfit

if TYPE_CHECKING:
    from runtime.browser.browser import VendorElement, VendorFrame, VendorPage, VendorResponse

ACTION_MS = 2_000.0  # until an element must be ready for an action
_DRAG_STEPS = 5  # mouse events on the way: pages want to see the movement
_MOST_FILES = 20
_ATTEMPTS, _INTERRUPTED = 5, ("interrupted by another navigation", "frame was detached")

# The element waits under a name that nobody can guess until the vendor has taken hold of it.
_PARK = """function (key) {
  const element = this.nodeType === 9 ? this.documentElement : this;
  Object.defineProperty(element.ownerDocument.defaultView, key, { value: element, configurable: true });
}"""
_TAKE = "key => { const element = window[key]; delete window[key]; return element; }"
_OPTIONS = "e => Array.from(e.options || []).slice(0, 40).map(option => option.label || option.value)"
_TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Actions:
    """The calls as methods of the same names and arguments.

    They raise Undone with advice, or NoAnswer with the browser's own words.
    """

    def __init__(self, window: Window, tree: Tree) -> None:
        self._window = window
        self._tree = tree
        self.answer: str | None = None
        self.infeasible: str | None = None

    @property
    def ended(self) -> bool:
        """The work is done, one way or the other."""
        return self.answer is not None or self.infeasible is not None

    async def noop(self, wait_ms: float = 1000) -> None:
        await asyncio.sleep(min(max(wait_ms, 0), MOST_WAIT_MS) / 1000)

    async def send_msg_to_user(self, text: str) -> None:
        self.answer = text

    async def report_infeasible(self, reason: str) -> None:
        self.infeasible = reason

    # --- elements ---------------------------------------------------------------------------------------------------

    async def scroll(self, delta_x: float, delta_y: float) -> None:
        page = await self._page()
        await page.mouse.wheel(delta_x, delta_y)
        with contextlib.suppress(TimeoutError):  # a page that is stuck is dealt with by whoever looks at it
            async with asyncio.timeout(1):
                await page.evaluate(_TWO_FRAMES)

    async def fill(self, bid: str, value: str) -> None:
        await (await self._element(bid)).fill(value, timeout=ACTION_MS)

    async def check(self, bid: str) -> None:
        await (await self._element(bid)).check(timeout=ACTION_MS)

    async def uncheck(self, bid: str) -> None:
        await (await self._element(bid)).uncheck(timeout=ACTION_MS)

    async def select_option(self, bid: str, options: str | list[str]) -> None:
        element = await self._element(bid)
        try:
            with self._window.fence():
                await element.select_option(options, timeout=ACTION_MS)
        except NoAnswer as error:
            if "did not find some options" not in str(error):
                raise
            there = [" ".join(str(label).split())[:80] for label in await element.evaluate(_OPTIONS)]
            raise Undone(f"there is no such option; its options are {there}") from error

    async def click(self, bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
        element = await self._element(bid)
        await element.click(button=button, modifiers=modifiers, timeout=ACTION_MS)

    async def dblclick(self, bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
        element = await self._element(bid)
        await element.dblclick(button=button, modifiers=modifiers, timeout=ACTION_MS)

    async def hover(self, bid: str) -> None:
        await (await self._element(bid)).hover(timeout=ACTION_MS)

    async def press(self, bid: str, key_comb: str) -> None:
        await (await self._element(bid)).press(key_comb, timeout=ACTION_MS)

    async def focus(self, bid: str) -> None:
        await (await self._element(bid)).focus()

    async def clear(self, bid: str) -> None:
        await (await self._element(bid)).fill("", timeout=ACTION_MS)

    async def drag_and_drop(self, from_bid: str, to_bid: str) -> None:
        mouse = (await self._page()).mouse
        source, target = await self._element(from_bid), await self._element(to_bid)
        await source.hover(timeout=ACTION_MS)
        await mouse.down()
        try:
            # Not its hover(): what is dragged may lie over the target, and that is no mistake.
            await target.scroll_into_view_if_needed(timeout=ACTION_MS)
            if (box := await target.bounding_box()) is None:
                raise Undone(f"element {to_bid} is not visible: nothing can be dropped on it")
            await mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=_DRAG_STEPS)
        finally:
            await mouse.up()

    async def upload_file(self, bid: str, file: str | list[str]) -> None:
        files = self._files(file)
        page, element = await self._page(), await self._element(bid)
        _must_be_local(page, await element.owner_frame())
        if await element.evaluate("e => e instanceof HTMLInputElement && e.type === 'file'"):
            await element.set_input_files(
                files, timeout=ACTION_MS
            )  # also when the page hides it behind a button
            return
        async with page.expect_file_chooser(timeout=ACTION_MS) as opened:
            await element.click(timeout=ACTION_MS)
        chooser = await opened.value
        _must_be_local(page, await chooser.element.owner_frame())
        await chooser.set_files(files, timeout=ACTION_MS)

    # --- navigation -------------------------------------------------------------------------------------------------

    async def goto(self, url: str) -> None:
        wanted = address(url)
        response = await self._load(wanted)
        if response is not None and response.status >= 400:
            self._window.note(
                f"the server answered with the status {response.status} {response.status_text[:80]}"
            )

    async def go_back(self) -> None:
        await self._go(-1)

    async def go_forward(self) -> None:
        await self._go(1)

    # --- coordinates ------------------------------------------------------------------------------------------------

    async def mouse_move(self, x: float, y: float) -> None:
        await (await self._page()).mouse.move(x, y)

    async def mouse_up(self, x: float, y: float, button: Button = "left") -> None:
        mouse = (await self._page()).mouse
        await mouse.move(x, y)
        await mouse.up(button=button)

    async def mouse_down(self, x: float, y: float, button: Button = "left") -> None:
        mouse = (await self._page()).mouse
        await mouse.move(x, y)
        await mouse.down(button=button)

    async def mouse_click(self, x: float, y: float, button: Button = "left") -> None:
        await (await self._page()).mouse.click(x, y, button=button)

    async def mouse_dblclick(self, x: float, y: float, button: Button = "left") -> None:
        await (await self._page()).mouse.dblclick(x, y, button=button)

    async def mouse_drag_and_drop(self, from_x: float, from_y: float, to_x: float, to_y: float) -> None:
        mouse = (await self._page()).mouse
        await mouse.move(from_x, from_y)
        await mouse.down()
        try:
            await mouse.move(to_x, to_y, steps=_DRAG_STEPS)
        finally:
            await mouse.up()

    async def mouse_upload_file(self, x: float, y: float, file: str | list[str]) -> None:
        files = self._files(file)
        page = await self._page()
        _must_be_local(page, None)
        async with page.expect_file_chooser(timeout=ACTION_MS) as opened:
            await page.mouse.click(x, y)
        chooser = await opened.value
        _must_be_local(page, await chooser.element.owner_frame())
        await chooser.set_files(files, timeout=ACTION_MS)

    # --- the keyboard -----------------------------------------------------------------------------------------------

    async def keyboard_press(self, key: str) -> None:
        await (await self._page()).keyboard.press(key)

    async def keyboard_up(self, key: str) -> None:
        await (await self._page()).keyboard.up(key)

    async def keyboard_down(self, key: str) -> None:
        await (await self._page()).keyboard.down(key)

    async def keyboard_type(self, text: str) -> None:
        await (await self._page()).keyboard.type(text)

    async def keyboard_insert_text(self, text: str) -> None:
        await (await self._page()).keyboard.insert_text(text)

    # --- tabs -------------------------------------------------------------------------------------------------------

    async def new_tab(self) -> None:
        await self._window.open()

    async def tab_close(self) -> None:
        await self._window.close(await self._window.tab())

    async def tab_focus(self, index: int) -> None:
        if not 0 <= index < len(self._window.tabs):
            raise Undone(f"there is no tab {index}: the open ones are 0 to {len(self._window.tabs) - 1}")
        await self._window.focus(index)

    # --- how --------------------------------------------------------------------------------------------------------

    async def _load(self, url: str) -> "VendorResponse | None":
        """Open an address in the active tab; None when there is no answer to show, as for a download."""
        tab, seconds = await self._window.tab(), self._window.load_seconds
        downloads = self._window.downloads
        for attempt in range(_ATTEMPTS):
            if attempt > 1 or tab.is_restless():
                await self._window.quieten(tab)
            try:
                with self._window.fence():
                    response = await tab.page.goto(url, wait_until="commit", timeout=seconds * 1000)
                if response is not None or not tab.is_restless():
                    return response
            except NoAnswer as error:
                said = str(error)
                if "Download is starting" in said:
                    await self._window.downloading(downloads)
                    return None
                if "Timeout" in said:
                    await self._window.stop(tab)
                    raise Undone(f"the server did not answer within {seconds:g} s") from error
                # The old page opened something else at the same moment.
                if attempt == _ATTEMPTS - 1 or not any(words in said for words in _INTERRUPTED):
                    raise
        return None

    async def _page(self) -> "VendorPage":
        return (await self._window.tab()).page

    async def _element(self, bid: str) -> "VendorElement":
        """The element with this bid, in whichever frame or shadow tree of the active tab it is."""
        tab = await self._window.tab()
        gone = f"there is no element {bid[:20]!r} on this page now: the tree shows the current ones"
        node = await find(tab.send, tab.bids, bid)
        if node is None and not tab.numbered:  # a page that an earlier call of this turn has opened
            await look_at(tab.send, tab.bids, Look())
            tab.numbered, node = True, tab.bids.node(bid)
        if node is None:
            raise Undone(gone)
        key = f"_{secrets.token_hex(12)}"
        try:
            resolved = await tab.send("DOM.resolveNode", {"backendNodeId": node})
            hold = {"objectId": resolved["object"]["objectId"], "arguments": [{"value": key}]}
            parked = await tab.send("Runtime.callFunctionOn", {**hold, "functionDeclaration": _PARK})
        except NoAnswer as error:
            raise Undone(gone) from error
        if "exceptionDetails" in parked:  # its frame is gone
            raise Undone(gone)
        main, *others = [tab.page.main_frame, *(f for f in tab.page.frames if f is not tab.page.main_frame)]
        taken = [await self._take(main, key)]
        if taken == [None]:
            taken = await asyncio.gather(*(self._take(frame, key) for frame in others))
        if (element := next(filter(None, taken), None)) is None:
            raise Undone(gone)
        return element

    async def _take(self, frame: "VendorFrame", key: str) -> "VendorElement | None":
        with contextlib.suppress(NoAnswer), self._window.fence():
            return (await frame.evaluate_handle(_TAKE, key)).as_element()
        return None

    async def _go(self, step: Literal[-1, 1]) -> None:
        tab = await self._window.tab()
        history = await tab.send("Page.getNavigationHistory", {})
        index = history["currentIndex"] + step
        if not 0 <= index < len(history["entries"]):
            raise Undone(f"this tab has no {'earlier' if step < 0 else 'later'} page: goto(url) opens one")
        move = tab.page.go_back if step < 0 else tab.page.go_forward
        await move(wait_until="commit", timeout=self._window.load_seconds * 1000)

    def _files(self, file: str | list[str]) -> list[str]:
        named = [file] if isinstance(file, str) else file
        if len(named) > _MOST_FILES:
            raise Undone(f"at most {_MOST_FILES} files are uploaded at once")
        try:
            return [str(self._tree.file(name)) for name in named]
        except Unfit as unfit:
            raise Undone(unfit.failed.message) from unfit


def _must_be_local(page: "VendorPage", frame: "VendorFrame | None") -> None:
    """Refuse to give a file to a page, or to a frame in it, that the sandbox does not serve itself."""
    urls = [page.url]
    while frame is not None:
        urls.append(frame.url)
        frame = frame.parent_frame
    # A frame without an address of its own belongs to the page that made it.
    if strange := [url for url in urls if not is_local(url) and not re.match("about:(blank|srcdoc)$", url)]:
        raise Undone(
            f"files are given only to pages on the sandbox's own localhost, and this is {strange[0][:200]}"
        )
    if not is_local(page.url):
        raise Undone("files are given only to pages on the sandbox's own localhost: goto one first")
