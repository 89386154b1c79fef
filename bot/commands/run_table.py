"""Lists the runs on the local disk and in the archive, as a table that fits the terminal."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from patchwright.bot.errors import ArchiveDown
from patchwright.bot.observe.archive import StoredRuns
from patchwright.bot.run_summary import RunState, find_log_state, label_state, summarize_log
from patchwright.bot.terminal.output import print_json, strip_control_chars
from patchwright.bot.terminal.style import Style, detect_style, display_width, terminal_size, truncate
from patchwright.resolver.cost import cost_fields, round_usd
from patchwright.resolver.descriptions import label_verdict
from patchwright.resolver.domain import Rejected, RunId, VerdictKind
from patchwright.resolver.errors import LogError, UsageError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.masking import mask_model
from patchwright.resolver.secrets import Secrets
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.output_text import clip_line

DEFAULT_COUNT = 20  # The number of runs that are listed without --all.
# Minimum width of a title in cells. If there is less space, the title is on a line of its own.
MIN_TITLE_WIDTH = 24


ListedState = RunState | Literal["damaged"]
LISTED_STATES: tuple[str, ...] = (*get_args(RunState), "damaged")


class RunListEntry(FrozenModel):
    """One run in the list."""

    run: str
    state: ListedState
    """The state of the run. `damaged`: its log cannot be read."""
    repository: str = ""
    number: int | None = None
    """Number of the issue or pull request; None for a local repository."""
    title: str = ""
    note: str = ""
    """Why the run was rejected before it began, or which run the job continued."""
    verdict: str | None = None
    is_documentation_only: bool = False
    pull_request: str | None = None
    cost_usd: float | None = None
    cost_usd_at_least: float | None = None
    """A lower bound of the cost, for runs with an unknown price; `cost_usd` is then None. If no price is known, or if
    no model has replied, both fields are None.
    """
    steps: int = 0
    updated_at: datetime
    """Time of the run's last event, in UTC."""


def print_run_table(
    options: argparse.Namespace,
    logs: StoredRuns,
    directory: Path,
    secrets: Secrets,
    environ: Mapping[str, str],
) -> None:
    """Prints the runs on the local disk and in the archive, newest first. Leaves out the runs of subagents.

    Raises UsageError for an unknown state or verdict, and if the directory is a file.
    """
    _check_filters(options)
    if file := next((path for path in (directory, directory.parent) if path.is_file()), None):
        raise UsageError(f"{file} is a file, not a directory. Set PATCHWRIGHT_DATA to a directory.")
    locked = set(_locked_inodes())
    logs_by_time = [
        (datetime.fromtimestamp(stat.st_mtime, UTC), RunId(path.parent.name), stat.st_ino in locked)
        for path in directory.glob("*/events.jsonl")
        for stat in (path.stat(),)
    ]
    try:
        logs_by_time += [(updated_at, run, False) for run, updated_at in logs.list_archived_only().items()]
    except ArchiveDown as exc:  # The archive is not available, but the local runs can still be listed.
        print(f"NOTICE: {strip_control_chars(str(exc))}", file=sys.stderr)
    logs_by_time.sort(reverse=True)
    jobs = (
        entry
        for each in logs_by_time
        if (entry := _read_entry(*each, logs)) is not None and _matches_filters(entry, options)
    )
    selected = [
        entry for entry, _ in zip(jobs, logs_by_time if options.all else range(DEFAULT_COUNT), strict=False)
    ]
    runs = [mask_model(entry, secrets) for entry in selected]
    if options.json:
        print_json({"directory": str(directory), "runs": [entry.model_dump(mode="json") for entry in runs]})
    elif not runs:
        condition = " that match" if options.text or options.state or options.verdict else ""
        print(f"There are no runs{condition} in {directory}.")
    else:
        width = terminal_size(sys.stdout).columns - 1 if sys.stdout.isatty() else None
        for line in _table_lines(runs, width, detect_style(sys.stdout, environ)):
            print(line)


def _check_filters(options: argparse.Namespace) -> None:
    for option, allowed in (("state", LISTED_STATES), ("verdict", get_args(VerdictKind))):
        value = getattr(options, option)
        if value and value not in allowed:
            raise UsageError(f"--{option} must be one of {', '.join(allowed)}, not `{value[:40]}`")


def _matches_filters(entry: RunListEntry, options: argparse.Namespace) -> bool:
    searchable = f"{entry.run} {entry.repository}#{entry.number} {entry.title}".casefold()
    return (
        (options.text or "").casefold() in searchable
        and options.state in (None, entry.state)
        and options.verdict in (None, entry.verdict)
    )


