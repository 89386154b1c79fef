"""Parses the lists in GitHub's responses. An entry that cannot be parsed is left out, and the other entries are
still used.
"""

import logging
from typing import Annotated, TypeAlias, TypeVar

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_NAME_CHARS = 200  # maximum characters of an entry's name in the log


def drop_invalid_entries(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Validates a list. Logs and leaves out the entries that are invalid."""
    try:
        return validate(value)
    except ValidationError as exc:
        places = [error["loc"] for error in exc.errors(include_input=False, include_url=False)]
        invalid = {place[0]: place for place in places if place and isinstance(place[0], int)}
        if not isinstance(value, list) or not invalid:
            raise
        for index, place in invalid.items():
            entry = value[int(index)]
            extra = {"entry": _entry_name(entry), "field": ".".join(map(str, place[1:]))}
            log.warning("unreadable entry skipped", extra=extra)
        return validate([entry for index, entry in enumerate(value) if index not in invalid])


def _entry_name(entry: object) -> str:
    if not isinstance(entry, dict):
        return type(entry).__name__
    return str(entry.get("full_name") or entry.get("id") or "")[:MAX_NAME_CHARS]


ValidEntries: TypeAlias = Annotated[tuple[T, ...], WrapValidator(drop_invalid_entries)]
"""A list in a GitHub response. Parsing leaves out the entries that are invalid."""
