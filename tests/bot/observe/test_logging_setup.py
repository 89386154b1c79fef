"""The log of a server: one machine-readable record per line, with its job and without secrets."""

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

from patchwright.bot.jobs import Failed, JobResult, Retry
from patchwright.bot.observe.logging_setup import (
    MAX_FIELD_LENGTH,
    TextFormatter,
    configure_logging,
    log_context,
)
from patchwright.bot.redis.delivery_inbox import DeliveryInbox, StoredDelivery
from patchwright.bot.thread_forge import NullForge
from patchwright.bot.triggers.delivery_processor import DeliveryProcessor
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.domain import Published, Usage, Verdict
from patchwright.resolver.secrets import MaskingFilter, Secrets
from patchwright.resolver.settings.server_settings import ServerSettings
from tests.bot.deliveries import LABELED, signed
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, job
from tests.bot.local_services import local_handler

SECRET = "sk-secret-123456"


class LogCapture:
    """The standard error stream of a process with a server's logging configuration."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def capture() -> Iterator[LogCapture]:
    log_capture, root = LogCapture(), logging.getLogger()
    before = (
        root.handlers[:],
        {name: logging.getLogger(name).level for name in (None, "patchwright", "library")},
    )
    root.handlers[:] = [log_capture.handler]
    yield log_capture
    root.handlers[:] = before[0]
    for name, level in before[1].items():
        logging.getLogger(name).setLevel(level)


def configure(*, terminal: bool = False, **settings: Any) -> None:
    configure_logging(ServerSettings(**settings), Secrets([SECRET]), is_terminal=terminal)


async def test_records_logged_during_a_job_name_the_job(capture: LogCapture) -> None:
    from patchwright.bot.worker.worker_process import _with_result_logging

    configure()
    library = logging.getLogger("library")

    async def handler(job: object, tries: int) -> Any:
        library.warning("in the job")
        await asyncio.gather(beside(), asyncio.to_thread(library.warning, "in a thread"))
        return DONE

    async def beside() -> None:
        library.warning("in a task")

    one, other = job("one"), job("other")
    logged_handler = _with_result_logging(handler, None)
    await asyncio.gather(logged_handler(one, 1), logged_handler(other, 1))
    library.warning("outside")
    records = [(line["message"], line.get("job")) for line in capture.read() if line["logger"] == "library"]
    inside = ("in the job", "in a task", "in a thread")
    assert sorted(records[:-1]) == sorted((message, name) for message in inside for name in ("one", "other"))
    assert records[-1] == ("outside", None)


URL = "https://github.test/acme/sample/pull/8"
PUBLISHED = Published(
    url=URL,
    number=8,
    branch="patchwright/issue-7",
    draft=False,
    verdict=Verdict(kind="fixed", reason="It is."),
)
JOB_FIELDS = {"repo": "acme/sample", "number": 7, "job": "one"}
COST_FIELDS = {"cost_usd": 0.25, "seconds": 4.8}


@pytest.mark.parametrize(
    ("result", "usage", "expected"),
    [
        (PUBLISHED, Usage(usd=Decimal("0.25"), seconds=4.81), COST_FIELDS | {"verdict": "fixed", "url": URL}),
        (DONE, Usage(unpriced=True), {"cost_usd": None, "seconds": 0.0}),
        (DONE, Usage(usd=Decimal("0.25"), unpriced=True), {"cost_usd_at_least": 0.25, "seconds": 0.0}),
        (Failed(error="no disk"), None, {}),
    ],
)
async def test_a_job_logs_its_start_outcome_and_cost(
    capture: LogCapture, result: JobResult, usage: Usage | None, expected: dict[str, object]
) -> None:
    from patchwright.bot.worker.worker_process import _with_result_logging

    configure()

    async def handler(job: object, tries: int) -> Any:
        return result

    async def ended(job: object, result: object) -> Usage | None:
        return usage

    await _with_result_logging(handler, ended)(job("one"), 2)
    start, end = (
        {key: line[key] for key in line.keys() - {"time", "level", "logger"}} for line in capture.read()
    )
    assert start == JOB_FIELDS | {"message": "job started", "try": 2}
    assert end == JOB_FIELDS | {"message": "job completed", "outcome": result.kind} | expected


async def test_a_requeued_or_suspended_job_is_logged(capture: LogCapture) -> None:
    from patchwright.bot.worker.worker_process import _with_result_logging

    configure(terminal=True)

    async def retry_handler(job: object, tries: int) -> Any:
        return Retry(delay_seconds=20)

    async def endless_handler(job: object, tries: int) -> Any:
        await asyncio.Event().wait()

    await _with_result_logging(retry_handler, None)(job("one"), 1)
    handling = asyncio.create_task(_with_result_logging(endless_handler, None)(job("two"), 1))
    await asyncio.sleep(0)
    handling.cancel()
    await asyncio.wait((handling,))
    messages = [line.split(" ", 2)[2] for line in capture.text.splitlines()]
    assert messages == [
        "job started (repo: acme/sample, number: 7, try: 1, job: one)",
        "job requeued (repo: acme/sample, number: 7, retry_seconds: 20, job: one)",
        "job started (repo: acme/sample, number: 7, try: 1, job: two)",
        "job suspended (repo: acme/sample, number: 7, job: two)",
    ]


async def test_records_of_a_delivery_name_the_delivery(capture: LogCapture) -> None:
    configure()
    handler = local_handler(InlineQueue(), Triggers(), NullForge())
    processor = DeliveryProcessor(DeliveryInbox("redis://127.0.0.1:1"), handler, "reader")

    with log_context(delivery="outer"):
        await asyncio.gather(
            *(
                processor.process(StoredDelivery(entry_id="1-0", guid=guid, event="issues", body=body))
                for guid, body in (("a", b"[]"), ("b", b"[]"), ("c", signed("issues", LABELED)[1]))
            )
        )
    lines = sorted(capture.read(), key=lambda line: str(line["delivery"]))
    assert [(line["delivery"], line["message"]) for line in lines] == [
        ("a", "delivery unreadable"),
        ("b", "delivery unreadable"),
        ("c", "permission check failed"),
        ("c", "job queued"),
    ]
    assert str(lines[0]["reason"]).startswith("the payload: ") and lines[0]["reason"] == lines[1]["reason"]
    assert str(lines[3]["job"]).startswith("acme-sample-7-")


def test_a_line_has_time_level_logger_and_message_and_its_own_fields(capture: LogCapture) -> None:
    configure()
    logging.getLogger("patchwright.bot.job_runner").info(
        "job failed", extra={"job": "one", "try": 2, "time": 3, "path": Path("/x")}
    )
    (line,) = capture.read()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "patchwright.bot.job_runner",
        "message": "job failed",
        "job": "one",
        "try": 2,
        "time_": 3,
        "path": "/x",
    }


@pytest.mark.slow
def test_hostile_text_stays_one_short_line(capture: LogCapture) -> None:
    configure()
    hostile = 'a\n{"level": "info"}\r\x1b[2J\u2028\u202e"' + "x" * 1_000_000
    logging.getLogger("patchwright.bot").warning(
        "%s", hostile, extra={"reason": hostile, "share": float("nan"), "any": {1: "a"}}
    )
    assert (
        len(capture.text.splitlines()) == 1
        and capture.text.isascii()
        and len(capture.text) < 3 * MAX_FIELD_LENGTH
    )
    (line,) = capture.read()
    assert (line["message"], line["share"], line["any"]) == (hostile[:MAX_FIELD_LENGTH], "nan", "{1: 'a'}")


@pytest.mark.parametrize("terminal", [False, True])
def test_secrets_are_masked_everywhere_in_a_record(capture: LogCapture, terminal: bool) -> None:
    configure(terminal=terminal)
    try:
        raise ValueError(f"key {SECRET}")
    except ValueError as exc:
        logging.getLogger("patchwright.bot").exception(
            "with %s", SECRET, extra={"error": exc, "all": [SECRET], "job": f"a-{SECRET}"}
        )
    assert SECRET not in capture.text
    assert capture.text.count("<secret-hidden>") >= 5
    assert "ValueError" in capture.text


def test_a_terminal_gets_text_and_everything_else_json(capture: LogCapture) -> None:
    configure()
    logging.getLogger("patchwright.bot").info("to a pipe")
    configure(terminal=True)
    with log_context(job="one"):
        logging.getLogger("patchwright.bot").info("to a\nterminal", extra={"cost_usd": None})
    piped, typed = capture.text.splitlines()
    assert json.loads(piped)["message"] == "to a pipe"
    time, rest = typed.split(" ", 1)
    assert (len(time), time[-1], rest) == (
        len("06:55:55Z"),
        "Z",
        "INFO to a terminal (cost_usd: unknown, job: one)",
    )


@pytest.mark.parametrize(
    ("level", "own", "libraries"),
    [("debug", "diwe", "we"), ("info", "iwe", "we"), ("warning", "we", "we"), ("error", "e", "e")],
)
def test_the_level_applies_and_libraries_log_warnings_at_most(
    capture: LogCapture, level: str, own: str, libraries: str
) -> None:
    configure(log_level=level)
    for name in ("patchwright.bot", "library"):
        for each in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), each)(name)
    assert "".join(line["level"][0] for line in capture.read() if line["logger"] == "patchwright.bot") == own
    assert "".join(line["level"][0] for line in capture.read() if line["logger"] == "library") == libraries


def test_a_text_record_has_its_fields_and_no_secret() -> None:
    try:
        raise ValueError("key sk-secret-123456")
    except ValueError:
        record = logging.makeLogRecord(
            {"levelname": "WARNING", "msg": "model request retried", "error": "sk-secret-123456 is\nwrong", "try": 2,
             "exc_info": sys.exc_info()}
        )  # fmt: skip
    assert MaskingFilter(Secrets(["sk-secret-123456"])).filter(record)
    line = TextFormatter().format(record)
    first, *trace = line.splitlines()
    assert first.startswith("WARNING model request retried (")
    assert "try: 2" in first and "is wrong" in first
    assert trace[-1].startswith("ValueError: key ")
    assert "sk-secret" not in line
