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
    from patchwright.runtime.browser.vendor_types import VendorPage, VendorRequest, VendorSession

RESPONSE_TIMEOUT = 2.0  # seconds; a page that does not respond in this time is blocked by a script
# if the tab shows this many new documents in this many seconds, it is in a loop
_NAVIGATION_LOOP_COUNT, _NAVIGATION_LOOP_SECONDS = 3, 3.0

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
    """Requests of the current turn that have no response yet."""
    last_activity: float = 0.0
    """Time of the last request or response, on the event loop's clock."""
    dialog_count: int = 0
    """Number of dialogs in the current turn."""
    stopped_loading: bool = False
    """True if the tab's document did not load in time. After that, no call waits for the document."""
    has_bids: bool = False
    """True if the elements of the tab's document have bids. The model names elements by their bids."""
    document_times: deque[float] = field(default_factory=lambda: deque(maxlen=_NAVIGATION_LOOP_COUNT))
    """Times at which the tab showed new documents since the last call, on the event loop's clock."""
    unreleased_documents: int = 0
    """Number of documents shown since the last garbage collection. Chromium may still keep them in memory."""
    target_id: str = ""
    """Chromium's id of the tab; empty until it is requested."""

    async def fetch_target_id(self) -> str:
        """Return `target_id`. If it is empty, first request it from Chromium. Raises DevToolsError."""
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
        """Record that the tab shows another document."""
        self.has_bids = False
        self.unreleased_documents += 1
        self.record_activity()
        self.document_times.append(self.last_activity)

    def is_in_navigation_loop(self) -> bool:
        """True if the tab shows one new document after another, for example because a page reloads itself
        again and again.
        """
        seconds = asyncio.get_running_loop().time() - self.document_times[0] if self.document_times else 0.0
        return len(self.document_times) == _NAVIGATION_LOOP_COUNT and seconds < _NAVIGATION_LOOP_SECONDS

    def is_loading(self) -> bool:
        """True if the tab is loading another document."""
        return any(request.is_navigation_request() for request in self.pending_requests)


def _fast_send(session: "VendorSession") -> "Callable[[str, dict[str, Any]], Awaitable[Any]]":
    """Return a fast function that sends DevTools commands.

    Playwright's own function searches each response for Playwright's objects, but DevTools responses contain
    none. For a page with 200 rows, this search took 65 of the 78 ms for reading the tree. If Playwright's
    internals have changed, returns Playwright's own function.
    """
    inner = getattr(session, "_impl_obj", None)
    parameters = list(inspect.signature(inner.send).parameters) if inner is not None else []
    if inner is None or parameters not in (["method", "params"], ["method", "params", "timeout"]):
        return session.send
    extra = (None,) * (len(parameters) - 2)
    return lambda method, params: inner.send(method, params, *extra)
