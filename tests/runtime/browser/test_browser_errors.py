"""Unexpected events of pages and misbehaving pages: reported, bounded, survived."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patchwright.runtime.browser.action_space import ALL_CALLS
from patchwright.runtime.egress.proxy import EgressProxy
from patchwright.runtime.egress_forwarder import relay
from patchwright.runtime.observations import SnapshotOptions
from tests.runtime.fake_internet import ALLOWED, PUBLIC, Internet, internet
from tests.runtime.web_fixture import Web, notes, open_web

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


# --- dialogs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("button", "note", "saw"),
    [
        ("Alert", "the page opened the alert 'Saved 3 rows'; the browser pressed OK", []),
        ("Confirm", "the page opened the confirm 'Delete all?'; the browser pressed OK", ["confirmed true"]),
        (
            "Prompt",
            "the page asked 'Your name?'; the browser answered with the suggested text 'nobody'",
            ["prompted nobody"],
        ),
        ("Print", "", ["printed"]),
        ("Locate", "", ["not located"]),
    ],
)
async def test_a_dialog_is_answered_and_reported(web: Web, button: str, note: str, saw: list[str]) -> None:
    await web.open("trouble.html")
    assert await web.do(f"click({{button {button!r}}})") == saw
    assert notes(web) == note


async def test_endless_alerts_close_the_tab(web: Web) -> None:
    await web.open("trouble.html")
    page = await web.use(web.filled("click({button 'Alerts'})"))
    assert "the page opened more than 10 dialogs: its tab was closed" in page.notes
    assert page.url == "about:blank" and page.error is not None
    assert (await web.open("answer.html")).notes == ()


async def test_a_page_that_asks_before_leaving_is_left(web: Web) -> None:
    await web.open("trouble.html")
    await web.do("click({button 'Trap'})")
    assert (await web.open("answer.html")).title == "The answer"
    assert "the page asked whether to leave it; the browser answered yes" in notes(web)


async def test_an_endless_script_is_stopped(web: Web) -> None:
    await web.open("trouble.html")
    page = await web.use(web.filled("click({button 'Loop'})"))
    assert "an endless script of the page was stopped" in page.notes
    assert (await web.do("click({button 'Confirm'})")) == ["confirmed true"]


@pytest.mark.slow
async def test_a_call_on_a_page_that_hangs_times_out(web: Web) -> None:
    await web.open("trouble.html")
    error = await web.refused("click({button 'Soon'})\nnoop(200)\nfocus({button 'Confirm'})\nnoop(1)")
    assert (
        error.startswith("line 3: ")
        and "(1 more call was not run): the call did not finish within 10 s" in error
    )
    assert (await web.do("click({button 'Confirm'})")) == ["confirmed true"]


# --- tabs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opener", "title"),
    [("button 'Popup'", "The answer"), ("link 'New tab'", "The answer"), ("link 'Late tab'", "Late")],
)
async def test_a_popup_becomes_the_active_tab(web: Web, opener: str, title: str) -> None:
    await web.open("trouble.html")
    await web.do(f"click({{{opener}}})")
    assert web.page is not None and web.page.title == title
    assert [tab.active for tab in web.page.tabs] == [False, True]
    assert notes(web) == "a new tab was opened and is now the active one: tab 1"
    assert (await web.use("tab_close()")).title == "Trouble"


async def test_a_tab_that_never_opens_is_awaited_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await web.open("trouble.html")
    assert (await web.use(web.filled("click({link 'No tab'})"))).title == "Trouble"
    # A second wait would reach the time limit of the test. The tests of this module share the browser.
    monkeypatch.setattr(web.browser._tab_manager, "load_timeout", 600)
    assert (await web.use("scroll(0, 10)")).title == "Trouble"


async def test_a_click_opens_no_more_than_one_tab(web: Web) -> None:
    await web.open("trouble.html")
    page = await web.use(web.filled("click({button 'Popups'})"))
    assert len(page.tabs) == 2
    await web.use("tab_close()")


async def test_tabs_have_a_limit(web: Web) -> None:
    await web.use("new_tab()\n" * 19)
    assert "at most 20 tabs can be open: close one" in await web.refused("new_tab()")
    await web.open("trouble.html")
    page = await web.use(web.filled("click({link 'New tab'})"))
    assert (
        "a new tab was closed at once, because at most 20 tabs can be open" in page.notes
        and len(page.tabs) == 20
    )
    page = await web.use("tab_close()\n" * 20)
    assert [tab.url for tab in page.tabs] == ["about:blank"]


# --- URLs
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "file: URLs are not supported, only http and https"),
        ("view-source:http://localhost", "view-source: URLs are not supported"),
        ("chrome://version", "chrome: URLs are not supported"),
        ("javascript:alert(1)", "javascript: URLs are not supported"),
        ("data:text/html,x", "data: URLs are not supported"),
        (
            "http://example.com/",
            "this sandbox has no network, so its browser can open only pages on localhost",
        ),
        ("https://192.168.0.1/", "this sandbox has no network"),
        ("http://169.254.169.254/latest/meta-data", "this sandbox has no network"),
        ("http://localhost:1/", "browsers refuse this port"),
        (
            "http://localhost:1999/",
            "no server listens at this address: check that the server is running, and that it uses this port",
        ),
        ("http://", "this is not a URL"),
        ("{url}/round", "the URL redirects endlessly"),
        ("{url}/to-file", "the URL redirects to a URL that is not http or https"),
        ("{url}/private", "the server requires a password"),
    ],
)
async def test_an_unsupported_url_yields_a_reason(web: Web, url: str, why: str) -> None:
    assert why in await web.refused(f"goto({url.format(url=web.url)!r})")


async def test_urls_are_completed_as_in_an_address_bar(web: Web) -> None:
    for url in (f"localhost:{web.port}/answer.html", f"http://0.0.0.0:{web.port}/answer.html"):
        assert (await web.use(f"goto({url!r})")).title == "The answer"
    assert (await web.use(f"goto('http://user:pass@localhost:{web.port}/private')")).title == "Private"


async def test_the_http_status_of_a_failed_response_is_reported(web: Web) -> None:
    await web.open("nothing-here")
    assert notes(web) == "the server responded with status 404 Not Found"


@pytest.mark.parametrize("way", ["link 'Local file'", "button 'Script to file'", "button 'Chrome'"])
async def test_a_page_cannot_open_local_files(web: Web, way: str) -> None:
    await web.open("trouble.html")
    page = await web.use(web.filled(f"click({{{way}}})"))
    assert "root:" not in page.tree and not page.url.startswith(("file:", "chrome:"))


async def test_an_endless_page_is_shown_as_far_as_it_loaded(web: Web) -> None:
    page = await web.use(f"goto('{web.url}/trickle')")
    assert "heading 'First'" in page.tree and "still loading after 3 s" in notes(web)


async def test_a_server_that_never_responds_times_out(web: Web) -> None:
    assert "the server did not respond within" in await web.refused(f"goto('{web.url}/never')")


async def test_a_page_that_keeps_reloading_can_be_left(web: Web) -> None:
    await web.use(f"goto('{web.url}/reloading')")
    assert (await web.open("answer.html")).title == "The answer"
    # Its scripts were disabled on leaving; those of the next page must run.
    await web.open("files.html")
    (web.root / "b.txt").write_text("hi")
    assert await web.do("upload_file({button 'Choose'}, 'b.txt')") == ["photo [b.txt=hi]"]


async def test_history_works_after_several_goto_calls(web: Web) -> None:
    await web.use(
        "\n".join(f"goto('{web.url}/{page}.html')" for page in ("answer", "files", "answer", "files"))
    )
    assert (await web.use("go_back()")).title == "The answer"


@pytest.mark.slow
async def test_a_page_of_a_hundred_megabytes_costs_seconds(web: Web) -> None:
    await web.browser.run_code(f"goto('{web.url}/huge')", ALL_CALLS, SnapshotOptions(screenshot=True))
    assert (await web.open("answer.html")).title == "The answer"


# --- files ------------------------------------------------------------------------------------------------------


async def test_files_can_be_uploaded_to_local_pages(web: Web) -> None:
    (web.root / "data").mkdir()
    (web.root / "data/a.csv").write_text("1,2")
    (web.root / "b.txt").write_text("hi")
    await web.open("files.html")
    assert await web.do("upload_file({button 'Papers'}, ['data/a.csv', 'b.txt'])") == [
        "papers [a.csv=1,2,b.txt=hi]"
    ]
    assert await web.do("upload_file({button 'Papers'}, [])") == ["papers []"]
    assert await web.do("upload_file({button 'Choose'}, 'b.txt')") == ["photo [b.txt=hi]"]
    assert await web.do("mouse_upload_file(220, 210, 'data/a.csv')") == ["photo [a.csv=1,2]"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("upload_file({button 'Photo'}, '/etc/passwd')", "/etc/passwd is outside of the work tree"),
        ("upload_file({button 'Photo'}, 'link')", "link is outside of the work tree"),
        ("upload_file({button 'Photo'}, 'no.txt')", "no.txt does not exist"),
        ("upload_file({button 'Photo'}, ['c.txt', 'c.txt'])", "this input accepts only one file"),
        ("mouse_upload_file(900, 600, 'c.txt')", "no file chooser opened"),
        ("upload_file({link 'Plain'}, 'c.txt')", "no file chooser opened"),
    ],
)
async def test_a_file_that_cannot_be_uploaded_yields_a_reason(web: Web, call: str, why: str) -> None:
    (web.root / "c.txt").write_text("c")
    if not (web.root / "link").is_symlink():
        (web.root / "link").symlink_to("/etc/passwd")
    await web.open("files.html")
    assert why in await web.refused(call)


async def test_a_file_is_not_uploaded_to_a_foreign_page(web: Web) -> None:
    (web.root / "secret.txt").write_text("s")
    await web.use("goto('about:blank')")
    assert "files can be uploaded only to pages on the sandbox's own localhost" in await web.refused(
        "mouse_upload_file(5, 5, 'secret.txt')"
    )


async def test_a_download_is_reported_but_not_saved(web: Web) -> None:
    await web.open("files.html")
    url = f"{web.url}/download/minutes.txt"
    reported = (
        "the page offered the file 'minutes.txt', which the browser does not save: "
        f"a shell command can fetch {url!r}"
    )
    await web.do("click({link 'Minutes'})")
    assert notes(web) == reported
    page = await web.use(f"goto('{url}')")
    assert page.error is None and notes(web) == reported
    assert not [*web.scratch.rglob("minutes*"), *web.scratch.rglob("downloads")]


async def test_the_name_of_a_download_cannot_fake_a_line(web: Web) -> None:
    await web.open("files.html")
    await web.do("click({link 'Evil'})")
    assert "does not save" in notes(web) and "\n" not in notes(web)


# --- network
# ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def way_out(net: Internet, directory: Path) -> AsyncIterator[str]:
    """Listen on a loopback port that leads to the egress proxy, as in an online sandbox."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay((reader, writer), await asyncio.open_unix_connection(directory / "e"))
        writer.close()

    async with EgressProxy(net.egress()).listen(directory / "e"):
        server = await asyncio.start_server(forward, "127.0.0.1", 0)
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()


