"""One DevTools session of a page, as whoever looks at the page speaks with it, and the numbers of its elements."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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


Answer = TypeVar("Answer")


async def every(questions: Iterable[Awaitable[Answer]]) -> list[Answer | NoAnswer]:
    """The answers to questions that were asked at once; what was refused stands at its place."""
    return [_kept(answer) for answer in await asyncio.gather(*questions, return_exceptions=True)]


def _kept(answer: Answer | BaseException) -> Answer | NoAnswer:
    if isinstance(answer, BaseException) and not isinstance(answer, NoAnswer):
        raise answer
    return answer
