"""The DevTools session of a page. Also assigns the ids ("bids") with which the model names the page's
elements.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

SendCommand = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a command to the DevTools session of a page: `await send(method, params)`.

Raises DevToolsError. Never raises an error of Playwright.
"""


class DevToolsError(Exception):
    """Raised if the page rejected a command or is gone. The message comes from Chromium."""


@dataclass
class BidRegistry:
    """Assigns ids to the elements of a tab. The model uses these ids (bids) in its calls.

    An element keeps its bid for its whole lifetime. A bid is never used for another element. Bids are dropped
    with their document. Each tab has its own registry, but all tabs of a run use the same `counter`.
    """

    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _document: str | None = None
    _bids: dict[int, str] = field(default_factory=dict)
    _nodes: dict[str, int] = field(default_factory=dict)

    def set_document(self, document: str) -> None:
        """Set the document that the tab shows (the DevTools `loaderId` of its main frame). If the tab showed
        another document before, drop all bids.

        A new document may number its nodes from the beginning again. An old number could then belong to a
        different element on the new page.
        """
        if document != self._document:
            self._document = document
            self._bids.clear()
            self._nodes.clear()

    def get_bid(self, node: int) -> str:
        """Return the bid of the element with this `backendNodeId` of DevTools. If the element has no bid,
        assign one.
        """
        if (bid := self._bids.get(node)) is None:
            bid = self._bids[node] = str(next(self.counter))
            self._nodes[bid] = node
        return bid

    def find_node(self, bid: str) -> int | None:
        """Return the `backendNodeId` of the element with this bid. Return None if the bid is unknown or its
        document is gone.
        """
        return self._nodes.get(bid)


async def find_node(send: SendCommand, bids: BidRegistry, bid: str) -> int | None:
    """Return the `backendNodeId` of an element, if the tab still shows the element's document. Raises
    DevToolsError.
    """
    answer = await send("Page.getFrameTree", {})
    bids.set_document(answer["frameTree"]["frame"]["loaderId"])
    return bids.find_node(bid)


ResponseT = TypeVar("ResponseT")


async def gather_answers(commands: Iterable[Awaitable[ResponseT]]) -> list[ResponseT | DevToolsError]:
    """Send several commands at the same time, and return their responses. If a command is rejected, its
    response is the error.
    """
    return [_answer_or_error(answer) for answer in await asyncio.gather(*commands, return_exceptions=True)]


def _answer_or_error(answer: ResponseT | BaseException) -> ResponseT | DevToolsError:
    if isinstance(answer, BaseException) and not isinstance(answer, DevToolsError):
        raise answer
    return answer
