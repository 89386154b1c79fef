"""From seconds to text."""

from durations.units import UNITS


def show(seconds):
    """Return a text such as ``1h 30m``, to the nearest second; raise ValueError below zero."""
    if seconds < 0:
        raise ValueError(f"a duration is never negative: {seconds!r}")
    parts = []
    rest = seconds
    for unit, size in UNITS.items():
        if unit == "s":
            count = round(rest)
        else:
            count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
    return " ".join(parts) or "0s"
