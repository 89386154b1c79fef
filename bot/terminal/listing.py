"""The runs of this disk and of the archive, as a list that fits the terminal."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from bot.errors import ArchiveDown
from bot.observe.archive import Kept
from bot.terminal.ink import Ink, cells, fit, ink_for, size_of
from bot.terminal.lines import plain, print_json
from resolver.cost import named
from resolver.domain import Delivered, RunId, VerdictKind
from resolver.errors import LogError, UsageError
from resolver.events import Trajectory
from resolver.forge import DRY
from resolver.secrets import Secrets
from resolver.security.redact import redacted
from resolver.summary import clip
from runtime.frozen import Frozen

NEWEST = 20  # runs that are listed unless all are asked for
ROOM = 24  # cells that a title wants, so that it does not go to a line of its own


State = Literal[
    "working",
    "delivered",
    "commented",
    "asked",
    "refused",
    "dry-run",
    "resumed",
    "ended",
    "stopped",
    "damaged",
]


class Listed(Frozen):
    """A run in a line."""

    run: str
    state: State
    """ended: without a forge. dry-run: shown, and written nowhere. resumed: it went on in another run's log.
    stopped: it can be continued."""
    repository: str = ""
    number: int | None = None
    title: str = ""
    verdict: str | None = None
    pull_request: str | None = None
    cost_usd: float | None = None
    cost_usd_at_least: float | None = None
    """Instead of it, where some price is not known. Both None: none is."""
    steps: int = 0
    changed: datetime
    """When something last happened in it; UTC."""


def listed(
    options: argparse.Namespace, logs: Kept, directory: Path, secrets: Secrets, environ: Mapping[str, str]
) -> None:
    """Print the runs on this disk and in the archive, the newest first, without those that others asked for.

    Raises UsageError for a state that there is not.
    """
    _check(options)
    held = set(_locked())
    known = [
        (datetime.fromtimestamp(stat.st_mtime, UTC), RunId(path.parent.name), stat.st_ino in held)
        for path in directory.glob("*/events.jsonl")
        for stat in (path.stat(),)
    ]
    try:
        known += [(at, run, False) for run, at in logs.elsewhere().items()]
    except ArchiveDown as exc:
        print(f"NOTICE: {plain(str(exc))}", file=sys.stderr)  # what is here can be listed all the same
    known.sort(reverse=True)
    jobs = (one for each in known if (one := _listed(*each, logs)) is not None and _is_wanted(one, options))
    found = [one for one, _ in zip(jobs, known if options.all else range(NEWEST), strict=False)]
    runs = [redacted(one, secrets) for one in found]
    if options.json:
        print_json({"directory": str(directory), "runs": [one.model_dump(mode="json") for one in runs]})
    elif not runs:
        asked = " that fit" if options.text or options.state or options.verdict else ""
        print(f"There are no runs{asked} below {directory}.")
    else:
        width = size_of(sys.stdout).columns - 1 if sys.stdout.isatty() else None
        for line in _lines(runs, width, ink_for(sys.stdout, environ)):
            print(line)


def _check(options: argparse.Namespace) -> None:
    for option, known in (("state", get_args(State)), ("verdict", get_args(VerdictKind))):
        given = getattr(options, option)
        if given and given not in known:
            raise UsageError(f"--{option} takes one of {', '.join(known)}, not `{given[:40]}`")


def _is_wanted(one: Listed, options: argparse.Namespace) -> bool:
    about = f"{one.run} {one.repository}#{one.number} {one.title}".casefold()
    return (
        (options.text or "").casefold() in about
        and options.state in (None, one.state)
        and options.verdict in (None, one.verdict)
    )


def _listed(changed: datetime, run: RunId, is_held: bool, logs: Kept) -> Listed | None:
    try:
        trajectory = logs.read(run)
    except LogError:
        return Listed(run=run, state="damaged", changed=changed)
    if trajectory.assigned:
        return None
    started, verdict, spent = trajectory.started, trajectory.verdict, trajectory.spent()
    cost = named("cost_usd", spent.cost)
    outcome = trajectory.settled.outcome if trajectory.settled else None
    verdict = getattr(outcome, "verdict", verdict)
    return Listed(
        run=run,
        state="working" if is_held else _state(trajectory),
        repository=str(started.job.repo) if started else "",
        number=started.thread.number if started else None,
        title=clip(started.thread.title, 200) if started else "",
        verdict=verdict.kind if verdict else None,
        pull_request=outcome.url if isinstance(outcome, Delivered) and outcome.url != DRY else None,
        cost_usd=cost.get("cost_usd"),
        cost_usd_at_least=cost.get("cost_usd_at_least"),
        steps=spent.steps,
        changed=changed,
    )


def _state(trajectory: Trajectory) -> State:
    if trajectory.settled:
        outcome = trajectory.settled.outcome
        return "dry-run" if getattr(outcome, "url", None) == DRY else outcome.kind
    if trajectory.resumed:
        return "resumed"
    return "ended" if trajectory.verdict else "stopped"


def _locked() -> Iterator[int]:
    """Inodes of the files that some process holds, where the system tells.

    To try the lock would be to hold it for a moment, in which a worker that wants it gives up.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if "FLOCK" in fields and len(fields) > 5 and fields[5].rpartition(":")[2].isdigit():
            yield int(fields[5].rpartition(":")[2])


def _lines(runs: list[Listed], width: int | None, ink: Ink) -> Iterator[str]:
    """A table; where it is wider than the terminal, what does not fit goes on below each run's name."""
    head = ("run", "state", "verdict", "cost", "age", "about")
    rows = [tuple(map(plain, _row(one))) for one in runs]
    widths = [max(map(cells, column)) for column in zip(head, *rows, strict=True)]
    if width is None or sum(widths[:-1]) + 2 * len(widths) - 2 <= width:
        yield ink.dim(_packed(head, widths, width)[0])
    for one, row in zip(runs, rows, strict=True):
        first, *more = _packed(row, widths, width)
        yield re.sub(rf"(?<=  ){one.state}(?= |$)", _inked(one.state, ink), first, count=1)
        yield from map(ink.dim, more)


def _packed(row: Iterable[str], widths: list[int], width: int | None) -> list[str]:
    """A row as lines of at most `width` cells, a run's name excepted: it is there to be copied."""
    *fixed, about = row
    lines = [""]
    for text, wide in zip(fixed, widths, strict=False):
        if width is not None and lines[-1] and cells(lines[-1]) + 2 + wide > width:
            lines.append("")
        lines[-1] += ("" if lines == [""] else "  ") + text.ljust(wide)
    room = 60 + ROOM if width is None else width - cells(lines[-1]) - 2
    if room < ROOM:
        lines.append("")
        room = max(0, (width or 0) - 2)
    lines[-1] += f"  {fit(about, room)}"
    return [line.rstrip() for line in lines if line.strip()]


def _row(one: Listed) -> tuple[str, ...]:
    about = f"{one.repository}#{one.number} {clip(one.title, 60)}" if one.repository else ""
    known = one.cost_usd if one.cost_usd is not None else one.cost_usd_at_least
    cost = "unknown" if known is None else f"{'at least ' if one.cost_usd is None else ''}${known:.2f}"
    age = _age((datetime.now(UTC) - one.changed).total_seconds())
    return (one.run, one.state, one.verdict or "", cost, age, about)


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _inked(state: State, ink: Ink) -> str:
    return {"delivered": ink.green, "damaged": ink.red, "working": ink.yellow, "asked": ink.yellow}.get(
        state, str
    )(state)
