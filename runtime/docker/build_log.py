"""Explains failed builds: names the build, the reason from its log, and a fix if one is known."""

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_NETWORK_ERRORS = ("temporary failure", "could not resolve", "network is unreachable", "timed out")
MAX_LINES = 20_000  # number of lines at the end of a build's log that are kept
_CONTROL_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\S\n]*\r")
_REASONS = re.compile(
    r"error|fatal|failed|refused|not found|no such|cannot|unable|no space|\bE: ", re.IGNORECASE
)
# Lines that do not name the reason: the engine's closing message and pip's hints.
_NOISE = re.compile(
    r"returned a non-zero code|^\s*(File \"|Traceback|\^+$|raise |hint:|note:)|^Step \d|^ ---> "
)
_FIXES = (
    (
        re.compile(r"no apt-get|needs 3\.11|has Python"),
        "use a base image that has Python 3.11, bash and git, or pull debian:bookworm-slim, from which "
        "Patchwright can copy them",
    ),
    (
        re.compile(r"certificate.verify|self.signed|\[SSL", re.IGNORECASE),
        "set PATCHWRIGHT_CA_BUNDLE to the certificates of your network",
    ),
    (
        re.compile(
            r"name resolution|resolve|unreachable|timed out|no route|connection refused|Failed to fetch",
            re.IGNORECASE,
        ),
        "give builds access to a package index: check the engine's network, or set PATCHWRIGHT_PACKAGE_INDEX",
    ),
    (re.compile(r"no space left", re.IGNORECASE), "free disk space where the engine stores its images"),
)


def strip_control_sequences(line: str) -> str:
    """Remove colors and other control sequences for terminals from a line of a build log."""
    return _CONTROL_SEQUENCES.sub("", line).rstrip()


def read_build_output(log: Iterable[Mapping[str, object]], lines: list[str]) -> str | None:
    """Append the output of a build to `lines`. Return the error message if the build failed, otherwise None."""
    for entry in log:
        for line in str(entry.get("stream") or entry.get("error") or "").splitlines():
            if line := strip_control_sequences(line):
                del lines[:-MAX_LINES]
                lines.append(line)
        if "error" in entry:
            return str(entry["error"])
    return None


def explain_failure(description: str, lines: Sequence[str]) -> str:
    """Return a short explanation of a failed build. It contains the one or two log lines with the reason, and
    a fix if one is known.
    """
    messages = [strip_control_sequences(line) for line in lines]
    messages = [line.strip() for line in messages if line.strip() and not _NOISE.search(line)]
    reasons = [line for line in messages if _REASONS.search(line)][-2:] or messages[-1:]
    if len(reasons) == 2 and reasons[0].partition(": ")[2] in reasons[1]:
        del reasons[0]  # the engine's message repeats the line above it
    sentence = f"{description} cannot be built"
    if reasons:
        sentence += ": " + " / ".join(reason[:300] for reason in reasons)
    fix = next((fix for pattern, fix in _FIXES if any(map(pattern.search, reasons))), None)
    return f"{sentence}. To fix it, {fix}" if fix else sentence


def save_log(log_dir: Path | None, lines: Sequence[str]) -> str:
    """Save the log of a failed build. Return a phrase that contains the log's path, or "" if the log could
    not be saved.
    """
    if log_dir is None:
        return ""
    file = log_dir / f"build-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
    except OSError:
        return ""
    return f" (complete log: {file})"


def pull_error(image: str, reason: object) -> str:
    """Return the error message for a base image that cannot be pulled."""
    return (
        f"the base image {image} is not available and cannot be pulled ({reason}): load it, or choose another"
    )


def is_network_failure(lines: Sequence[str]) -> bool:
    """Return True if the log says that the network failed."""
    text = "\n".join(lines).lower()
    return any(message in text for message in _NETWORK_ERRORS)
