"""What a page shows: its accessibility tree as text, and a screenshot with marks, over one DevTools session."""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from runtime.observations import Look, Picture
from runtime.page.devtools import Bids, NoAnswer, Send, every, find
from runtime.page.facts import FEW, all_facts, facts_in_view, told_length
from runtime.page.layout import MOST_FRAMES, SNAPSHOT, Layout, lay_out, owners
from runtime.page.marks import MOST_MARKS, Screenshot
from runtime.page.reach import MOST_TESTED, open_to_clicks
from runtime.page.tree import Line, Reader, Reading, write

__all__ = ["Bids", "NoAnswer", "Seen", "Send", "find", "look_at"]

FIRST: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("Page.getFrameTree", {}),
    ("Page.getLayoutMetrics", {}),
    ("DOMSnapshot.captureSnapshot", SNAPSHOT),
)
LARGE = 20_000  # nodes of which the whole accessibility tree would take seconds
UNPAINTED_SECONDS = 0.1  # until a screenshot that was refused is tried again
SCREENSHOT_SECONDS = 5  # that it may take longer than the tree


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a look at a page gives."""

    tree: str
    focused: str | None = None
    """Bid of the focused element."""
    notes: tuple[str, ...] = ()
    screenshot: Picture | None = None
    marks: Mapping[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """Box of each marked bid on the screenshot: left, top, right, bottom in its pixels."""


async def look_at(send: Send, bids: Bids, look: Look, seconds: float = 15) -> Seen:
    """What the page shows now, within `seconds`; a page that cannot be read is a note, never an error."""
    problem = ""
    try:
        # Asked a second time before it has answered, a slow page would first have to do all of the work in vain.
        async with asyncio.timeout(seconds):
            for _ in range(2):  # a page that moves on while it is read is read once more
                try:
                    return await _Looking(send, bids, look).look()
                except NoAnswer as exc:
                    problem = f"it went away or moved on while it was read ({exc})"
    except TimeoutError:
        problem = f"it did not answer within {seconds:g} s (a dialog is open, or a script of it runs on)"
    return Seen(tree="", notes=(f"The page could not be read: {problem}; wait and look again.",))


class _Looking:
    """One look, in few round trips: what does not wait for another answer is asked at once."""

    def __init__(self, send: Send, bids: Bids, look: Look) -> None:
        self._send = send
        self._bids = bids
        self._look = look
        self._notes: list[str] = []

    async def look(self) -> Seen:
        """Raises NoAnswer when the page refuses, or shows another document in the end."""
        picture = asyncio.create_task(self._screenshot())  # taken and decoded while the tree is read
        try:
            return await self._see(picture)
        finally:
            picture.cancel()
            await asyncio.gather(picture, return_exceptions=True)

    async def _see(self, picture: asyncio.Task[Screenshot | None]) -> Seen:
        tree, metrics, snapshot = map(_must, await every(self._send(*question) for question in FIRST))
        self._bids.enter(document := _document(tree))
        viewport = metrics["cssLayoutViewport"]
        layout = lay_out(snapshot, viewport, await self._contents(snapshot))
        reading, lines = await self._read(layout, metrics)
        with_marks = self._look.screenshot and self._look.marks
        reached, untested = set[int](), set[int]()
        if with_marks or self._look.flag_visible:
            wanted = [
                line.node for line in lines if line.node is not None and line.is_interactive and line.in_view
            ]
            scrolled = float(viewport["pageX"]), float(viewport["pageY"])
            reached = await open_to_clicks(self._send, layout, wanted[:MOST_TESTED], scrolled)
            untested = set(wanted[MOST_TESTED:])
        text, count = write(
            lines, self._bid(layout), self._visible(lines, reached | untested), self._look.most
        )
        if count < len(lines):
            self._notes.append(
                f"The tree is cut at {self._look.most:,} characters: {count:,} of {len(lines):,} lines are shown."
            )
        shown = [line.node for line in lines[:count] if line.node is not None and line.node in reached]
        screenshot, marks = self._picture(
            await self._taken(picture), layout, shown if with_marks else [], viewport
        )
        if _document(await self._send("Page.getFrameTree", {})) != document:
            raise NoAnswer("another document was loaded")
        return Seen(
            tree=text,
            focused=None if reading.focused is None else self._bid(layout)(reading.focused),
            notes=tuple(self._notes),
            screenshot=screenshot,
            marks=marks,
        )

    async def _screenshot(self) -> Screenshot | None:
        if not self._look.screenshot:
            return None
        asked = {"format": "png", "optimizeForSpeed": True}
        try:
            answer = await self._send("Page.captureScreenshot", asked)
        except NoAnswer:  # nothing is painted yet of a page that has just come
            await asyncio.sleep(UNPAINTED_SECONDS)
            answer = await self._send("Page.captureScreenshot", asked)
        return await asyncio.to_thread(Screenshot, base64.b64decode(answer["data"]))

    async def _taken(self, picture: asyncio.Task[Screenshot | None]) -> Screenshot | None:
        try:
            async with asyncio.timeout(SCREENSHOT_SECONDS):
                return await picture
        except (NoAnswer, TimeoutError, ValueError) as exc:
            self._notes.append(f"No screenshot could be taken: {str(exc) or 'it took too long'}.")
            return None

    async def _contents(self, snapshot: Mapping[str, Any]) -> dict[int, Sequence[float]]:
        frames = owners(snapshot)
        if (left_out := len(snapshot["documents"]) - 1 - len(frames)) > 0:
            self._notes.append(
                f"{left_out:,} of the page's frames are not shown: it has more than {MOST_FRAMES}."
            )
        answers = await every(
            self._send("DOM.getBoxModel", {"backendNodeId": owner}) for owner in frames.values()
        )
        return {
            document: answer["model"]["content"]
            for document, answer in zip(frames, answers, strict=True)
            if not isinstance(answer, NoAnswer)  # it is not rendered
        }

    async def _read(self, layout: Layout, metrics: Mapping[str, Any]) -> tuple[Reading, list[Line]]:
        most = self._look.most
        is_large = told_length(layout) > most * 1.3 or len(layout.tag) > LARGE
        narrow = (self._look.viewport_only or is_large) and len(layout.tag) > FEW
        facts = await (facts_in_view if narrow else all_facts)(self._send, layout)
        reading = Reader(layout, facts, self._look).read()
        lines = reading.lines
        if not self._look.viewport_only and (
            is_large or write(lines, lambda node: "1234", {}, most)[1] < len(lines)
        ):
            self._notes.append(_clipped(most, metrics))
            narrow = True
        if facts.unread:
            self._notes.append(f"{facts.unread} of the page's frames could not be read.")
        if reading.words.hidden:
            self._notes.append(f"{reading.words.hidden:,} invisible characters were left out of its texts.")
        return reading, [
            line for line in lines if line.in_view
        ] if narrow or self._look.viewport_only else lines

    def _visible(self, lines: Sequence[Line], reached: Set[int]) -> dict[int, str]:
        if not self._look.flag_visible:
            return {}
        return {
            line.node: "visible"
            for line in lines
            if line.node is not None and line.in_view and (not line.is_interactive or line.node in reached)
        }

    def _bid(self, layout: Layout) -> Callable[[int], str]:
        return lambda node: self._bids.bid(layout.backend[node])

    def _picture(
        self, screenshot: Screenshot | None, layout: Layout, nodes: Sequence[int], viewport: Mapping[str, Any]
    ) -> tuple[Picture | None, Mapping[str, tuple[int, int, int, int]]]:
        if screenshot is None:
            return None, {}
        bid = self._bid(layout)
        boxes = {bid(node): box for node in nodes if (box := layout.box[node]) is not None}
        if len(boxes) > MOST_MARKS:
            self._notes.append(
                f"Only the first {MOST_MARKS} elements that can be clicked are marked on the screenshot."
            )
        if not boxes:
            return screenshot.plain(), {}
        words = (
            box
            for text, box in zip(layout.text, layout.box, strict=True)
            if text and box is not None and box.is_seen
        )
        return screenshot.marked(boxes, float(viewport["clientWidth"]), words)


def _document(tree: Mapping[str, Any]) -> str:
    return str(tree["frameTree"]["frame"]["loaderId"])


def _must(answer: dict[str, Any] | NoAnswer) -> dict[str, Any]:
    if isinstance(answer, NoAnswer):
        raise answer
    return answer


def _clipped(most: int, metrics: Mapping[str, Any]) -> str:
    seen, whole = metrics["cssLayoutViewport"], metrics["cssContentSize"]
    top, height = round(seen["pageY"]), round(seen["clientHeight"])
    return (
        f"The whole tree has more than {most:,} characters, so it tells only what the viewport shows: "
        f"{top:,} to {top + height:,} of {round(whole['height']):,} pixels; scroll to see the rest."
    )
