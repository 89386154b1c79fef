"""What a run printed is shown, and does nothing; and what every answer says to browsers."""

import asyncio
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import pytest

from bot.page.login import BEGUN_AT_ONCE
from resolver.events import Call, Decided, Event, Observed, Usage
from runtime.actions import RunShell
from runtime.observations import Ran
from tests.page.conftest import OPERATOR, SECRET, Room
from tests.page.streaming import watching
from tests.resolver.seen_runs import started, whole_run

pytestmark = pytest.mark.redis

RUN = "acme-calc-1-x"
MARKUP = (
    "</pre></li></ol><script>alert(1)</script><img src=x onerror=alert(1)><iframe src=//evil.test></iframe>"
)
STEERING = "\x1b[2J\x1b]0;owned\x07 \u202edrowssap\u202c \u200bzero\ufeff \x00nul"


class Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def ran(output: str) -> tuple[Event, Event]:
    call = Call(id="a", action=RunShell(command=f"echo {MARKUP}"))
    usage = Usage(model="m")
    return (
        Decided(thought=f"{MARKUP}{STEERING}", calls=(call,), usage=usage),
        Observed(call="a", observation=Ran(output=output, exit_code=0, cwd="/", seconds=1)),
    )


def is_inert(html: str) -> bool:
    """Whether it has only elements and attributes of ours."""
    for tag, attributes in Elements(html).found:
        if tag in ("iframe", "object", "embed", "img") or any(name.startswith("on") for name in attributes):
            return False
        if tag == "script" and not str(attributes.get("src", "")).startswith("/static/"):
            return False
        if str(attributes.get("href", "")).lower().startswith(("javascript:", "//")):
            return False
    return True


async def test_markup_and_what_steers_terminals_and_readers_is_shown_inert(room: Room) -> None:
    assert not is_inert(MARKUP)  # the positive control
    url = "javascript:alert(1)"
    events = (started(title=f"{MARKUP}{STEERING}", url=url), *ran(f"{MARKUP}{STEERING}\n{SECRET}"))
    await room.ran(RUN, *events)
    browser = await room.operator()
    page, listed = (await browser.get(f"/runs/{RUN}")).text, (await browser.get("/")).text
    async with room.running("acme-calc-2-live") as worker, watching(browser, "acme-calc-2-live") as watch:
        await worker.write(*events)
        told = [(await watch.until("entries")).data["items"] for _ in range(3)]
    fragments = "".join(markup for items in told for markup in items.values())
    for html in (page, listed, fragments):
        assert is_inert(html)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\ufeff]", html)
        assert SECRET not in html
    assert "\u27e6U+202E\u27e7drowssap" in page  # seen, not obeyed


async def test_an_output_without_end_is_clipped_with_its_size(room: Room) -> None:
    for number, output in enumerate(("x" * 3_000_000, "line\n" * 400_000), start=1):
        await room.ran(f"acme-calc-{number}-x", started(), *ran(output))
        answer = await (await room.operator()).get(f"/runs/acme-calc-{number}-x")
        assert answer.status_code == 200
        assert len(answer.content) < 200_000
        assert "left out" in answer.text


async def test_a_log_that_is_damaged_shows_what_is_whole(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    log = room.data / "runs" / RUN / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4]) + b'{"seq": 4, "at": "never"}\n' + lines[5] + b"torn")
    answer = await (await room.operator()).get(f"/runs/{RUN}")
    assert (answer.status_code, 'id="e3' in answer.text, 'id="e5' in answer.text) == (200, True, False)


async def test_no_name_leads_out_of_the_runs(room: Room) -> None:
    browser = await room.operator()
    (room.data / "events.jsonl").write_text("{}\n")
    for run in ("%2e%2e", "..%2f..%2fetc%2fpasswd", "a%00b", "%0d%0ax", "-x", "x" * 3_000, "ä"):
        assert (run[:30], (await browser.get(f"/runs/{run}")).status_code) == (run[:30], 404)


async def test_every_answer_tells_browsers_what_they_may_do_with_it(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    browser, nobody = await room.operator(), room.browser()
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
    asked = await nobody.get(style)
    assert (asked.status_code, asked.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in asked.headers["cache-control"]
    assert (await nobody.get("/static/../login.py")).status_code == 404


async def test_a_form_without_end_is_not_read_to_its_end(room: Room) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"token=" + b"x" * 1_000

    answer = await room.browser().post("/login", content=endless())
    assert (answer.status_code, "Too much" in answer.text) == (413, True)
    for body in (b"\xff\xfe", b"&".join(b"a=1" for _ in range(100))):
        assert (await room.browser().post("/login", content=body)).status_code == 400


async def test_guesses_at_the_token_are_slowed_down(room: Room) -> None:
    browser = room.browser()
    answers = await asyncio.gather(*(browser.post("/login", data={"token": f"guess {n}"}) for n in range(30)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {401, 429}
    assert (await browser.post("/login", data={"token": OPERATOR})).status_code == 303


async def test_log_ins_that_are_begun_without_end_do_not_fill_the_store(room: Room) -> None:
    browser, operator = room.browser(), await room.operator()
    answers = await asyncio.gather(*(browser.get("/login/github") for _ in range(BEGUN_AT_ONCE + 30)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {303, 429}
    assert statuses.count(303) < BEGUN_AT_ONCE + 30
    assert (await operator.get("/")).status_code == 200


async def test_a_host_that_is_none_and_a_glance_at_a_stream_are_answered(room: Room) -> None:
    browser = await room.operator()
    for host in ("[", "a b", "[::1", "x" * 5_000, "evil.test"):
        answer = await browser.get("/", headers={"host": host})
        assert answer.status_code in (200, 400), host
        assert "evil.test" not in answer.text
    async with room.running("acme-calc-2-live") as worker:
        await worker.write(started())
        answer = await browser.head("/runs/acme-calc-2-live/events")
        assert (answer.status_code, answer.headers["content-type"][:17]) == (200, "text/event-stream")
