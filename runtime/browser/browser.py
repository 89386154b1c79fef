"""Chromium in the sandbox: one context a run, started with its first call. The one file that knows Playwright.

Its package is imported with the first call, from where the plugin lies; `Vendor*` are the names by which the
other files of the browser know its types.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime import processes
from runtime.browser.actions import Actions
from runtime.browser.advice import Undone, broken, explain, is_closed
from runtime.browser.calls import CALLS
from runtime.browser.code import Call, parse
from runtime.browser.downloads import Downloads
from runtime.browser.tab import OpenTab
from runtime.browser.window import LOAD_SECONDS, Window
from runtime.observations import Failed, Look, Page
from runtime.page import marks
from runtime.page.page import NoAnswer, Seen, look_at
from runtime.plugins import Plugins
from runtime.tree import Tree

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext as VendorContext
    from playwright.async_api import CDPSession as VendorSession
    from playwright.async_api import Dialog as VendorDialog
    from playwright.async_api import Download as VendorDownload
    from playwright.async_api import ElementHandle as VendorElement
    from playwright.async_api import Frame as VendorFrame
    from playwright.async_api import Page as VendorPage
    from playwright.async_api import Playwright
    from playwright.async_api import Request as VendorRequest
    from playwright.async_api import Response as VendorResponse

    __all__ = [
        "Browser",
        "VendorContext",
        "VendorDialog",
        "VendorDownload",
        "VendorElement",
        "VendorFrame",
        "VendorPage",
        "VendorRequest",
        "VendorResponse",
        "VendorSession",
    ]

WIDTH, HEIGHT = 1280, 720
_CALLS_SECONDS = 90.0  # for all calls of a turn
_WAIT_SECONDS, _CALL_SECONDS = 40.0, 10.0  # for one that waits (noop, goto), and for any other
_LOOK_SECONDS = 18.0
_LOOKS_SECONDS = 40.0  # for all looks at a page that changes meanwhile
_START_SECONDS = 20.0
_DOWNLOAD_SECONDS = 5.0  # that a turn waits for what it made come
_CLOSE_SECONDS = 5.0

_LOOPBACK = "<-loopback>;localhost;*.localhost;127.0.0.0/8;[::1]"
"""What is reached without the proxy. Left to itself, Chromium would add 169.254.0.0/16, where clouds keep secrets."""

_NOWHERE = (
    "http://127.0.0.1:9"  # nobody listens at the port of the discard protocol: without a proxy, no way out
)

_FLAGS = (
    "--disable-gpu",
    "--disable-quic",  # it would not go through the proxy
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Push messages, for which its maker would be asked: to a port where nobody listens.
    *(f"--gcm-{each}={_NOWHERE}" for each in ("checkin-url", "registration-url", "mcs-endpoint")),
    "--disable-smooth-scrolling",  # a page has scrolled when a call has
    "--disable-site-isolation-trials",  # one DevTools session sees all frames of a page
    f"--proxy-bypass-list={_LOOPBACK}",
)
_PREFERENCES = {
    "autofill": {"profile_enabled": False, "credit_card_enabled": False},
    "credentials_enable_service": False,
}
"""Of a new profile. With anything to fill forms with, it would ask its maker what each form on a page is for."""
_UNWANTED = (
    "--disable-popup-blocking",  # without a click, no page opens tabs
    "--disable-ipc-flooding-protection",
)


class Browser:
    """One browser with one context. Started when it is first used, and again when it has ended."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        env: Mapping[str, str],
        plugins: Plugins,
        load_seconds: float = LOAD_SECONDS,
    ) -> None:
        """`load_seconds`: how long a server may take to answer, and then its page to load."""
        self._load_seconds = load_seconds
        self._tree = Tree(root, scratch)
        self._env = dict(env)
        self._plugins = plugins
        self._driver: Playwright | None = None
        self._drivers: list[int] = []
        self._home: Path | None = None
        self._downloads: Downloads | None = None
        self._window: Window | None = None

    async def use(self, code: str, allowed: tuple[str, ...], look: Look) -> Page | Failed:
        """Run the calls in order to the first that fails, then look at the page. Answers within 150 s."""
        calls = parse(code, allowed)
        if isinstance(calls, Failed):
            return calls
        if (chromium := self._chromium()) is None:
            return Failed(reason="missing", message=self._plugins.missing("browser"))
        try:
            window = await self._started(chromium)
            actions = Actions(window, self._tree)
            error = await self._run(calls, actions, window)
            if window.gone:
                window = await self._started(chromium)
            async with asyncio.timeout(_LOOKS_SECONDS):
                seen, tab = await self._look(window, look)
            page = await _page(window, seen, tab)
            window.tidy()
        except (NoAnswer, TimeoutError, OSError) as failed:
            await self.close()
            return Failed(reason="io", message=broken(failed))
        return page.model_copy(
            update={"error": error, "answer": actions.answer, "infeasible": actions.infeasible}
        )

    async def close(self) -> None:
        """End the browser, its driver and everything that they started."""
        window, self._window = self._window, None
        driver, self._driver = self._driver, None
        home, self._home = self._home, None
        downloads, self._downloads = self._downloads, None
        if downloads is not None:
            await downloads.close()
        if window is not None and not window.gone:
            await _ended(window.context.close)
        if driver is not None:
            await _ended(driver.stop)
        for pid in self._drivers:
            processes.kill([pid, *processes.descendants(pid)])
        self._drivers.clear()
        if home is not None:
            processes.kill(_of(home))
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    def _chromium(self) -> str | None:
        if not self._plugins.has("browser"):
            return None
        return self._plugins.chromium(self._env.get("PATH"))

    # --- its start --------------------------------------------------------------------------------------------------

    async def _started(self, chromium: str) -> Window:
        """The running browser; a new one if there is none, or it has ended."""
        again = self._window is not None
        if self._window is not None and not self._window.gone and all(map(processes.started, self._drivers)):
            return self._window
        notes = self._window.notes if self._window is not None else []
        await self.close()
        try:
            async with asyncio.timeout(_START_SECONDS):
                window = self._window = await self._start(chromium)
        except BaseException:
            await self.close()
            raise
        for note in notes:
            window.note(note)
        if again:
            window.note("the browser had ended (out of memory, or killed) and was started again: its tabs, cookies "
                        "and what was typed are gone")  # fmt: skip
        return window

    async def _start(self, chromium: str) -> Window:
        packages = self._plugins.packages("browser")
        if packages is not None and str(packages) not in sys.path:
            sys.path.append(str(packages))  # behind our own: nothing of ours is shadowed
        from playwright.async_api import async_playwright

        self._home = home = Path(tempfile.mkdtemp(prefix="browser-", dir=self._tree.scratch))
        (home / "profile/Default").mkdir(parents=True)
        (home / "profile/Default/Preferences").write_text(json.dumps(_PREFERENCES), encoding="utf-8")
        before = processes.children(os.getpid())
        loading = asyncio.create_task(asyncio.to_thread(marks.load))  # while the driver starts
        with _fence():
            self._driver = await async_playwright().start()
            self._drivers = [pid for pid in processes.children(os.getpid()) - before if _is_driver(pid)]
            context = await self._driver.chromium.launch_persistent_context(
                home / "profile",
                executable_path=chromium,
                headless=True,
                chromium_sandbox=False,  # the container is the sandbox, and allows none inside
                args=[*_FLAGS, f"--proxy-server={self._proxy or _NOWHERE}"],
                ignore_default_args=list(_UNWANTED),
                # What it would else leave in the user's home.
                env={**self._env, "XDG_CONFIG_HOME": f"{home}/config", "XDG_CACHE_HOME": f"{home}/cache"},
                viewport={"width": WIDTH, "height": HEIGHT},
                service_workers="block",
                accept_downloads=True,
                downloads_path=home / "downloads",
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        with contextlib.suppress(ImportError):  # said by the first screenshot
            await loading
        notes: list[Window] = []
        downloads = self._downloads = Downloads(
            self._tree.scratch / "downloads", home / "downloads", _fence, lambda text: notes[0].note(text)
        )
        notes.append(Window(context, _fence, downloads.begin, self._load_seconds))
        return notes[0]

    @property
    def _proxy(self) -> str | None:
        return self._env.get("HTTPS_PROXY") or self._env.get("https_proxy")

    # --- its use ----------------------------------------------------------------------------------------------------

    async def _run(self, calls: tuple[Call, ...], actions: Actions, window: Window) -> str | None:
        """Why the last call that was run failed; None when all went well."""
        window.begin()
        call = None
        try:
            async with asyncio.timeout(_CALLS_SECONDS):
                for call in calls:
                    if call is not calls[0]:
                        await window.settle()
                    try:
                        await _do(call, actions)
                    finally:
                        window.acted()
                    if actions.ended:
                        return None
        except Undone as undone:
            return _told(calls, call, str(undone))
        except NoAnswer as error:
            if is_closed(str(error)):
                window.gone = window.gone or await _is_gone(window)
            return _told(calls, call, explain(str(error), online=self._proxy is not None))
        except TimeoutError:
            return _told(calls, call, f"the calls of one turn have {_CALLS_SECONDS:.0f} s together")
        return None

    async def _look(self, window: Window, look: Look) -> tuple[Seen, OpenTab]:
        """What the active tab shows, once it is quiet; a page that changes under the look is looked at again."""
        for _ in range(3):
            await window.settle()
            if self._downloads is not None:
                await self._downloads.settle(_DOWNLOAD_SECONDS)
            tab = await window.responsive()
            with contextlib.suppress(NoAnswer, TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    seen = await look_at(tab.send, tab.bids, look)
                    tab.numbered = True
                    return seen, tab
        tab = await window.responsive()
        return Seen(tree="", notes=("the page changes without end and could not be read",)), tab


async def _do(call: Call, actions: Actions) -> None:
    waits = CALLS[call.name].category in ("agent", "navigation")
    seconds = _WAIT_SECONDS if waits else _CALL_SECONDS
    try:
        async with asyncio.timeout(seconds):
            with _fence():
                await getattr(actions, call.name)(**call.arguments)
    except TimeoutError as error:
        raise Undone(f"it was not done after {seconds:g} s: the page is busy") from error


async def _page(window: Window, seen: Seen, tab: OpenTab) -> Page:
    tabs = await window.listed()
    shown = next((each for each in tabs if each.active), None)
    notes = (*window.notes, *seen.notes)
    window.notes.clear()
    return Page(
        url=shown.url if shown else tab.page.url,
        title=shown.title if shown else "",
        tree=seen.tree,
        tabs=tabs,
        focused=seen.focused,
        notes=notes,
        screenshot=seen.screenshot,
    )


def _told(calls: tuple[Call, ...], call: Call | None, why: str) -> str:
    """The failure of a call, with its line, and what was not run because of it."""
    if call is None:
        return why
    left = len(calls) - calls.index(call) - 1
    rest = f" ({left} more {'was' if left == 1 else 'were'} not run)" if left else ""
    return f"line {call.line}: {call.text} failed{rest}: {why}"


async def _is_gone(window: Window) -> bool:
    """Whether a closed tab was all, or the browser has ended."""
    try:
        with _fence():
            async with asyncio.timeout(_CLOSE_SECONDS):
                await window.context.cookies("http://localhost")
    except (NoAnswer, TimeoutError):
        return True
    return False


@contextmanager
def _fence() -> Iterator[None]:
    from playwright.async_api import Error

    try:
        yield
    except Error as error:
        raise NoAnswer(error.message) from error


async def _ended(end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with contextlib.suppress(NoAnswer, TimeoutError), _fence():
        async with asyncio.timeout(_CLOSE_SECONDS):
            await end()


def _is_driver(pid: int) -> bool:
    return b"run-driver" in _arguments(pid)


def _of(home: Path) -> list[int]:
    """The processes that were started for a browser with this home."""
    wanted = str(home).encode()
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and wanted in _arguments(int(pid))]


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
