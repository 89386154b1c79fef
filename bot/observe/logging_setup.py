"""Logging for operators. Each record is one line on standard error, as text or JSON. The fields of a record
identify the job.
"""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from patchwright.bot.terminal.output import strip_control_chars
from patchwright.resolver.secrets import MaskingFilter, Secrets
from patchwright.resolver.settings.server_settings import ServerSettings

OWN_LOGGER = "patchwright"
MAX_FIELD_LENGTH = 4_000  # maximum characters of one field in a JSON line; a longer traceback keeps its end
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_log_context: ContextVar[Mapping[str, str] | None] = ContextVar("log_context", default=None)


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Adds fields to all log records that are created in the block. These include the records of libraries, and
    of tasks that start in the block.
    """
    token = _log_context.set({**(_log_context.get() or {}), **fields})
    try:
        yield
    finally:
        _log_context.reset(token)


class ContextFilter(logging.Filter):
    """Adds the fields of the enclosing `log_context` blocks to each record. The record's own fields take
    precedence.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_log_context.get() or {}).items():
            if name not in vars(record):
                setattr(record, name, value)
        return True


class TextFormatter(logging.Formatter):
    """Formats a record as one line: the message and its fields, followed by a traceback."""

    def __init__(self, *, with_time: bool = False) -> None:
        """`with_time` adds the time (UTC) to each line."""
        super().__init__()
        self._with_time = with_time

    def format(self, record: logging.LogRecord) -> str:
        fields = ", ".join(
            f"{name}: {'unknown' if value is None else value}" for name, value in _extra_fields(record)
        )
        line = f"{record.levelname} {record.getMessage()}" + (f" ({fields})" if fields else "")
        if self._with_time:
            line = f"{datetime.fromtimestamp(record.created, UTC):%H:%M:%SZ} {line}"
        traceback = f"\n{traceback}" if (traceback := _format_traceback(self, record)) else ""
        return strip_control_chars(" ".join(line.split()) + traceback)


class JsonFormatter(logging.Formatter):
    """Formats a record as one ASCII JSON object. Appends `_` to the name of a field if that name is
    reserved.
    """

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_FIELD_LENGTH],
        }
        for name, value in _extra_fields(record):
            values[f"{name}_" if name in values else name] = _json_value(value)
        if traceback := _format_traceback(self, record):
            values["exception"] = traceback[-MAX_FIELD_LENGTH:]
        return json.dumps(values)


def configure_logging(settings: ServerSettings, secrets: Secrets, *, is_terminal: bool) -> None:
    """Configures the logging of a server process. Masks these secrets in every record."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(TextFormatter(with_time=True) if is_terminal else JsonFormatter())
        handler.addFilter(ContextFilter())
        handler.addFilter(MaskingFilter(secrets))
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    # Libraries may log untrusted text at lower levels.
    logging.getLogger().setLevel(max(level, logging.WARNING))
    logging.getLogger(OWN_LOGGER).setLevel(level)


def _extra_fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in vars(record).items() if name not in _STANDARD_FIELDS)


def _json_value(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:MAX_FIELD_LENGTH]


def _format_time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _format_traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Returns the record's traceback. Prefers `exc_text`, in which MaskingFilter has already masked secrets."""
    return (record.exc_text or formatter.formatException(record.exc_info)) if record.exc_info else ""
