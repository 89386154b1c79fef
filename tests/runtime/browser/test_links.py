"""The browser reads linked hosts through the egress proxy, and sends them nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from patchwright.runtime.browser.link_reader import LinkReader
from patchwright.runtime.egress.proxy import EgressProxy
from patchwright.runtime.egress_forwarder import forward_connections
from patchwright.runtime.observations import PageSnapshot
from tests.runtime.linked_site import LINKED, LinkedSite, html, linked_site
from tests.runtime.web_fixture import ALL_CALLS, SNAPSHOT, Web

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SENDING = """<title>Sends</title><p id=said>waiting</p><script>
fetch('/a', {method: 'POST', body: 'secret'}).then(() => 'sent', () => 'blocked')
  .then(text => { document.getElementById('said').textContent = text })</script>"""


@asynccontextmanager
async def reading(short_tmp: Path) -> AsyncIterator[tuple[LinkedSite, LinkReader]]:
    """Run a site, and a proxy that permits reading it."""
    async with linked_site(short_tmp) as site:
        proxy = EgressProxy(site.egress())
        async with proxy.listen(short_tmp / "e"):
            server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            server.close()
            async with forward_connections(str(short_tmp / "e"), 0, port):
                yield site, LinkReader(frozenset([LINKED]), proxy.links.allow([LINKED]), port)


async def goto(web: Web, url: str, links: LinkReader | None) -> PageSnapshot:
    page = await web.browser.run_code(f"goto('{url}')\nnoop(500)", ALL_CALLS, SNAPSHOT, links)
    assert isinstance(page, PageSnapshot), page
    return page


async def test_a_linked_page_is_shown_and_nothing_is_sent(web: Web, short_tmp: Path) -> None:
    async with reading(short_tmp) as (site, links):
        site.pages["/"] = html(SENDING)
        page = await goto(web, f"https://{LINKED}/#top", links)
        assert (page.error, page.title, page.url) == (None, "Sends", f"https://{LINKED}/#top")
        assert "blocked" in page.tree
        assert {request.split(" ")[0] for request in site.requests} == {"GET"}
        assert "secret" not in "".join(site.requests)


async def test_without_the_key_a_linked_page_is_not_shown(web: Web, short_tmp: Path) -> None:
    async with reading(short_tmp) as (site, links):
        site.pages["/"] = html("<title>Shown</title>")
        for reader in (None, replace(links, key="guessed")):
            page = await goto(web, f"https://{LINKED}/", reader)
            assert page.title != "Shown" and site.requests == []
        assert (await goto(web, f"https://{LINKED}/", links)).title == "Shown"


async def test_a_redirect_changes_the_address_and_stays_on_linked_hosts(web: Web, short_tmp: Path) -> None:
    async with reading(short_tmp) as (site, links):
        moved = "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n"
        site.pages |= {
            "/old": moved.format("/new/").encode(),
            "/new/": html("<title>New</title>"),
            "/away": moved.format("https://elsewhere.test/").encode(),
        }
        page = await goto(web, f"https://{LINKED}/old", links)
        assert (page.title, page.url) == ("New", f"https://{LINKED}/new/")
        await goto(web, f"https://{LINKED}/away", links)
        assert {name for name, _ in site.dialed} == {"93.184.215.14"} and site.looked_up.count(
            "elsewhere.test"
        ) == 0
