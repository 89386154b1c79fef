"""One tab of the browser: its DevTools session, pending requests, loading state and element ids (bids)."""

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from patchwright.runtime.page.devtools import BidRegistry, DevToolsError

if TYPE_CHECKING:
    from patchwright.runtime.browser.playwright_browser import VendorPage, VendorRequest, VendorSession

RESPONSE_TIMEOUT = 2.0  # seconds that suffice unless a script blocks the page
_NAVIGATION_LOOP_COUNT, _NAVIGATION_LOOP_SECONDS = 3, 3.0  # this many new documents in this time are a loop

TranslateErrors = Callable[[], AbstractContextManager[None]]
"""Translates Playwright's errors to DevToolsError."""


@dataclass(eq=False)
class BrowserTab:
    """One tab of the browser."""

    page: "VendorPage"
    translate_errors: TranslateErrors
    bids: BidRegistry
    session_send: "Callable[[str, dict[str, Any]], Awaitable[Any]] | None" = None
    """Sends a command to the tab's DevTools session; None before the first command."""
    pending_requests: set["VendorRequest"] = field(default_factory=set)
    """Unanswered requests of this turn."""
    last_activity: float = 0.0
    """Time of the last request or response, on the event loop's clock."""
    dialog_count: int = 0
    """Dialogs in this turn."""
    stopped_loading: bool = False
    """True if the tab's document did not load in time. Nothing waits for it to load after that."""
    has_bids: bool = False
    """True if the elements of the tab's document have bids, the ids by which the model names them."""
    document_times: deque[float] = field(default_factory=lambda: deque(maxlen=_NAVIGATION_LOOP_COUNT))
    """Times of the tab's newest documents since the last call, on the event loop's clock."""
    unreleased_documents: int = 0
    """Documents shown since the last garbage collection, which Chromium may still keep in memory."""
    target_id: str = ""
    """Chromium's id of the tab; empty until it is requested."""

    async def fetch_target_id(self) -> str:
        """Return `target_id`, and request it from Chromium if it is empty. Raises DevToolsError."""
        self.target_id = (
            self.target_id or (await self.send("Target.getTargetInfo", {}))["targetInfo"]["targetId"]
        )
        return self.target_id

    async def send(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one DevTools command. Raises DevToolsError."""
        with self.translate_errors():
            if self.session_send is None:
                self.session_send = _fast_send(await self.page.context.new_cdp_session(self.page))
            response: dict[str, Any] = await self.session_send(method, dict(params))
            return response

    async def is_responsive(self) -> bool:
        """True if the page's renderer responds."""
        with contextlib.suppress(DevToolsError, TimeoutError):
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                await self.send("Runtime.evaluate", {"expression": "1"})
                return True
        return False

    def record_activity(self) -> None:
        self.last_activity = asyncio.get_running_loop().time()

    def record_document(self) -> None:
        """Record that another document is shown."""
        self.has_bids = False
        self.unreleased_documents += 1
        self.record_activity()
        self.document_times.append(self.last_activity)

    def is_in_navigation_loop(self) -> bool:
        """True if the tab shows one new document after another, for example because a page keeps reloading
        itself.
        """
        seconds = asyncio.get_running_loop().time() - self.document_times[0] if self.document_times else 0.0
        return len(self.document_times) == _NAVIGATION_LOOP_COUNT and seconds < _NAVIGATION_LOOP_SECONDS

    def is_loading(self) -> bool:
        """True if the tab is loading another document."""
        return any(request.is_navigation_request() for request in self.pending_requests)


def _fast_send(session: "VendorSession") -> "Callable[[str, dict[str, Any]], Awaitable[Any]]":
    """Return a fast function that sends DevTools commands.

    Playwright's own function searches each response for Playwright's objects. DevTools responses contain
    none, and the search took 65 of the 78 ms for the tree of a page with 200 rows. Returns Playwright's own
    function if Playwright's internals have changed.
    """
    inner = getattr(session, "_impl_obj", None)
    parameters = list(inspect.signature(inner.send).parameters) if inner is not None else []
    if inner is None or parameters not in (["method", "params"], ["method", "params", "timeout"]):
        return session.send
    extra = (None,) * (len(parameters) - 2)
    return lambda method, params: inner.send(method, params, *extra)
