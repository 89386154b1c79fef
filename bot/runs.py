"""Looking at runs that are on this disk or in the archive: nothing here starts a model or a sandbox."""

import argparse
import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from bot.archive import Kept, kept_runs
from bot.errors import ArchiveDown
from bot.terminal import plain, print_json
from resolver import wording
from resolver.domain import Delivered, JobId, RunId
from resolver.errors import LogError, SettingsError, UsageError
from resolver.events import Decided, Event, Trajectory
from resolver.llm.model import FromModel, FromUser, Message
from resolver.redact import redacted
from resolver.replay import Replayed, messages_at, replay
from resolver.secrets import Secrets
from resolver.settings import Settings
from resolver.summary import clip
from runtime.frozen import Frozen

DIFFERS = 3
PAGE = "view.html"
NEWEST = 20  # runs that are listed unless all are asked for


class Reads(Protocol):
    """Where runs are found."""

    def read(self, run: RunId) -> Trajectory: ...


def looked(options: argparse.Namespace, settings: Settings, secrets: Secrets) -> int:
    """Show, export or list runs, free of these secrets; always 0."""
    logs = kept_runs(settings)
    match options.command:
        case "view":
            viewed(options, logs, settings.data / "runs", secrets)
        case "export":
            exported(options, logs, secrets)
        case _:
            listed(options, logs, settings.data / "runs", secrets)
    return 0


def viewed(options: argparse.Namespace, logs: Kept, directory: Path, secrets: Secrets) -> None:
    """Write a run as one HTML file, and say where."""
    run = RunId(options.run)
    trajectory = logs.read(run)
    if trajectory.resumed:
        print(f"{run} went on in {trajectory.resumed.run}: view that for the work", file=sys.stderr)
    file = Path(options.out) if options.out else directory / run / PAGE
    if not options.out:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be in the archive alone
    write_page(run, trajectory, logs, file, secrets)
    if options.json:
        print_json({"run": run, "file": str(file)})
    else:
        print(file)
    if options.open and not _opened(file):
        print("There is no browser here: open the file yourself.", file=sys.stderr)


def write_page(run: RunId, trajectory: Trajectory, logs: Reads, file: Path, secrets: Secrets) -> None:
    """Write a run as one HTML file without these secrets, with the agents that it asked. Raises UsageError."""
    from resolver.viewer import view

    _write(file, view(run, trajectory, lambda delegate: _other(logs, delegate), secrets))


def exported(options: argparse.Namespace, logs: Kept, secrets: Secrets) -> None:
    """Write the events of a run, and after them those of its delegates, as JSON lines."""
    lines = _lines(RunId(options.run), logs.read(RunId(options.run)), logs, secrets, set())
    if options.out:
        _write(Path(options.out), "".join(lines))
        return
    try:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough; Python would complain again when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lines(run: RunId, trajectory: Trajectory, logs: Kept, secrets: Secrets, seen: set[str]) -> Iterator[str]:
    seen.add(run)
    for entry in trajectory.entries:
        yield (
            _Line(run=secrets.mask(run), **dict(redacted(entry, secrets))).model_dump_json(warnings=False)
            + "\n"
        )
    for asked, _ in trajectory.delegations():
        if asked.run not in seen and (other := _other(logs, asked.run)):
            yield from _lines(asked.run, other, logs, secrets, seen)


def _other(logs: Reads, run: RunId) -> Trajectory | None:
    try:
        return logs.read(run)
    except LogError:
        return None  # its report stands in the log of the run that asked it


def _write(file: Path, text: str) -> None:
    """All of it or nothing, for its owner alone: it holds private code. Raises UsageError."""
    part = file.parent / f".{file.name}.{os.getpid()}"
    try:
        if file.exists() and not file.is_file():
            file.write_text(
                text, encoding="utf-8", errors="replace"
            )  # a pipe or device is not to be replaced
            return
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
        part.replace(file)
    except OSError as exc:
        with suppress(OSError):
            part.unlink()
        raise UsageError(f"{file} cannot be written: {exc.strerror}. Name another file with --out.") from exc


def _opened(file: Path) -> bool:
    try:
        return webbrowser.open(file.resolve().as_uri())
    except webbrowser.Error:
        return False


State = Literal[
    "working", "delivered", "commented", "asked", "refused", "resumed", "ended", "stopped", "damaged"
]


class _Line(Frozen):
    """An entry, and whose."""

    run: str
    seq: int
    at: datetime
    event: Event


class Listed(Frozen):
    """A run in a line."""

    run: str
    state: State
    """ended: without a forge. resumed: it went on in another run's log. stopped: it can be continued."""
    repository: str = ""
    number: int | None = None
    title: str = ""
    verdict: str | None = None
    pull_request: str | None = None
    cost_usd: float | None = None
    """None: some price is not known."""
    steps: int = 0
    changed: datetime
    """When something last happened in it; UTC."""


