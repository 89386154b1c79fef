"""What operators read on standard error: one record a line, as text or JSON, each with the job that it is about."""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from bot.terminal.lines import plain
from resolver.secrets import MaskingFilter, Secrets
from resolver.settings.server import ServerSettings

OURS = ("bot", "demo", "resolver", "runtime")
MOST_TEXT = 4_000  # characters of one field of a JSON line; of a trace its end is kept
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_about: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)


@contextlib.contextmanager
def about(**fields: str) -> Iterator[None]:
    """What anybody logs in the block, a library too, and in tasks and threads begun there, carries these fields."""
    token = _about.set({**(_about.get() or {}), **fields})
    try:
        yield
    finally:
        _about.reset(token)


class About(logging.Filter):
    """Gives each record the fields of the blocks in which it was made; what its author said of them goes before."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_about.get() or {}).items():
            if name not in vars(record):
                setattr(record, name, value)
        return True


class LogLine(logging.Formatter):
    """One line of text a record: what happened, and its fields; a trace has lines of its own."""

    def __init__(self, *, dated: bool = False, timed: bool = False) -> None:
        """`dated`: it begins with date and time (UTC), and names the logger. `timed`: with the time of day alone."""
        super().__init__()
        self._dated = dated
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        fields = ", ".join(
            f"{name}: {'unknown' if value is None else value}" for name, value in _fields(record)
        )
        line = f"{record.levelname} {record.getMessage()}" + (f" ({fields})" if fields else "")
        if self._dated:
            line = f"{_time(record)} {record.name} {line}"
        elif self._timed:
            line = f"{datetime.fromtimestamp(record.created, UTC):%H:%M:%SZ} {line}"
        trace = f"\n{trace}" if (trace := _trace(self, record)) else ""
        return plain(" ".join(line.split()) + trace)


class JsonLine(logging.Formatter):
    """One JSON object a record, in ASCII; a field whose name is taken gets a `_` behind it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MOST_TEXT],
        }
        for name, value in _fields(record):
            line[f"{name}_" if name in line else name] = _value(value)
        if trace := _trace(self, record):
            line["exception"] = trace[-MOST_TEXT:]
        return json.dumps(line)


def listen(settings: ServerSettings, secrets: Secrets, *, terminal: bool) -> None:
    """From here on the process logs as a server does: by its settings, to a terminal or not, without these secrets."""
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not terminal)
    text = LogLine(dated=settings.log_format == "text", timed=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLine() if as_json else text)
        handler.addFilter(About())
        handler.addFilter(MaskingFilter(secrets))
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger().setLevel(
        max(level, logging.WARNING)
    )  # libraries tell foreign text when they tell more
    for ours in OURS:
        logging.getLogger(ours).setLevel(level)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in vars(record).items() if name not in _STANDARD)


def _value(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:MOST_TEXT]


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Of the error that was logged; `exc_text`: MaskingFilter has taken our secrets out of it."""
    return (record.exc_text or formatter.formatException(record.exc_info)) if record.exc_info else ""