async def test_everything_but_loopback_goes_through_the_proxy(tmp_path: Path, short_tmp: Path) -> None:
    outside = (
        b"<title>Outside</title><input type=file><script>fetch('http://10.0.0.1/').catch(() => 0)</script>"
    )
    async with (
        internet() as net,
        way_out(net, short_tmp) as proxy,
        open_web(tmp_path, HTTPS_PROXY=proxy) as web,
    ):
        net.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(outside), outside)
        page = await web.use(f"goto('http://{ALLOWED}/')")
        assert (page.title, page.error) == ("Outside", None)
        (web.root / "any.txt").write_text("secret")
        strange = f"on the sandbox's own localhost, not to http://{ALLOWED}/"
        assert strange in await web.refused("upload_file({button 'Choose File'}, 'any.txt')")
        assert "on the sandbox's own localhost" in await web.refused("mouse_upload_file(9, 9, 'any.txt')")
        await web.open(f"around?http://{ALLOWED}/")
        assert strange in await web.refused("upload_file({button 'Choose File'}, 'any.txt')")
        assert {address for address, _ in net.dialed} == {PUBLIC}
        dialed = len(net.dialed)
        assert (await web.open("answer.html")).title == "The answer"
        for url in ("https://10.0.0.1/", "https://169.254.169.254/", "https://other.test/"):
            assert "the sandbox's proxy does not allow this host" in await web.refused(f"goto('{url}')")
        page = await web.use("goto('http://169.254.169.254/latest/meta-data')")
        assert "the server responded with status 403" in notes(web)
        assert len(net.dialed) == dialed and "localhost" not in net.looked_up
