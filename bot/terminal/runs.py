"""Looking at runs that are on this disk or in the archive: nothing here starts a model or a sandbox."""

import argparse
import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from bot.observe.archive import Kept, kept_runs
from bot.terminal.lines import plain, print_json
from bot.terminal.listing import listed
from bot.terminal.naming import named
from resolver.domain import RunId
from resolver.errors import LogError, SettingsError, UsageError
from resolver.events import Decided, Event, Trajectory
from resolver.llm.model import FromModel, FromUser, Message
from resolver.replay import Replayed, messages_at, replay
from resolver.secrets import Secrets
from resolver.security.redact import redacted
from resolver.settings.settings import Settings
from runtime.frozen import Frozen

DIFFERS = 3
PAGE = "view.html"


class Reads(Protocol):
    """Where runs are found."""

    def read(self, run: RunId) -> Trajectory: ...


def looked(
    options: argparse.Namespace, settings: Settings, secrets: Secrets, environ: Mapping[str, str]
) -> int:
    """List, show, export or replay runs, free of these secrets; the exit code."""
    logs, directory = kept_runs(settings), settings.data / "runs"
    if options.command == "runs":
        listed(options, logs, directory, secrets, environ)
        return 0
    run = named(options.run, directory, logs.elsewhere)
    match options.command:
        case "view":
            viewed(run, options, logs, directory, secrets, has_browser=_has_browser(environ))
        case "export":
            exported(run, options, logs, secrets)
        case _:
            return replayed(run, options, logs)
    return 0


def viewed(
    run: RunId,
    options: argparse.Namespace,
    logs: Kept,
    directory: Path,
    secrets: Secrets,
    *,
    has_browser: bool,
) -> None:
    """Write a run as one HTML file, say where, and open it where a person sits at a terminal with a browser."""
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
    at_terminal = sys.stdout.isatty() and has_browser and not (options.json or options.out)
    wanted = at_terminal if options.open is None else options.open
    if wanted and not _opened(file) and options.open:
        print("There is no browser here: open the file yourself.", file=sys.stderr)


def write_page(run: RunId, trajectory: Trajectory, logs: Reads, file: Path, secrets: Secrets) -> None:
    """Write a run as one HTML file without these secrets, with the agents that it asked. Raises UsageError."""
    from resolver.viewer.viewer import view

    _write(file, view(run, trajectory, lambda delegate: _other(logs, delegate), secrets))


def exported(run: RunId, options: argparse.Namespace, logs: Kept, secrets: Secrets) -> None:
    """Write the events of a run, and after them those of its delegates, as JSON lines."""
    lines = _lines(run, logs.read(run), logs, secrets, set())
    if options.out:
        _write(Path(options.out), "".join(lines))
    else:
        sys.stdout.writelines(lines)


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


def _has_browser(environ: Mapping[str, str]) -> bool:
    """Whether a window can open: a browser of the terminal itself would take it over."""
    return sys.platform == "darwin" or any(
        environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )


def _opened(file: Path) -> bool:
    try:
        return webbrowser.open(file.resolve().as_uri())
    except webbrowser.Error:
        return False


class _Line(Frozen):
    """An entry, and whose."""

    run: str
    seq: int
    at: datetime
    event: Event


# --- the prompts of a run, again ----------------------------------------------------------------------------


def replayed(run: RunId, options: argparse.Namespace, logs: Kept) -> int:
    """Rebuild each prompt of a run; 0 when all are what was sent, else 3."""
    trajectory = logs.read(run)
    if options.step is not None:
        return _one(run, trajectory, options)
    steps = list(replay(trajectory))
    if options.json:
        print_json({"run": run, "steps": [{**dict(step), "same": step.same} for step in steps]})
    else:
        sys.stdout.writelines(f"{line}\n" for line in _table(run, steps))
    return 0 if all(step.same for step in steps) else DIFFERS


def _one(run: RunId, trajectory: Trajectory, options: argparse.Namespace) -> int:
    """What the model was sent in one step."""
    places = [at for at, event in enumerate(trajectory) if isinstance(event, Decided)]
    if not 0 < options.step <= len(places):
        raise SettingsError(f"{run} has {len(places)} steps: --step takes 1 to {len(places)}")
    messages = messages_at(trajectory, places[options.step - 1])
    if options.json:
        print_json({"run": run, "step": options.step, "messages": [_shown(each) for each in messages]})
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
    told = {0: "no prompt differs", 1: "1 prompt differs"}.get(differing, f"{differing} prompts differ")
    yield f"{run}: {count} steps rebuilt, {told} from what was sent"


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
