"""The browser of every sandbox: it reaches servers of the shell, and its snapshot crosses the wire."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.runtime.actions import CreateFile, UseBrowser
from patchwright.runtime.browser.action_space import WEB_CALLS
from patchwright.runtime.observations import PageSnapshot, SnapshotOptions
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.conftest import opened
from tests.contracts.sandbox_actions import failed, printed, shell

pytestmark = pytest.mark.browser

# The kernel chooses the port, because tests run in parallel.
SERVE = """cat > serve.py <<'END'
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
open("port", "w").write(str(server.server_port))
server.serve_forever()
END
python3 serve.py > /dev/null 2>&1 &
until [ -s port ]; do sleep 0.05; done"""

PAGE = """<!doctype html><title>Shop</title>
<button onclick="document.querySelector('p').textContent = 'Sold'">Buy</button><p>Open</p>"""


@pytest.fixture(params=["executor", "loopback"])
async def sandbox(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Sandbox]:
    """Sandboxes with this machine's Chromium; tests/runtime/test_features.py covers that of a container."""
    async with opened(request.param, short_tmp) as sandbox:
        yield sandbox


async def use(sandbox: Sandbox, code: str, screenshot: bool = False) -> PageSnapshot:
    page = await sandbox.act(
        UseBrowser(code=code, allowed_calls=WEB_CALLS, snapshot=SnapshotOptions(screenshot=screenshot))
    )
    assert isinstance(page, PageSnapshot), page
    return page


@pytest.mark.slow
async def test_a_server_that_the_shell_started_is_browsed(sandbox: Sandbox) -> None:
    await sandbox.act(CreateFile(path="index.html", content=PAGE))
    await shell(sandbox, SERVE)
    port = await printed(sandbox, "cat port")
    page = await use(sandbox, f"goto('localhost:{port}')", screenshot=True)
    assert (page.title, page.error, page.notes) == ("Shop", None, ())
    assert "button 'Buy'" in page.tree and "StaticText 'Open'" in page.tree
    assert page.screenshot is not None and page.screenshot.media_type in ("image/png", "image/jpeg")
    bid = page.tree.partition("] button 'Buy'")[0].rpartition("[")[2]
    assert "StaticText 'Sold'" in (await use(sandbox, f"click('{bid}')")).tree


@pytest.mark.slow
async def test_the_shell_and_the_browser_do_not_disturb_each_other(sandbox: Sandbox) -> None:
    await use(sandbox, "")
    ran = await shell(sandbox, "sleep 70 & sleep 71", timeout=1)
    assert ran.exit_code is None
    page = await use(sandbox, "goto('about:blank')")
    assert (page.error, page.notes) == (None, ())


async def test_a_call_that_is_not_allowed_is_refused_before_there_is_a_browser(sandbox: Sandbox) -> None:
    refused = await failed(sandbox, UseBrowser(code="tab_close()", allowed_calls=("goto", "click")))
    assert refused.reason == "refused" and refused.message.endswith("Allowed calls: click, goto")
    assert await printed(sandbox, f"ls -d {sandbox.scratch}/browser-* 2> /dev/null || echo none") == "none\n"
