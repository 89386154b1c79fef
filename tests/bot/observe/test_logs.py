"""What a server logs: each line can be read by a machine, says whose it is, and tells no secret."""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bot.desk import Desk, Mute
from bot.jobs import Again, Failed, Result
from bot.observe.logs import MOST_TEXT, LogLine, about, listen
from bot.redis.inbox import Inbox, Letter
from bot.webhooks.intake import Intake
from bot.webhooks.triggers import Triggers
from resolver.domain import Delivered, Spent, Verdict
from resolver.secrets import MaskingFilter, Secrets
from resolver.settings.server import ServerSettings
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, job

SECRET = "sk-secret-123456"


class Lines:
    """A process's standard error, and its loggers as they are for a server."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    made, root = Lines(), logging.getLogger()
    before = root.handlers[:], {name: logging.getLogger(name).level for name in (None, "bot", "library")}
    root.handlers[:] = [made.handler]
    yield made
    root.handlers[:] = before[0]
    for name, level in before[1].items():
        logging.getLogger(name).setLevel(level)


def server(*, terminal: bool = False, **settings: Any) -> None:
    listen(ServerSettings(**settings), Secrets([SECRET]), terminal=terminal)


async def test_whatever_is_logged_while_a_job_is_done_says_so(lines: Lines) -> None:
    from bot.work import _telling

    server()
    library = logging.getLogger("library")

    async def handler(job: object, tries: int) -> Any:
        library.warning("in the job")
        await asyncio.gather(beside(), asyncio.to_thread(library.warning, "in a thread"))
        return DONE

    async def beside() -> None:
        library.warning("in a task")

    one, other = job("one"), job("other")
    told = _telling(handler, None)
    await asyncio.gather(told(one, 1), told(other, 1))
    library.warning("outside")
    seen = [(line["message"], line.get("job")) for line in lines.read() if line["logger"] == "library"]
    inside = ("in the job", "in a task", "in a thread")
    assert sorted(seen[:-1]) == sorted((message, name) for message in inside for name in ("one", "other"))
    assert seen[-1] == ("outside", None)


URL = "https://github.test/acme/sample/pull/8"
MADE = Delivered(
    url=URL,
    number=8,
    branch="patchwright/issue-7",
    draft=False,
    verdict=Verdict(kind="fixed", reason="It is."),
)
UNDER_WAY = {"repo": "acme/sample", "number": 7, "job": "one"}
PAID = {"cost_usd": 0.25, "seconds": 4.8}


@pytest.mark.parametrize(
    ("result", "spent", "told"),
    [
        (MADE, Spent(usd=Decimal("0.25"), seconds=4.81), PAID | {"verdict": "fixed", "url": URL}),
        (DONE, Spent(unpriced=True), {"cost_usd": None, "seconds": 0.0}),
        (DONE, Spent(usd=Decimal("0.25"), unpriced=True), {"cost_usd_at_least": 0.25, "seconds": 0.0}),
        (Failed(error="no disk"), None, {}),
    ],
)
async def test_a_job_is_told_when_it_begins_and_what_it_came_to_and_cost(
    lines: Lines, result: Result, spent: Spent | None, told: dict[str, object]
) -> None:
    from bot.work import _telling

    server()

    async def handler(job: object, tries: int) -> Any:
        return result

    async def ended(job: object, result: object) -> Spent | None:
        return spent

    await _telling(handler, ended)(job("one"), 2)
    begun, end = (
        {key: line[key] for key in line.keys() - {"time", "level", "logger"}} for line in lines.read()
    )
    assert begun == UNDER_WAY | {"message": "job begun", "try": 2}
    assert end == UNDER_WAY | {"message": "job ended", "outcome": result.kind} | told


async def test_a_job_that_waits_for_another_try_or_another_worker_says_so(lines: Lines) -> None:
    from bot.work import _telling

    server(log_format="text")

    async def again(job: object, tries: int) -> Any:
        return Again(seconds=20)

    async def long(job: object, tries: int) -> Any:
        await asyncio.Event().wait()

    await _telling(again, None)(job("one"), 1)
    handling = asyncio.create_task(_telling(long, None)(job("two"), 1))
    await asyncio.sleep(0)
    handling.cancel()
    await asyncio.wait((handling,))
    told = [line.split(" ", 3)[3] for line in lines.text.splitlines()]
    assert told == [
        "job begun (repo: acme/sample, number: 7, try: 1, job: one)",
        "job put back (repo: acme/sample, number: 7, again_seconds: 20, job: one)",
        "job begun (repo: acme/sample, number: 7, try: 1, job: two)",
        "job put away (repo: acme/sample, number: 7, job: two)",
    ]


async def test_what_a_delivery_leads_to_names_it(lines: Lines) -> None:
    server()
    desk = Desk(InlineQueue(), Triggers(), Mute())
    intake = Intake(Inbox("redis://127.0.0.1:1"), desk, "reader")

    with about(delivery="outer"):
        await asyncio.gather(
            *(intake.deal_with(Letter(id="1-0", guid=guid, event="issues", body=b"{")) for guid in "ab")
        )
    assert sorted((line["delivery"], line["message"]) for line in lines.read()) == [
        ("a", "delivery unreadable"),
        ("b", "delivery unreadable"),
    ]


def test_a_line_has_time_level_logger_and_message_and_its_own_fields(lines: Lines) -> None:
    server()
    logging.getLogger("bot.worker").info(
        "job failed", extra={"job": "one", "try": 2, "time": 3, "path": Path("/x")}
    )
    (line,) = lines.read()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "bot.worker",
        "message": "job failed",
        "job": "one",
        "try": 2,
        "time_": 3,
        "path": "/x",
    }


def test_hostile_text_stays_one_short_line(lines: Lines) -> None:
    server()
    hostile = 'a\n{"level": "info"}\r\x1b[2J\u2028\u202e"' + "x" * 1_000_000
    logging.getLogger("bot").warning(
        "%s", hostile, extra={"reason": hostile, "share": float("nan"), "any": {1: "a"}}
    )
    assert len(lines.text.splitlines()) == 1 and lines.text.isascii() and len(lines.text) < 3 * MOST_TEXT
    (line,) = lines.read()
    assert (line["message"], line["share"], line["any"]) == (hostile[:MOST_TEXT], "nan", "{1: 'a'}")


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_is_told_wherever_it_stands(lines: Lines, form: str) -> None:
    server(log_format=form)
    try:
        raise ValueError(f"key {SECRET}")
    except ValueError as exc:
        logging.getLogger("bot").exception(
            "with %s", SECRET, extra={"error": exc, "all": [SECRET], "job": f"a-{SECRET}"}
        )
    assert SECRET not in lines.text
    assert lines.text.count("<secret-hidden>") >= 5
    assert "ValueError" in lines.text


def test_a_terminal_gets_text_and_everything_else_json(lines: Lines) -> None:
    server()
    logging.getLogger("bot").info("to a pipe")
    server(terminal=True)
    with about(job="one"):
        logging.getLogger("bot").info("to a\nterminal", extra={"cost_usd": None})
    piped, typed = lines.text.splitlines()
    assert json.loads(piped)["message"] == "to a pipe"
    time, rest = typed.split(" ", 1)
    assert (len(time), time[-1], rest) == (
        len("06:55:55Z"),
        "Z",
        "INFO to a terminal (cost_usd: unknown, job: one)",
    )


@pytest.mark.parametrize(
    ("level", "ours", "libraries"),
    [("debug", "diwe", "we"), ("info", "iwe", "we"), ("warning", "we", "we"), ("error", "e", "e")],
)
def test_the_level_is_set_and_libraries_never_tell_more_than_warnings(
    lines: Lines, level: str, ours: str, libraries: str
) -> None:
    server(log_level=level)
    for name in ("bot", "library"):
        for each in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), each)(name)
    assert "".join(line["level"][0] for line in lines.read() if line["logger"] == "bot") == ours
    assert "".join(line["level"][0] for line in lines.read() if line["logger"] == "library") == libraries


def test_a_log_line_tells_its_fields_and_no_secret() -> None:
    try:
        raise ValueError("key sk-secret-123456")
    except ValueError:
        record = logging.makeLogRecord(
            {"levelname": "WARNING", "msg": "model asked again", "error": "sk-secret-123456 is\nwrong", "try": 2,
             "exc_info": sys.exc_info()}
        )  # fmt: skip
    assert MaskingFilter(Secrets(["sk-secret-123456"])).filter(record)
    line = LogLine().format(record)
    first, *trace = line.splitlines()
    assert first.startswith("WARNING model asked again (")
    assert "try: 2" in first and "is wrong" in first
    assert trace[-1].startswith("ValueError: key ")
    assert "sk-secret" not in line
