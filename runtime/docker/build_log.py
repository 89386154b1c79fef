"""What a build that failed is told as: what failed, why in its own words, and how to mend it where that is known."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

MOST_LINES = 20_000  # of a build, the last ones
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\S\n]*\r")
_REASONS = re.compile(
    r"error|fatal|failed|refused|not found|no such|cannot|unable|no space|\bE: ", re.IGNORECASE
)
# The engine's own last word, and pip's advice, say nothing about the reason.
_NOISE = re.compile(
    r"returned a non-zero code|^\s*(File \"|Traceback|\^+$|raise |hint:|note:)|^Step \d|^ ---> "
)
_MENDS = (
    (
        re.compile(r"no apt-get|needs 3\.11|has Python"),
        "take a base image with Python 3.11, bash and git, or load debian:bookworm-slim beside it",
    ),
    (
        re.compile(r"certificate.verify|self.signed|\[SSL", re.IGNORECASE),
        "name the certificates of your network in PATCHWRIGHT_CA_BUNDLE",
    ),
    (
        re.compile(
            r"name resolution|resolve|unreachable|timed out|no route|connection refused|Failed to fetch",
            re.IGNORECASE,
        ),
        "builds reach no package index: check the engine's network, or name yours in PATCHWRIGHT_PACKAGE_INDEX",
    ),
    (re.compile(r"no space left", re.IGNORECASE), "free space where the engine keeps its images"),
)


def plain(line: str) -> str:
    """A line of a build's log without colours and what a terminal does with it."""
    return _COLOURS.sub("", line).rstrip()


def follow(log: Iterable[Mapping[str, object]], lines: list[str], tell: Callable[[str], None]) -> str | None:
    """Add what a build says to these lines while it goes on, and tell each; why it failed, when it did."""
    for part in log:
        for line in str(part.get("stream") or part.get("error") or "").splitlines():
            if line := plain(line):
                del lines[:-MOST_LINES]
                lines.append(line)
                tell(line)
        if "error" in part:
            return str(part["error"])
    return None


def explain(what: str, lines: Sequence[str]) -> str:
    """One sentence, the one or two lines that say why, and the mend if the lines give it away."""
    told = [plain(line) for line in lines]
    told = [line.strip() for line in told if line.strip() and not _NOISE.search(line)]
    reasons = [line for line in told if _REASONS.search(line)][-2:] or told[-1:]
    if len(reasons) == 2 and reasons[0].partition(": ")[2] in reasons[1]:
        del reasons[0]  # the same, once more wrapped
    sentence = f"{what} cannot be built"
    if reasons:
        sentence += ": " + " / ".join(reason[:300] for reason in reasons)
    mend = next((mend for pattern, mend in _MENDS if any(map(pattern.search, reasons))), None)
    return f"{sentence}. Mend: {mend}" if mend else sentence


def keep(logs: Path | None, lines: Sequence[str]) -> str:
    """Write the log of a build that failed into a directory; the words that say where."""
    if logs is None:
        return ""
    file = logs / f"build-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
    except OSError:
        return ""
    return f" (the whole log: {file})"
