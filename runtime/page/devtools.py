"""The DevTools session of a page, and the ids ("bids") by which the model names its elements."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

SendCommand = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a command to the DevTools session of a page: `await send(method, params)`.

It raises DevToolsError, never Playwright's errors.
"""


class DevToolsError(Exception):
    """Raised if the page rejected a command or is gone. The message is Chromium's."""


@dataclass
class BidRegistry:
    """Assigns ids to the elements of a tab: bids, which the model uses in calls.

    A bid stays the same for an element's lifetime, is never reused, and is dropped with the document. Each
    tab has its own registry; all tabs of a run share the `counter`.
    """

    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _document: str | None = None
    _bids: dict[int, str] = field(default_factory=dict)
    _nodes: dict[str, int] = field(default_factory=dict)

    def set_document(self, document: str) -> None:
        """Set the tab's document (DevTools `loaderId` of its main frame), and drop the bids of another
        document.

        A new renderer numbers its nodes from the beginning, so an old number could match a different element
        of the new page.
        """
        if document != self._document:
            self._document = document
            self._bids.clear()
            self._nodes.clear()

    def get_bid(self, node: int) -> str:
        """Return the bid of the element with this `backendNodeId` of DevTools, and assign one if it has none."""
        if (bid := self._bids.get(node)) is None:
            bid = self._bids[node] = str(next(self.counter))
            self._nodes[bid] = node
        return bid

    def find_node(self, bid: str) -> int | None:
        """Return the element's `backendNodeId`, or None if the bid is unknown or its document is gone."""
        return self._nodes.get(bid)


async def find_node(send: SendCommand, bids: BidRegistry, bid: str) -> int | None:
    """Return the element's `backendNodeId` if the tab still shows its document. Raises DevToolsError."""
    answer = await send("Page.getFrameTree", {})
    bids.set_document(answer["frameTree"]["frame"]["loaderId"])
    return bids.find_node(bid)


ResponseT = TypeVar("ResponseT")


async def gather_answers(commands: Iterable[Awaitable[ResponseT]]) -> list[ResponseT | DevToolsError]:
    """Send commands concurrently and return their responses. The response to a rejected command is its error."""
    return [_answer_or_error(answer) for answer in await asyncio.gather(*commands, return_exceptions=True)]


def _answer_or_error(answer: ResponseT | BaseException) -> ResponseT | DevToolsError:
    if isinstance(answer, BaseException) and not isinstance(answer, DevToolsError):
        raise answer
    return answer