def _read_entry(updated_at: datetime, run: RunId, is_locked: bool, logs: StoredRuns) -> RunListEntry | None:
    try:
        trajectory = logs.read(run)
    except LogError:
        return RunListEntry(run=run, state="damaged", updated_at=updated_at)
    if trajectory.subagent_started:
        return None
    if (started := trajectory.run_started) is None:
        state = "running" if is_locked else find_log_state(trajectory)
        return RunListEntry(run=run, state=state, note=_describe_unstarted(trajectory), updated_at=updated_at)
    summary = summarize_log(started.job, trajectory, is_running=is_locked)
    return RunListEntry(
        run=run,
        state=summary.state,
        repository=summary.repository,
        number=summary.number if started.thread.url else None,
        title=summary.title,
        verdict=summary.verdict or None,
        is_documentation_only=summary.is_documentation_only,
        pull_request=summary.url if summary.pull_request and summary.state != "dry-run" else None,
        **cost_fields("cost_usd", trajectory.usage().cost),
        steps=summary.steps,
        updated_at=updated_at,
    )


def _describe_unstarted(trajectory: Trajectory) -> str:
    """Describes a log without the start of a run, which would name the issue."""
    if trajectory.run_resumed:
        return f"continued {trajectory.run_resumed.run}"
    outcome = trajectory.job_completed.outcome if trajectory.job_completed else None
    return clip_line(outcome.explanation, 200) if isinstance(outcome, Rejected) else ""


def is_being_written(file: Path) -> bool:
    """Returns True if a process on this machine has locked this file, such as the log of a run."""
    return file.is_file() and file.stat().st_ino in _locked_inodes()


def _locked_inodes() -> Iterator[int]:
    """Yields the inodes of the files that are locked. Yields nothing if the operating system does not list
    locks.

    The function only reads the system's list. It does not test a file by locking it, because a worker that
    needs the lock at this moment would fail.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if "FLOCK" in fields and len(fields) > 5 and fields[5].rpartition(":")[2].isdigit():
            yield int(fields[5].rpartition(":")[2])


def _table_lines(runs: list[RunListEntry], width: int | None, style: Style) -> Iterator[str]:
    """Yields the lines of a table. If a column does not fit the width, it continues on a line below the name
    of the run.
    """
    head = ("run", "state", "verdict", "cost", "age", "about")
    rows = [tuple(map(strip_control_chars, _row(entry))) for entry in runs]
    widths = [max(map(display_width, column)) for column in zip(head, *rows, strict=True)]
    if width is None or sum(widths[:-1]) + 2 * len(widths) - 2 <= width:
        yield style.dim(_wrap_row(head, widths, width)[0])
    for entry, row in zip(runs, rows, strict=True):
        first, *more = _wrap_row(row, widths, width)
        state = rf"(?<=  ){label_state(entry.state)}(?= |$)"
        yield re.sub(state, _color_state(entry.state, style), first, count=1)
        yield from map(style.dim, more)


def _wrap_row(row: Iterable[str], widths: list[int], width: int | None) -> list[str]:
    """Splits a row into lines of at most `width` cells. Never splits the name of a run, so that people can
    copy it.
    """
    *fixed, about = row
    lines = [""]
    for text, wide in zip(fixed, widths, strict=False):
        if width is not None and lines[-1] and display_width(lines[-1]) + 2 + wide > width:
            lines.append("")
        lines[-1] += ("" if lines == [""] else "  ") + text.ljust(wide)
    room = 60 + MIN_TITLE_WIDTH if width is None else width - display_width(lines[-1]) - 2
    if room < MIN_TITLE_WIDTH:
        lines.append("")
        room = max(0, (width or 0) - 2)
    lines[-1] += f"  {truncate(about, room)}"
    return [line.rstrip() for line in lines if line.strip()]


def _row(entry: RunListEntry) -> tuple[str, ...]:
    number = f"#{entry.number}" if entry.number else ""
    about = f"{entry.repository}{number} {clip_line(entry.title, 60)}" if entry.repository else entry.note
    age = _age((datetime.now(UTC) - entry.updated_at).total_seconds())
    verdict = label_verdict(entry.verdict or "", documentation_only=entry.is_documentation_only)
    return (entry.run, label_state(entry.state), verdict, _cost_text(entry), age, about)


def _cost_text(entry: RunListEntry) -> str:
    """Returns the cost, rounded to cents if it is at least one cent. Returns "" before the model's first reply."""
    dollars = entry.cost_usd_at_least if entry.cost_usd is None else entry.cost_usd
    if dollars is None:
        return "unknown" if entry.steps else ""
    is_minimum = entry.cost_usd is None
    shown = f"${round_usd(dollars, 4 if 0 < dollars < 0.01 else 2, is_minimum=is_minimum)}"
    return f"at least {shown}" if is_minimum else shown


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _color_state(state: ListedState, style: Style) -> str:
    return {
        "published": style.green,
        "damaged": style.red,
        "failed": style.red,
        "running": style.yellow,
        "input_required": style.yellow,
    }.get(state, str)(label_state(state))
