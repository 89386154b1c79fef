"""Small parts of what people read: foreign text that does nothing, money, durations and sizes. Pure."""

import re
from collections import Counter
from collections.abc import Iterable
from decimal import ROUND_FLOOR, Decimal

from resolver.cost import AtLeast, known
from resolver.domain import Result, Spent, Verdict
from resolver.summary import clip

_ZERO_WIDTH = "\u200b"
_LIVE = re.compile(r"@(?=\w)|<(?=[\w/!?])|!(?=\[)|#(?=\d)|\bGH-(?=\d)")
_CLOSING = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?=:?\s+(?:#|GH-|https?://|[\w.-]+/))", re.I
)


def quiet(text: str) -> str:
    """Text of a model or a stranger that mentions nobody, closes nothing and loads nothing when shown.

    A zero-width space is put after what would make it live (`@name`, `#12`, `<tag`, `![`, a closing keyword):
    it works inside and outside of code alike, where escapes would show.
    """
    return _CLOSING.sub(
        lambda word: word[0] + _ZERO_WIDTH, _LIVE.sub(lambda mark: mark[0] + _ZERO_WIDTH, text)
    )


_SAID = re.compile(
    r"(?P<code>`[^`]*`)"
    r"|(?<![\w./*~+-])(?P<name>[\w./*~+-]*[*_](?:[\w./*~+-]*[\w*/~+-])?)"
    r"|(?P<mark>[`~<])"
)


def literal(text: str) -> str:
    """A sentence of the program's, quiet, in which `__init__.py` and `*.lock` are read as they are written: as code."""
    return _SAID.sub(_as_written, quiet(text))


def _as_written(found: re.Match[str]) -> str:
    if found["name"]:
        return f"`{found['name']}`"
    return found["code"] or f"\\{found['mark']}"


def fenced(text: str, language: str = "") -> str:
    """A code block that nothing in the text can end."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def coded(text: str) -> str:
    """One line of code that nothing in the text can end."""
    return f"`{clip(text).replace('`', chr(39))}`"


def money(spent: Spent) -> str:
    """What a run cost, in words that are true when a price is unknown."""
    if spent.cost is None:
        return "cost unknown (no price is known for this model)"
    return dollars(spent.cost)


def dollars(cost: Decimal | AtLeast) -> str:
    """`$0.1234`, `$1.23`; `at least $0.1234` where some price is not known."""
    usd = known(cost)
    places = Decimal("0.0001") if usd < 1 else Decimal("0.01")
    if isinstance(cost, AtLeast):  # rounded up, it would say too much
        return f"at least ${usd.quantize(places, ROUND_FLOOR)}"
    return f"${usd.quantize(places)}"


def tally(results: Iterable[Result]) -> str:
    """How so many tests did: `3 failed, 1 passed`; the bad news first."""
    counts = Counter(results)
    words: dict[Result, str] = {
        "failed": "failed",
        "error": "with errors",
        "skipped": "skipped",
        "passed": "passed",
    }
    return ", ".join(f"{counts[result]} {word}" for result, word in words.items() if counts[result])


def brought(verdict: Verdict) -> str:
    """What each test is that `on_old_code` tells of: `new test`, or `new or changed test` where one was there."""
    known = verdict.before.results if verdict.before else {}
    return "new or changed test" if known.keys() & verdict.on_old_code.keys() else "new test"


def duration(seconds: float) -> str:
    """Seconds for a reader: `42 s`, `3 min 20 s`, `1 h 5 min`, `2 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 10 else f"{seconds:.1f} s"
    if whole < 3600:
        return _in_two(whole // 60, "min", whole % 60, "s")
    return _in_two(whole // 3600, "h", whole % 3600 // 60, "min")


def _in_two(large: int, unit: str, small: int, part: str) -> str:
    return f"{large} {unit} {small} {part}" if small else f"{large} {unit}"


def size(count: int) -> str:
    """Bytes for a reader: `512 B`, `12 kB`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 999_500 else f"{count / 1e6:.1f} MB"
