"""What a page shows: its accessibility tree as text, and a screenshot with marks, over one DevTools session."""

import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.observations import Look, Picture

Send = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""One DevTools session of a page: `await send(method, params)`. It raises NoAnswer, never a vendor's error."""


class NoAnswer(Exception):
    """The page refused a command, is gone, or went away while it was asked; the message is Chromium's."""


@dataclass
class Bids:
    """Numbers of elements: stable while an element lives, never given twice, forgotten with their document.

    One for each tab; all tabs of a run share `numbers`.
    """

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _document: str | None = None
    _bids: dict[int, str] = field(default_factory=dict)
    _nodes: dict[str, int] = field(default_factory=dict)

    def enter(self, document: str) -> None:
        """The tab shows this document (DevTools `loaderId` of its main frame).

        Another renderer counts its nodes anew, so an old number could else name a stranger on the new page.
        """
        if document != self._document:
            self._document = document
            self._bids.clear()
            self._nodes.clear()

    def bid(self, node: int) -> str:
        """The number of an element, by its DevTools `backendNodeId`."""
        if (bid := self._bids.get(node)) is None:
            bid = self._bids[node] = str(next(self.numbers))
            self._nodes[bid] = node
        return bid

    def node(self, bid: str) -> int | None:
        """The element's `backendNodeId`. None: never given, or its document is gone."""
        return self._nodes.get(bid)


async def find(send: Send, bids: Bids, bid: str) -> int | None:
    """The element's `backendNodeId` if its document is still the one that the tab shows. Raises NoAnswer."""
    answer = await send("Page.getFrameTree", {})
    bids.enter(answer["frameTree"]["frame"]["loaderId"])
    return bids.node(bid)


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


async def look_at(send: Send, bids: Bids, look: Look) -> Seen:
    """What the page shows now, within 15 s; a page that cannot be read is a note, never an error."""
    answer = await send("Page.getFrameTree", {})
    bids.enter(answer["frameTree"]["frame"]["loaderId"])
    return Seen(tree="RootWebArea ''", notes=("The tree is not read yet.",) if look.most else ())
