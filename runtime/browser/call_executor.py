"""Declares and executes the browser's calls. Playwright itself checks that an element is ready for a call."""

import asyncio
import contextlib

from patchwright.runtime.browser.active_page import ActivePage, check_is_local
from patchwright.runtime.browser.call_signature import MAX_WAIT_MS, Button, Modifier, declare_call
from patchwright.runtime.browser.error_hints import BrowserCallFailed, normalize_url
from patchwright.runtime.browser.tab_manager import TabManager
from patchwright.runtime.page.page_reader import DevToolsError
from patchwright.runtime.path_guard import PathGuard

ACTION_TIMEOUT_MS = 2_000.0  # milliseconds to wait until an element is ready
_DRAG_STEPS = 5  # mouse events of one drag; pages need several to detect the movement

_LIST_OPTIONS_JS = "e => Array.from(e.options || []).slice(0, 40).map(option => option.label || option.value)"
_WAIT_TWO_FRAMES_JS = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class CallExecutor(ActivePage):
    """Executes each call with the method of the same name. The prompt contains the methods' signatures and
    docstrings.

    The methods raise BrowserCallFailed with advice for the model, or DevToolsError with the browser's own
    message.
    """

    def __init__(self, tab_manager: TabManager, paths: PathGuard) -> None:
        super().__init__(tab_manager, paths)
        self.user_message: str | None = None
        self.infeasible_reason: str | None = None

    @property
    def is_done(self) -> bool:
        """True if the model has ended the task, with an answer or because the goal cannot be reached."""
        return self.user_message is not None or self.infeasible_reason is not None

    @declare_call("agent", "noop()", "noop(500)")
    async def noop(self, wait_ms: float = 1000) -> None:
        """Do nothing for a while, at most 30,000 ms, then look at the page again."""
        await asyncio.sleep(min(max(wait_ms, 0), MAX_WAIT_MS) / 1000)

    @declare_call("agent", 'send_msg_to_user("The total of the order is $279.49.")')
    async def send_msg_to_user(self, text: str) -> None:
        """Send the answer to the user. This ends the task."""
        self.user_message = text

    @declare_call(
        "agent", 'report_infeasible("There is no search field on this site, and no list of its articles.")'
    )
    async def report_infeasible(self, reason: str) -> None:
        """Report that the goal cannot be reached, and why. This ends the task."""
        self.infeasible_reason = reason

    # --- elements ---------------------------------------------------------------------------------------------------

    @declare_call("elements", "scroll(0, 600)", "scroll(-50.5, -100)")
    async def scroll(self, delta_x: float, delta_y: float) -> None:
        """Turn the mouse wheel by these pixels: right and down are positive, left and up negative."""
        page = await self._active_page()
        await page.mouse.wheel(delta_x, delta_y)
        with contextlib.suppress(
            TimeoutError
        ):  # a page that does not respond is handled by the next snapshot
            async with asyncio.timeout(1):
                await page.evaluate(_WAIT_TWO_FRAMES_JS)

    @declare_call("elements", 'fill("17", "a value")', 'fill("45", "several\\nlines")')
    async def fill(self, bid: str, value: str) -> None:
        """Replace the text of an input, textarea or editable element."""
        await (await self._find_element(bid)).fill(value, timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'check("55")')
    async def check(self, bid: str) -> None:
        """Make sure that a checkbox or radio button is checked."""
        await (await self._find_element(bid)).check(timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'uncheck("31")')
    async def uncheck(self, bid: str) -> None:
        """Make sure that a checkbox is not checked."""
        await (await self._find_element(bid)).uncheck(timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'select_option("48", "blue")', 'select_option("48", ["red", "green"])')
    async def select_option(self, bid: str, options: str | list[str]) -> None:
        """Select one or several options of a select element, by value or label."""
        element = await self._find_element(bid)
        try:
            with self._tab_manager.translate_errors():
                await element.select_option(options, timeout=ACTION_TIMEOUT_MS)
        except DevToolsError as error:
            if "did not find some options" not in str(error):
                raise
            labels = [" ".join(str(label).split())[:80] for label in await element.evaluate(_LIST_OPTIONS_JS)]
            raise BrowserCallFailed(f"there is no such option; the options are {labels}") from error

    @declare_call(
        "elements", 'click("51")', 'click("22", button="right")', 'click("48", modifiers=["Shift"])'
    )
    async def click(self, bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
        """Click an element."""
        element = await self._find_element(bid)
        await element.click(button=button, modifiers=modifiers, timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'dblclick("12")', 'dblclick("178", button="middle")')
    async def dblclick(self, bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
        """Double-click an element."""
        element = await self._find_element(bid)
        await element.dblclick(button=button, modifiers=modifiers, timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'hover("8")')
    async def hover(self, bid: str) -> None:
        """Move the mouse over an element."""
        await (await self._find_element(bid)).hover(timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'press("88", "Enter")', 'press("26", "Control+a")', 'press("61", "Shift+Tab")')
    async def press(self, bid: str, key_comb: str) -> None:
        """Focus an element and press a key or a combination of keys.

        Names: single characters, Enter, Tab, Escape, Backspace, Delete, Insert, Home, End, PageUp, PageDown, ArrowLeft,
        ArrowRight, ArrowUp, ArrowDown, F1 to F12, Digit0 to Digit9, KeyA to KeyZ, Backquote, Minus, Equal, Backslash;
        Shift, Control, Alt and Meta are joined to a key with +.
        """
        await (await self._find_element(bid)).press(key_comb, timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'focus("45")')
    async def focus(self, bid: str) -> None:
        """Move the keyboard focus to an element."""
        await (await self._find_element(bid)).focus()

    @declare_call("elements", 'clear("96")')
    async def clear(self, bid: str) -> None:
        """Empty an input, textarea or editable element."""
        await (await self._find_element(bid)).fill("", timeout=ACTION_TIMEOUT_MS)

    @declare_call("elements", 'drag_and_drop("56", "498")')
    async def drag_and_drop(self, from_bid: str, to_bid: str) -> None:
        """Drag one element and drop it on another."""
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

    @declare_call("files", 'upload_file("57", "tests/data/cv.pdf")', 'upload_file("63", ["a.csv", "b.csv"])')
    async def upload_file(self, bid: str, file: str | list[str]) -> None:
        """Choose files of the sandbox in a file input, by paths relative to the repository; [] clears the input.

        Only works on pages that the sandbox itself serves, on localhost.
        """
        files = self._resolve_files(file)
        page, element = await self._active_page(), await self._find_element(bid)
        check_is_local(page, await element.owner_frame())
        if await element.evaluate("e => e instanceof HTMLInputElement && e.type === 'file'"):
            # this works even if the page hides the input behind a button
            await element.set_input_files(files, timeout=ACTION_TIMEOUT_MS)
            return
        async with page.expect_file_chooser(timeout=ACTION_TIMEOUT_MS) as opened:
            await element.click(timeout=ACTION_TIMEOUT_MS)
        chooser = await opened.value
        check_is_local(page, await chooser.element.owner_frame())
        await chooser.set_files(files, timeout=ACTION_TIMEOUT_MS)

    # --- navigation -------------------------------------------------------------------------------------------------

    @declare_call("navigation", "go_back()")
    async def go_back(self) -> None:
        """Go to the previous page of this tab's history."""
        await self._go_in_history(-1)

    @declare_call("navigation", "go_forward()")
    async def go_forward(self) -> None:
        """Go to the next page of this tab's history."""
        await self._go_in_history(1)

    @declare_call("navigation", 'goto("http://localhost:8000/login")')
    async def goto(self, url: str) -> None:
        """Open a URL in this tab."""
        full_url = normalize_url(url)
        response = await self._navigate(full_url)
        if response is not None and response.status >= 400:
            self._tab_manager.add_note(
                f"the server responded with status {response.status} {response.status_text[:80]}"
            )

    # --- coordinates ------------------------------------------------------------------------------------------------

    @declare_call("coordinates", "mouse_move(65.2, 158.5)")
    async def mouse_move(self, x: float, y: float) -> None:
        """Move the mouse to a point of the screenshot, in pixels from its upper left corner."""
        await (await self._active_page()).mouse.move(x, y)

    @declare_call("coordinates", "mouse_up(250, 120)", 'mouse_up(47, 252, "right")')
    async def mouse_up(self, x: float, y: float, button: Button = "left") -> None:
        """Move the mouse to a point and release a button."""
        mouse = (await self._active_page()).mouse
        await mouse.move(x, y)
        await mouse.up(button=button)

    @declare_call("coordinates", "mouse_down(140.2, 580.1)", 'mouse_down(458, 254.5, "middle")')
    async def mouse_down(self, x: float, y: float, button: Button = "left") -> None:
        """Move the mouse to a point, press a button and hold it."""
        mouse = (await self._active_page()).mouse
        await mouse.move(x, y)
        await mouse.down(button=button)

    @declare_call("coordinates", "mouse_click(887.2, 68)", 'mouse_click(56, 712.5, "right")')
    async def mouse_click(self, x: float, y: float, button: Button = "left") -> None:
        """Move the mouse to a point and click."""
        await (await self._active_page()).mouse.click(x, y, button=button)

    @declare_call("coordinates", "mouse_dblclick(5, 236)", 'mouse_dblclick(87.5, 354, "right")')
    async def mouse_dblclick(self, x: float, y: float, button: Button = "left") -> None:
        """Move the mouse to a point and double-click."""
        await (await self._active_page()).mouse.dblclick(x, y, button=button)

    @declare_call("coordinates", "mouse_drag_and_drop(10.7, 325, 235.6, 24.54)")
    async def mouse_drag_and_drop(self, from_x: float, from_y: float, to_x: float, to_y: float) -> None:
        """Drag from one point and drop at another."""
        mouse = (await self._active_page()).mouse
        await mouse.move(from_x, from_y)
        await mouse.down()
        try:
            await mouse.move(to_x, to_y, steps=_DRAG_STEPS)
        finally:
            await mouse.up()

    @declare_call("files", 'mouse_upload_file(132.1, 547, "tests/data/cv.pdf")')
    async def mouse_upload_file(self, x: float, y: float, file: str | list[str]) -> None:
        """Click at a point that opens a file chooser, and choose files of the sandbox as upload_file does."""
        files = self._resolve_files(file)
        page = await self._active_page()
        check_is_local(page, None)
        async with page.expect_file_chooser(timeout=ACTION_TIMEOUT_MS) as opened:
            await page.mouse.click(x, y)
        chooser = await opened.value
        check_is_local(page, await chooser.element.owner_frame())
        await chooser.set_files(files, timeout=ACTION_TIMEOUT_MS)

    # --- the keyboard -----------------------------------------------------------------------------------------------

    @declare_call(
        "keyboard", 'keyboard_press("Backspace")', 'keyboard_press("Control+a")', 'keyboard_press("PageDown")'
    )
    async def keyboard_press(self, key: str) -> None:
        """Press a key or a combination of keys. Their names are those that `press` takes."""
        await (await self._active_page()).keyboard.press(key)

    @declare_call("keyboard", 'keyboard_up("Shift")')
    async def keyboard_up(self, key: str) -> None:
        """Release a key."""
        await (await self._active_page()).keyboard.up(key)

    @declare_call("keyboard", 'keyboard_down("Shift")')
    async def keyboard_down(self, key: str) -> None:
        """Press a key and hold it."""
        await (await self._active_page()).keyboard.down(key)

    @declare_call("keyboard", 'keyboard_type("Hello world!")')
    async def keyboard_type(self, text: str) -> None:
        """Type text key by key. Keys that are held down do not affect the text."""
        await (await self._active_page()).keyboard.type(text)

    @declare_call("keyboard", 'keyboard_insert_text("Hello world!")')
    async def keyboard_insert_text(self, text: str) -> None:
        """Insert text into the focused element without any key event."""
        await (await self._active_page()).keyboard.insert_text(text)

    # --- tabs -------------------------------------------------------------------------------------------------------

    @declare_call("tabs", "new_tab()")
    async def new_tab(self) -> None:
        """Open an empty tab; it becomes the active one."""
        await self._tab_manager.open_tab()

    @declare_call("tabs", "tab_close()")
    async def tab_close(self) -> None:
        """Close the active tab."""
        await self._tab_manager.close_tab(await self._tab_manager.active_tab())

    @declare_call("tabs", "tab_focus(2)")
    async def tab_focus(self, index: int) -> None:
        """Make a tab the active one, by its index in the list of open tabs, from 0."""
        if not 0 <= index < len(self._tab_manager.tabs):
            raise BrowserCallFailed(
                f"there is no tab {index}: the open tabs are 0 to {len(self._tab_manager.tabs) - 1}"
            )
        await self._tab_manager.focus_tab(index)
