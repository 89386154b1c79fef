"""Cleans up text and reasoning blocks that providers send."""

import json
import re
from typing import Any

MAX_ERROR_LENGTH = 300  # characters of a provider's error message
_OBJECT_REPR = re.compile(r"( ssl:)?<[\w.]+ object at 0x[0-9a-f]+>")  # in aiohttp's error messages


def to_one_line(text: str) -> str:
    """Returns the text on one line, cut to MAX_ERROR_LENGTH characters and without object addresses."""
    line = " ".join(_OBJECT_REPR.sub("", text).split())
    return line if len(line) <= MAX_ERROR_LENGTH else line[:MAX_ERROR_LENGTH] + " ..."


def replace_surrogates(text: object) -> str:
    """Replaces unpaired surrogates, which JSON allows, so that the text can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def drop_unencodable(blocks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Returns the blocks unchanged, or no blocks if one of them cannot be encoded as UTF-8. Blocks are not
    repaired, because providers reject altered reasoning.
    """
    try:
        json.dumps(blocks, ensure_ascii=False).encode()
    except (UnicodeEncodeError, TypeError, ValueError):
        return ()
    return blocks
