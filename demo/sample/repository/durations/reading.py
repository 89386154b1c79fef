"""From text to seconds."""

import re

from durations.units import UNITS

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([dhms])")


def parse(text):
    """Return the seconds in a text such as ``1h 30m`` or ``2.5s``; raise ValueError for anything else."""
    seconds, position = 0.0, 0
    while position < len(text.rstrip()):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"not a duration: {text!r}")
        seconds += float(part[1]) * UNITS[part[2]]
        position = part.end()
    if position == 0:
        raise ValueError("not a duration: nothing to read")
    return seconds
