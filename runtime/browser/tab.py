"""One tab of the browser: its DevTools session, and what has come and is still to come."""

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runtime.page.devtools import Bids, NoAnswer

if TYPE_CHECKING:
    from runtime.browser.browser import VendorPage, VendorRequest, VendorSession

ANSWER_SECONDS = 2.0  # for a page that is not stuck in a script
_RESTLESS, _RESTLESS_SECONDS = 3, 3.0  # so many documents in so short a time

Fence = Callable[[], AbstractContextManager[None]]
"""Makes NoAnswer of the vendor's errors."""


@dataclass(eq=False)
class OpenTab:
    """One tab."""

    page: "VendorPage"
    fence: Fence
    bids: Bids
    ask: "Callable[[str, dict[str, Any]], Awaitable[Any]] | None" = None
    """Its DevTools session, once it has one."""
    asked: set["VendorRequest"] = field(default_factory=set)
    """Requests of this turn that are not answered."""
    news: float = 0.0
    """When something last came or was asked for; the loop's clock."""
    dialogs: int = 0
    """In this turn."""
    stopped: bool = False
    """Its document did not load in time, and nothing more of it is waited for."""
    numbered: bool = False
    """The elements of its document have their bids."""
    opened: deque[float] = field(default_factory=lambda: deque(maxlen=_RESTLESS))
    """When it showed its last documents since something was done in it; the loop's clock."""
    left: int = 0
    """Documents that it has shown since the last were thrown away."""
    target: str = ""
    """Chromium's own name of it, once it was asked."""

    async def name(self) -> str:
        """Its `target`. Raises NoAnswer."""
        self.target = self.target or (await self.send("Target.getTargetInfo", {}))["targetInfo"]["targetId"]
        return self.target

    async def send(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One DevTools command. Raises NoAnswer."""
        with self.fence():
            if self.ask is None:
                self.ask = _asking(await self.page.context.new_cdp_session(self.page))
            answer: dict[str, Any] = await self.ask(method, dict(params))
            return answer

    async def answers(self) -> bool:
        """Whether the page's renderer runs what it is asked, or fails at once."""
        with contextlib.suppress(NoAnswer, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.send("Runtime.evaluate", {"expression": "1"})
                return True
        return False

    def hear(self) -> None:
        self.news = asyncio.get_running_loop().time()

    def another(self) -> None:
        """Another document is shown."""
        self.numbered = False
        self.left += 1
        self.hear()
        self.opened.append(self.news)

    def is_restless(self) -> bool:
        """Whether it shows one document after the other, as a page does that loads itself again and again."""
        seconds = asyncio.get_running_loop().time() - self.opened[0] if self.opened else 0.0
        return len(self.opened) == _RESTLESS and seconds < _RESTLESS_SECONDS

    def loads(self) -> bool:
        """Whether another document is on its way."""
        return any(request.is_navigation_request() for request in self.asked)


def _asking(session: "VendorSession") -> "Callable[[str, dict[str, Any]], Awaitable[Any]]":
    """How a session is asked without the vendor's walk through each answer in search of objects of its own.

    There are none in what DevTools says, and the walk took 65 of the 78 ms for the tree of a page of 200 rows.
    Where the vendor's insides have changed, it is asked as everybody does.
    """
    inner = getattr(session, "_impl_obj", None)
    known = list(inspect.signature(inner.send).parameters) if inner is not None else []
    if inner is None or known not in (["method", "params"], ["method", "params", "timeout"]):
        return session.send
    more = (None,) * (len(known) - 2)
    return lambda method, params: inner.send(method, params, *more)
