"""Chromium in the sandbox, with one browser context per run. Only this module uses Playwright directly.

Chromium starts when the first browser call runs. Only then is Playwright imported, from the files of the
`browser` feature. The other browser modules use Playwright's types from
`vendor_types`.
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

from patchwright.runtime import processes
from patchwright.runtime.browser.action_space import CALLS
from patchwright.runtime.browser.browser_tab import BrowserTab
from patchwright.runtime.browser.call_executor import CallExecutor
from patchwright.runtime.browser.call_parser import BrowserCall, parse_calls
from patchwright.runtime.browser.error_hints import (
    BrowserCallFailed,
    explain_browser_failure,
    explain_error,
    is_closed_error,
)
from patchwright.runtime.browser.link_reader import LinkReader, LinkRouter
from patchwright.runtime.browser.tab_manager import LOAD_TIMEOUT, TabManager
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import ActionFailure, PageSnapshot, SnapshotOptions
from patchwright.runtime.page import marks
from patchwright.runtime.page.page_reader import DevToolsError, PageContent, read_page
from patchwright.runtime.path_guard import PathGuard

if TYPE_CHECKING:
    from playwright.async_api import Playwright

WIDTH, HEIGHT = 1280, 720
_CALLS_TIMEOUT = 90.0  # seconds for all calls of a turn
# seconds for a call that waits (noop, goto), and for any other call
_WAIT_CALL_TIMEOUT, _CALL_TIMEOUT = 40.0, 10.0
_READ_TIMEOUT = 18.0
_READ_RETRIES_TIMEOUT = 40.0  # seconds for all attempts to read a page that keeps changing
_START_TIMEOUT = 20.0
_CLOSE_TIMEOUT = 5.0

_PROXY_BYPASS = "<-loopback>;localhost;*.localhost;127.0.0.0/8;[::1]"
"""Hosts that are reached without the proxy. Chromium's default list would add 169.254.0.0/16, the network of
the cloud metadata services. `<-loopback>` removes that default list.
"""

# The proxy of an offline sandbox. Nothing listens on this port (the port of the discard protocol), so
# Chromium has no network.
_DEAD_PROXY = "http://127.0.0.1:9"

_FLAGS = (
    "--disable-gpu",
    "--disable-quic",  # QUIC would bypass the proxy
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Push messaging would connect to Google. These flags make it connect to a port on which nothing listens.
    *(f"--gcm-{each}={_DEAD_PROXY}" for each in ("checkin-url", "registration-url", "mcs-endpoint")),
    "--disable-smooth-scrolling",  # without this, scrolling would continue after the call has returned
    "--disable-site-isolation-trials",  # with this, one DevTools session sees all frames of a page
    f"--proxy-bypass-list={_PROXY_BYPASS}",
)
_PREFERENCES = {
    "autofill": {"profile_enabled": False, "credit_card_enabled": False},
    "credentials_enable_service": False,
}
"""Preferences of a new profile. With autofill enabled, Chromium would ask Google about each form on a page.
"""
_REMOVED_FLAGS = (
    "--disable-popup-blocking",  # this default of Playwright would let pages open tabs without a click
    "--disable-ipc-flooding-protection",
)


class Browser:
    """One Chromium with one browser context. Starts Chromium on first use, and again if Chromium has
    ended.
    """

    def __init__(
        self,
        root: Path,
        scratch: Path,
        env: Mapping[str, str],
        features: SandboxFeatures,
        load_timeout: float = LOAD_TIMEOUT,
    ) -> None:
        """A server must respond within `load_timeout` seconds. After the response, the page has another
        `load_timeout` seconds to load.
        """
        self._load_timeout = load_timeout
        self._paths = PathGuard(root, scratch)
        self._env = dict(env)
        self._features = features
        self._driver: Playwright | None = None
        self._driver_pids: list[int] = []
        self._state_dir: Path | None = None
        self._tab_manager: TabManager | None = None
        self._link_router = LinkRouter(_translate_errors)

    async def run_code(
        self, code: str, allowed: tuple[str, ...], options: SnapshotOptions, links: LinkReader | None = None
    ) -> PageSnapshot | ActionFailure:
        """Run the calls in `code`, and return a snapshot of the page. If a call fails, the later calls are not run, but
        the snapshot is still taken. All of this takes at most 150 s. With `links`, pages may read linked hosts.
        """
        calls = parse_calls(code, allowed)
        if isinstance(calls, ActionFailure):
            return calls
        if (chromium := self._find_chromium()) is None:
            return ActionFailure(reason="missing", message=self._features.missing_message("browser"))
        try:
            tab_manager = await self._ensure_started(chromium)
            await self._link_router.set_reader(tab_manager.context, links)
            actions = CallExecutor(tab_manager, self._paths)
            error = await self._run_calls(calls, actions, tab_manager)
            if tab_manager.has_exited:
                tab_manager = await self._ensure_started(chromium)
            async with asyncio.timeout(_READ_RETRIES_TIMEOUT):
                content, tab = await self._read_page(tab_manager, options)
            page = await _page_snapshot(tab_manager, content, tab)
            tab_manager.collect_garbage()
        except (DevToolsError, TimeoutError, OSError) as failure:
            await self.close()
            return ActionFailure(reason="io", message=explain_browser_failure(failure))
        return page.model_copy(
            update={
                "error": error,
                "user_message": actions.user_message,
                "infeasible_reason": actions.infeasible_reason,
            }
        )

    async def close(self) -> None:
        """Stop the browser, its driver and all their processes."""
        tab_manager, self._tab_manager = self._tab_manager, None
        driver, self._driver = self._driver, None
        state_dir, self._state_dir = self._state_dir, None
        if tab_manager is not None and not tab_manager.has_exited:
            await _close_quietly(tab_manager.context.close)
        if driver is not None:
            await _close_quietly(driver.stop)
        for pid in self._driver_pids:
            processes.kill([pid, *processes.descendant_pids(pid)])
        self._driver_pids.clear()
        if state_dir is not None:
            processes.kill(_find_pids(state_dir))
            await asyncio.to_thread(shutil.rmtree, state_dir, ignore_errors=True)

    def _find_chromium(self) -> str | None:
        if not self._features.has("browser"):
            return None
        return self._features.chromium_program(self._env.get("PATH"))

    # --- start ----------------------------------------------------------------------------------------------

    async def _ensure_started(self, chromium: str) -> TabManager:
        """Return the running browser. If there is none, start one."""
        is_restart = self._tab_manager is not None
        if (
            self._tab_manager is not None
            and not self._tab_manager.has_exited
            and all(map(processes.start_time, self._driver_pids))
        ):
            return self._tab_manager
        notes = self._tab_manager.notes if self._tab_manager is not None else []
        await self.close()
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                tab_manager = self._tab_manager = await self._start(chromium)
        except BaseException:
            await self.close()
            raise
        for note in notes:
            tab_manager.add_note(note)
        if is_restart:
            tab_manager.add_note("the browser had exited (out of memory, or killed) and was restarted: its tabs, "
                        "cookies and typed text are lost")  # fmt: skip
        return tab_manager

    async def _start(self, chromium: str) -> TabManager:
        packages = self._features.packages("browser")
        if packages is not None and str(packages) not in sys.path:
            # added at the end of the import path, so that our own packages take precedence
            sys.path.append(str(packages))
        from playwright.async_api import async_playwright

        self._state_dir = state_dir = Path(tempfile.mkdtemp(prefix="browser-", dir=self._paths.scratch))
        (state_dir / "profile/Default").mkdir(parents=True)
        (state_dir / "profile/Default/Preferences").write_text(json.dumps(_PREFERENCES), encoding="utf-8")
        before = processes.child_pids(os.getpid())
        # the image library loads while the driver starts
        preloading = asyncio.create_task(asyncio.to_thread(marks.preload))
        with _translate_errors():
            self._driver = await async_playwright().start()
            self._driver_pids = [pid for pid in processes.child_pids(os.getpid()) - before if _is_driver(pid)]
            context = await self._driver.chromium.launch_persistent_context(
                state_dir / "profile",
                executable_path=chromium,
                headless=True,
                # Chromium's own sandbox is off: the container does not allow it, and is a sandbox itself.
                chromium_sandbox=False,
                args=[*_FLAGS, f"--proxy-server={self._proxy or _DEAD_PROXY}"],
                ignore_default_args=list(_REMOVED_FLAGS),
                # Chromium would otherwise create these directories in the user's home.
                env={
                    **self._env,
                    "XDG_CONFIG_HOME": f"{state_dir}/config",
                    "XDG_CACHE_HOME": f"{state_dir}/cache",
                },
                viewport={"width": WIDTH, "height": HEIGHT},
                service_workers="block",
                accept_downloads=False,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        with contextlib.suppress(ImportError):  # the first screenshot will report this error
            await preloading
        return TabManager(context, _translate_errors, self._load_timeout)

    @property
    def _proxy(self) -> str | None:
        return self._env.get("HTTPS_PROXY") or self._env.get("https_proxy")

    # --- use ------------------------------------------------------------------------------------------------

    async def _run_calls(
        self, calls: tuple[BrowserCall, ...], executor: CallExecutor, tab_manager: TabManager
    ) -> str | None:
        """Run the calls. If a call failed, return the reason; otherwise return None."""
        tab_manager.begin_turn()
        call = None
        try:
            async with asyncio.timeout(_CALLS_TIMEOUT):
                for call in calls:
                    if call is not calls[0]:
                        await tab_manager.wait_until_idle()
                    try:
                        await _run_call(call, executor)
                    finally:
                        tab_manager.record_call()
                    if executor.is_done:
                        return None
        except BrowserCallFailed as error:
            return _failure_message(calls, call, str(error))
        except DevToolsError as error:
            if is_closed_error(str(error)):
                tab_manager.has_exited = tab_manager.has_exited or await _has_exited(tab_manager)
            return _failure_message(calls, call, explain_error(str(error), online=self._proxy is not None))
        except TimeoutError:
            return _failure_message(
                calls, call, f"the calls of one turn took more than {_CALLS_TIMEOUT:.0f} s"
            )
        return None

    async def _read_page(
        self, tab_manager: TabManager, options: SnapshotOptions
    ) -> tuple[PageContent, BrowserTab]:
        """Read the active tab once it is idle. If the page changes while it is read, read it again."""
        for _ in range(3):
            await tab_manager.wait_until_idle()
            tab = await tab_manager.ensure_responsive_tab()
            with contextlib.suppress(DevToolsError, TimeoutError):
                async with asyncio.timeout(_READ_TIMEOUT):
                    content = await read_page(tab.send, tab.bids, options)
                    tab.has_bids = True
                    return content, tab
        tab = await tab_manager.ensure_responsive_tab()
        return PageContent(tree="", notes=("the page keeps changing and could not be read",)), tab


async def _run_call(call: BrowserCall, executor: CallExecutor) -> None:
    waits = CALLS[call.name].category in ("agent", "navigation")
    seconds = _WAIT_CALL_TIMEOUT if waits else _CALL_TIMEOUT
    try:
        async with asyncio.timeout(seconds):
            with _translate_errors():
                await getattr(executor, call.name)(**call.arguments)
    except TimeoutError as error:
        raise BrowserCallFailed(
            f"the call did not finish within {seconds:g} s, because the page is busy"
        ) from error


async def _page_snapshot(tab_manager: TabManager, content: PageContent, tab: BrowserTab) -> PageSnapshot:
    tabs = await tab_manager.list_tabs()
    active = next((each for each in tabs if each.active), None)
    notes = (*tab_manager.notes, *content.notes)
    tab_manager.notes.clear()
    return PageSnapshot(
        url=active.url if active else tab.page.url,
        title=active.title if active else "",
        tree=content.tree,
        html=content.html,
        dom=content.dom,
        tabs=tabs,
        focused_bid=content.focused_bid,
        notes=notes,
        screenshot=content.screenshot,
    )


def _failure_message(calls: tuple[BrowserCall, ...], call: BrowserCall | None, reason: str) -> str:
    """Return a message about a failed call: the reason, the call's line, and how many calls were not run."""
    if call is None:
        return reason
    remaining = len(calls) - calls.index(call) - 1
    suffix = (
        f" ({remaining} more {'call was' if remaining == 1 else 'calls were'} not run)" if remaining else ""
    )
    return f"line {call.line}: {call.text} failed{suffix}: {reason}"


async def _has_exited(tab_manager: TabManager) -> bool:
    """True if the browser itself has ended. False if only a tab has ended."""
    try:
        with _translate_errors():
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await tab_manager.context.cookies("http://localhost")
    except (DevToolsError, TimeoutError):
        return True
    return False


@contextmanager
def _translate_errors() -> Iterator[None]:
    from playwright.async_api import Error

    try:
        yield
    except Error as error:
        raise DevToolsError(error.message) from error


async def _close_quietly(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with contextlib.suppress(DevToolsError, TimeoutError), _translate_errors():
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await close()


def _is_driver(pid: int) -> bool:
    return b"run-driver" in _command_line(pid)


def _find_pids(state_dir: Path) -> list[int]:
    """Return the process ids of the browser whose state is in this directory."""
    needle = str(state_dir).encode()
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and needle in _command_line(int(pid))]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
