"""Malicious output of runs, malicious requests, and security headers."""

import asyncio
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import pytest

from patchwright.bot.dashboard.login import MAX_LOGIN_BURST
from patchwright.resolver.events import Event, ModelReply, ReplyUsage, ToolCall, ToolResult
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult
from tests.bot.dashboard.conftest import OPERATOR, SECRET, DashboardServer
from tests.bot.dashboard.event_stream import watch_run
from tests.resolver.sample_runs import full_run, started

pytestmark = pytest.mark.redis

RUN = "acme-calc-1-x"
MARKUP = (
    "</pre></li></ol><script>alert(1)</script><img src=x onerror=alert(1)><iframe src=//evil.test></iframe>"
)
CONTROL_CHARACTERS = "\x1b[2J\x1b]0;owned\x07 \u202edrowssap\u202c \u200bzero\ufeff \x00nul"


class ElementParser(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def shell_step(output: str) -> tuple[Event, Event]:
    call = ToolCall(id="a", action=RunShell(command=f"echo {MARKUP}"))
    usage = ReplyUsage(model="m")
    return (
        ModelReply(thought=f"{MARKUP}{CONTROL_CHARACTERS}", calls=(call,), usage=usage),
        ToolResult(call_id="a", observation=ShellResult(output=output, exit_code=0, cwd="/", seconds=1)),
    )


def is_inert(html: str) -> bool:
    """Returns whether the page has only our own elements and attributes."""
    for tag, attributes in ElementParser(html).found:
        if tag in ("iframe", "object", "embed", "img") or any(name.startswith("on") for name in attributes):
            return False
        if tag == "script" and not str(attributes.get("src", "")).startswith("/static/"):
            return False
        if str(attributes.get("href", "")).lower().startswith(("javascript:", "//")):
            return False
    return True


async def test_markup_and_control_characters_are_shown_inert(server: DashboardServer) -> None:
    assert not is_inert(MARKUP)  # the positive control
    url = "javascript:alert(1)"
    events = (
        started(title=f"{MARKUP}{CONTROL_CHARACTERS}", url=url),
        *shell_step(f"{MARKUP}{CONTROL_CHARACTERS}\n{SECRET}"),
    )
    await server.add_finished_run(RUN, *events)
    browser = await server.operator()
    page, listed = (await browser.get(f"/runs/{RUN}")).text, (await browser.get("/")).text
    async with (
        server.add_running_run("acme-calc-2-live") as worker,
        watch_run(browser, "acme-calc-2-live") as watch,
    ):
        await worker.write(*events)
        texts = [(await watch.until("entries")).data["items"] for _ in range(3)]
    fragments = "".join(markup for items in texts for markup in items.values())
    for html in (page, listed, fragments):
        assert is_inert(html)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\ufeff]", html)
        assert SECRET not in html
    assert "\u27e6U+202E\u27e7drowssap" in page  # visible, without effect


@pytest.mark.slow
async def test_a_huge_output_is_clipped(server: DashboardServer) -> None:
    for number, output in enumerate(("x" * 3_000_000, "line\n" * 400_000), start=1):
        await server.add_finished_run(f"acme-calc-{number}-x", started(), *shell_step(output))
        answer = await (await server.operator()).get(f"/runs/acme-calc-{number}-x")
        assert answer.status_code == 200
        assert len(answer.content) < 200_000
        assert "left out" in answer.text


async def test_a_damaged_log_shows_its_valid_entries(server: DashboardServer) -> None:
    await server.add_finished_run(RUN, *full_run())
    log = server.data / "runs" / RUN / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4]) + b'{"seq": 4, "at": "never"}\n' + lines[5] + b"torn")
    answer = await (await server.operator()).get(f"/runs/{RUN}")
    assert (answer.status_code, 'id="e3' in answer.text, 'id="e5' in answer.text) == (200, True, False)


async def test_run_ids_cannot_traverse_paths(server: DashboardServer) -> None:
    browser = await server.operator()
    (server.data / "events.jsonl").write_text("{}\n")
    for run in ("%2e%2e", "..%2f..%2fetc%2fpasswd", "a%00b", "%0d%0ax", "-x", "x" * 3_000, "ä"):
        assert (run[:30], (await browser.get(f"/runs/{run}")).status_code) == (run[:30], 404)


async def test_every_response_has_security_headers(server: DashboardServer) -> None:
    await server.add_finished_run(RUN, *full_run())
    browser, nobody = await server.operator(), server.browser()
    answers = [
        await browser.get("/"),
        await browser.get(f"/runs/{RUN}"),
        await browser.get("/nothing"),
        await nobody.get("/login"),
        await nobody.get("/"),
        await nobody.post("/login", data={"token": "wrong"}),
        await browser.put("/"),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
    assert [one.status_code for one in answers] == [200, 200, 404, 200, 303, 401, 405]
    page = answers[0].text
    assert not re.search(r"<script(?! src)|<style|style=|<script[^>]*>[^<]", page + answers[1].text)
    (style,) = re.findall(r'<link rel="stylesheet" href="([^"]+)"', page)
    response = await nobody.get(style)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in response.headers["cache-control"]
    assert (await nobody.get("/static/../login.py")).status_code == 404


async def test_an_oversized_form_is_rejected(server: DashboardServer) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"token=" + b"x" * 1_000

    answer = await server.browser().post("/login", content=endless())
    assert (answer.status_code, "Request too large" in answer.text) == (413, True)
    for body in (b"\xff\xfe", b"&".join(b"a=1" for _ in range(100))):
        assert (await server.browser().post("/login", content=body)).status_code == 400


async def test_token_guesses_are_rate_limited(server: DashboardServer) -> None:
    browser = server.browser()
    answers = await asyncio.gather(*(browser.post("/login", data={"token": f"guess {n}"}) for n in range(30)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {401, 429}
    assert (await browser.post("/login", data={"token": OPERATOR})).status_code == 303


async def test_github_sign_ins_are_rate_limited(server: DashboardServer) -> None:
    browser, operator = server.browser(), await server.operator()
    answers = await asyncio.gather(*(browser.get("/login/github") for _ in range(MAX_LOGIN_BURST + 30)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {303, 429}
    assert statuses.count(303) < MAX_LOGIN_BURST + 30
    assert (await operator.get("/")).status_code == 200


async def test_invalid_hosts_and_head_requests_are_answered(server: DashboardServer) -> None:
    browser = await server.operator()
    for host in ("[", "a b", "[::1", "x" * 5_000, "evil.test"):
        answer = await browser.get("/", headers={"host": host})
        assert answer.status_code in (200, 400), host
        assert "evil.test" not in answer.text
    async with server.add_running_run("acme-calc-2-live") as worker:
        await worker.write(started())
        answer = await browser.head("/runs/acme-calc-2-live/events")
        assert (answer.status_code, answer.headers["content-type"][:17]) == (200, "text/event-stream")
