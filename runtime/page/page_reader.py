"""Reads a page over one DevTools session. The result is the page's accessibility tree as text, and a
screenshot with marks.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from patchwright.runtime.observations import ImageData, SnapshotOptions
from patchwright.runtime.page.accessibility import (
    SMALL_PAGE_NODES,
    estimate_tree_length,
    fetch_full_tree,
    fetch_tree_in_view,
)
from patchwright.runtime.page.devtools import (
    BidRegistry,
    DevToolsError,
    SendCommand,
    find_node,
    gather_answers,
)
from patchwright.runtime.page.hit_test import MAX_TESTED, find_reachable_nodes
from patchwright.runtime.page.layout import (
    MAX_FRAMES,
    SNAPSHOT_PARAMS,
    PageLayout,
    build_layout,
    find_frame_owners,
)
from patchwright.runtime.page.marks import MAX_MARKS, Screenshot
from patchwright.runtime.page.markup import MarkupWriter
from patchwright.runtime.page.tree_text import TreeLine, TreeLines, TreeReader, render_lines

__all__ = ["BidRegistry", "DevToolsError", "PageContent", "SendCommand", "find_node", "read_page"]

INITIAL_COMMANDS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("Page.getFrameTree", {}),
    ("Page.getLayoutMetrics", {}),
    ("DOMSnapshot.captureSnapshot", SNAPSHOT_PARAMS),
)
# if a page has this many nodes, reading its whole accessibility tree would take seconds
LARGE_PAGE_NODES = 20_000
SCREENSHOT_RETRY_DELAY = 0.1  # seconds before a screenshot that was rejected is requested again
SCREENSHOT_TIMEOUT = 5  # seconds for which the reader waits for the screenshot after it has read the tree


@dataclass(frozen=True, kw_only=True)
class PageContent:
    """Content of a page."""

    tree: str
    html: str = ""
    dom: str = ""
    focused_bid: str | None = None
    """Id (`bid`) of the focused element."""
    notes: tuple[str, ...] = ()
    screenshot: ImageData | None = None
    marks: Mapping[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """Maps the id (`bid`) of each marked element to its box: left, top, right and bottom, in pixels of the
    screenshot.
    """


async def read_page(
    send: SendCommand, bids: BidRegistry, options: SnapshotOptions, timeout: float = 15
) -> PageContent:
    """Read the page within `timeout` seconds. If the page cannot be read, the result contains a note about
    this.
    """
    problem = ""
    try:
        # There is no second try after a timeout, because a slow page would have to do all of its work again.
        async with asyncio.timeout(timeout):
            for _ in range(2):  # a second try, because the page may have changed during the first one
                try:
                    return await _PageReader(send, bids, options).read()
                except DevToolsError as exc:
                    problem = f"the page closed or changed while it was read ({exc})"
    except TimeoutError:
        problem = f"the page did not respond within {timeout:g} s (a dialog may be open, or a script may be running)"
    return PageContent(tree="", notes=(f"The page could not be read: {problem}; wait and try again.",))


class _PageReader:
    """Reads a page once. Sends commands that do not depend on each other at the same time, so that few round
    trips are needed.
    """

    def __init__(self, send: SendCommand, bids: BidRegistry, options: SnapshotOptions) -> None:
        self._send = send
        self._bids = bids
        self._snapshot_options = options
        self._notes: list[str] = []

    async def read(self) -> PageContent:
        """Read the page. Raises DevToolsError if the page rejects a command or its document is replaced."""
        # The screenshot is taken and decoded while the tree is read.
        picture = asyncio.create_task(self._capture_screenshot())
        try:
            return await self._read_content(picture)
        finally:
            picture.cancel()
            await asyncio.gather(picture, return_exceptions=True)

    async def _read_content(self, screenshot_task: asyncio.Task[Screenshot | None]) -> PageContent:
        tree, metrics, snapshot = map(
            _raise_if_error, await gather_answers(self._send(*question) for question in INITIAL_COMMANDS)
        )
        self._bids.set_document(document := _document_id(tree))
        viewport = metrics["cssLayoutViewport"]
        layout = build_layout(snapshot, viewport, await self._fetch_content_quads(snapshot))
        reading, lines = await self._read_lines(layout, metrics)
        with_marks = self._snapshot_options.screenshot and self._snapshot_options.marks
        reached, untested = set[int](), set[int]()
        if with_marks or self._snapshot_options.flag_visible:
            wanted = [
                line.node for line in lines if line.node is not None and line.is_interactive and line.in_view
            ]
            scrolled = float(viewport["pageX"]), float(viewport["pageY"])
            reached = await find_reachable_nodes(self._send, layout, wanted[:MAX_TESTED], scrolled)
            untested = set(wanted[MAX_TESTED:])
        text, count = render_lines(
            lines,
            self._bid_getter(layout),
            self._visible_flags(lines, reached | untested),
            self._snapshot_options.max_chars,
        )
        if count < len(lines) and self._snapshot_options.axtree:
            limit = self._snapshot_options.max_chars
            self._notes.append(
                f"The tree was cut at {limit:,} characters: {count:,} of {len(lines):,} lines are shown."
            )
        shown = [line.node for line in lines[:count] if line.node is not None and line.node in reached]
        screenshot, marks = self._mark_screenshot(
            await self._await_screenshot(screenshot_task), layout, shown if with_marks else [], viewport
        )
        if _document_id(await self._send("Page.getFrameTree", {})) != document:
            raise DevToolsError("another document was loaded")
        return PageContent(
            tree=text if self._snapshot_options.axtree else "",
            html=self._write_markup(layout, "HTML") if self._snapshot_options.html else "",
            dom=self._write_markup(layout, "DOM") if self._snapshot_options.dom else "",
            focused_bid=None if reading.focused is None else self._bid_getter(layout)(reading.focused),
            notes=tuple(self._notes),
            screenshot=screenshot,
            marks=marks,
        )

    async def _capture_screenshot(self) -> Screenshot | None:
        if not self._snapshot_options.screenshot:
            return None
        params = {"format": "png", "optimizeForSpeed": True}
        try:
            response = await self._send("Page.captureScreenshot", params)
        except DevToolsError:  # Chromium may not have painted a new page yet
            await asyncio.sleep(SCREENSHOT_RETRY_DELAY)
            response = await self._send("Page.captureScreenshot", params)
        return await asyncio.to_thread(Screenshot, base64.b64decode(response["data"]))

    async def _await_screenshot(self, screenshot_task: asyncio.Task[Screenshot | None]) -> Screenshot | None:
        try:
            async with asyncio.timeout(SCREENSHOT_TIMEOUT):
                return await screenshot_task
        except (DevToolsError, TimeoutError, ValueError) as exc:
            self._notes.append(f"No screenshot could be taken: {str(exc) or 'it took too long'}.")
            return None

    async def _fetch_content_quads(self, snapshot: Mapping[str, Any]) -> dict[int, Sequence[float]]:
        frames = find_frame_owners(snapshot)
        if (left_out := len(snapshot["documents"]) - 1 - len(frames)) > 0:
            self._notes.append(
                f"{left_out:,} of the page's frames are not shown, because the page has more than {MAX_FRAMES} frames."
            )
        answers = await gather_answers(
            self._send("DOM.getBoxModel", {"backendNodeId": owner}) for owner in frames.values()
        )
        return {
            document: answer["model"]["content"]
            for document, answer in zip(frames, answers, strict=True)
            if not isinstance(answer, DevToolsError)  # the frame is not rendered
        }

    async def _read_lines(
        self, layout: PageLayout, metrics: Mapping[str, Any]
    ) -> tuple[TreeLines, list[TreeLine]]:
        most = self._snapshot_options.max_chars
        is_large = estimate_tree_length(layout) > most * 1.3 or len(layout.tag) > LARGE_PAGE_NODES
        narrow = (self._snapshot_options.viewport_only or is_large) and len(layout.tag) > SMALL_PAGE_NODES
        facts = await (fetch_tree_in_view if narrow else fetch_full_tree)(self._send, layout)
        reading = TreeReader(layout, facts, self._snapshot_options).read()
        lines = reading.lines
        if not self._snapshot_options.viewport_only and (
            is_large or render_lines(lines, lambda node: "1234", {}, most)[1] < len(lines)
        ):
            narrow = True
            if self._snapshot_options.axtree:
                self._notes.append(_clip_note(most, metrics))
        if facts.unread_frames:
            self._notes.append(f"{facts.unread_frames} of the page's frames could not be read.")
        if reading.quoter.hidden_count:
            self._notes.append(
                f"{reading.quoter.hidden_count:,} invisible characters of the page were left out."
            )
        return reading, [
            line for line in lines if line.in_view
        ] if narrow or self._snapshot_options.viewport_only else lines

    def _write_markup(self, layout: PageLayout, form: Literal["HTML", "DOM"]) -> str:
        limit, in_view = self._snapshot_options.max_chars, self._snapshot_options.viewport_only
        writer = MarkupWriter(layout, self._bid_getter(layout), whole=form == "DOM")
        text, is_complete = writer.write(limit, in_view)
        if not is_complete and not in_view:
            self._notes.append(
                f"The whole {form} has more than {limit:,} characters, so only its elements in the viewport are shown."
            )
            text, is_complete = writer.write(limit, in_view=True)
        if not is_complete:
            self._notes.append(f"The {form} was cut at {limit:,} characters.")
        return text

    def _visible_flags(self, lines: Sequence[TreeLine], reachable: Set[int]) -> dict[int, str]:
        if not self._snapshot_options.flag_visible:
            return {}
        return {
            line.node: "visible"
            for line in lines
            if line.node is not None and line.in_view and (not line.is_interactive or line.node in reachable)
        }

    def _bid_getter(self, layout: PageLayout) -> Callable[[int], str]:
        return lambda node: self._bids.get_bid(layout.backend_id[node])

    def _mark_screenshot(
        self,
        screenshot: Screenshot | None,
        layout: PageLayout,
        nodes: Sequence[int],
        viewport: Mapping[str, Any],
    ) -> tuple[ImageData | None, Mapping[str, tuple[int, int, int, int]]]:
        if screenshot is None:
            return None, {}
        bid = self._bid_getter(layout)
        boxes = {bid(node): box for node in nodes if (box := layout.box[node]) is not None}
        if len(boxes) > MAX_MARKS:
            self._notes.append(f"Only the first {MAX_MARKS} clickable elements are marked on the screenshot.")
        if not boxes:
            return screenshot.to_picture(), {}
        words = (
            box
            for text, box in zip(layout.text, layout.box, strict=True)
            if text and box is not None and box.has_area
        )
        return screenshot.draw_marks(boxes, float(viewport["clientWidth"]), words)


def _document_id(tree: Mapping[str, Any]) -> str:
    return str(tree["frameTree"]["frame"]["loaderId"])


def _raise_if_error(answer: dict[str, Any] | DevToolsError) -> dict[str, Any]:
    if isinstance(answer, DevToolsError):
        raise answer
    return answer


def _clip_note(max_chars: int, metrics: Mapping[str, Any]) -> str:
    viewport, content = metrics["cssLayoutViewport"], metrics["cssContentSize"]
    top, height = round(viewport["pageY"]), round(viewport["clientHeight"])
    return (
        f"The whole tree has more than {max_chars:,} characters, so only the viewport is shown: "
        f"{top:,} to {top + height:,} of {round(content['height']):,} pixels; scroll to see the rest."
    )