def listed(options: argparse.Namespace, logs: Kept, directory: Path, secrets: Secrets) -> None:
    """Print the runs on this disk and in the archive, the newest first, without those that others asked for."""
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
    jobs = (one for each in known if (one := _listed(*each, logs)) is not None)
    runs = [
        redacted(one, secrets) for one, _ in zip(jobs, known if options.all else range(NEWEST), strict=False)
    ]
    if options.json:
        print_json({"directory": str(directory), "runs": [one.model_dump(mode="json") for one in runs]})
    elif not runs:
        print(f"There are no runs below {directory}.")
    else:
        for line in _columns(runs):
            print(plain(line))


def _listed(changed: datetime, run: RunId, is_held: bool, logs: Kept) -> Listed | None:
    try:
        trajectory = logs.read(run)
    except LogError:
        return Listed(run=run, state="damaged", changed=changed)
    if trajectory.assigned:
        return None
    started, verdict, spent = trajectory.started, trajectory.verdict, trajectory.spent()
    outcome = trajectory.settled.outcome if trajectory.settled else None
    verdict = getattr(outcome, "verdict", verdict)
    return Listed(
        run=run,
        state="working" if is_held else _state(trajectory),
        repository=str(started.job.repo) if started else "",
        number=started.thread.number if started else None,
        title=clip(started.thread.title, 200) if started else "",
        verdict=verdict.kind if verdict else None,
        pull_request=outcome.url if isinstance(outcome, Delivered) else None,
        cost_usd=None if spent.unpriced else float(spent.usd),
        steps=spent.steps,
        changed=changed,
    )


def _state(trajectory: Trajectory) -> State:
    if trajectory.settled:
        return trajectory.settled.outcome.kind
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


def _columns(runs: list[Listed]) -> Iterator[str]:
    now = datetime.now(UTC)
    rows = [("run", "state", "verdict", "cost", "age", "about")]
    for one in runs:
        about = f"{one.repository}#{one.number} {clip(one.title, 60)}" if one.repository else ""
        cost = "?" if one.cost_usd is None else f"${one.cost_usd:.2f}"
        age = wording.duration(max(0.0, (now - one.changed).total_seconds()))
        rows.append((one.run, one.state, one.verdict or "", cost, age, about))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


# --- the prompts of a run, again ----------------------------------------------------------------------------


def replayed(options: argparse.Namespace, settings: Settings) -> int:
    """Rebuild each prompt of a run; 0 when all are what was sent, else 3."""
    trajectory = kept_runs(settings).read(JobId(options.run))
    if options.step is not None:
        return _one(trajectory, options)
    steps = list(replay(trajectory))
    if options.json:
        print_json({"run": options.run, "steps": [{**dict(step), "same": step.same} for step in steps]})
    else:
        sys.stdout.writelines(f"{line}\n" for line in _table(options.run, steps))
    return 0 if all(step.same for step in steps) else DIFFERS


def _one(trajectory: Trajectory, options: argparse.Namespace) -> int:
    """What the model was sent in one step."""
    places = [at for at, event in enumerate(trajectory) if isinstance(event, Decided)]
    if not 0 < options.step <= len(places):
        raise SettingsError(f"{options.run} has {len(places)} steps: --step takes 1 to {len(places)}")
    messages = messages_at(trajectory, places[options.step - 1])
    if options.json:
        print_json(
            {"run": options.run, "step": options.step, "messages": [_shown(each) for each in messages]}
        )
    else:
        for message in messages:
            print(plain(f"--- {message.role}\n{_text(message)}"))
    return 0


def _table(run: str, steps: Iterable[Replayed]) -> Iterable[str]:
    yield "step  messages  characters  kept  prompt"
    count = differing = 0
    for step in steps:
        count += 1
        differing += not step.same
        told = "not recorded" if not step.sent else "as sent" if step.same else "DIFFERS"
        yield f"{step.number:4}  {step.messages:8}  {step.characters:10,}  {step.kept:4}  {told}"
    yield f"{run}: {count} steps rebuilt, {differing or 'none'} of them with another prompt than was sent"


def _shown(message: Message) -> dict[str, object]:
    if isinstance(message, FromUser):
        return {**message.model_dump(exclude={"pictures"}), "pictures": len(message.pictures)}
    return message.model_dump()


def _text(message: Message) -> str:
    if isinstance(message, FromModel):
        return "\n".join([message.text, *(f"[{call.name} {call.arguments}]" for call in message.calls)])
    if isinstance(message, FromUser) and message.pictures:
        return f"{message.text}\n[{len(message.pictures)} pictures]"
    return message.text
