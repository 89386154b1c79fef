"""Commands that read runs from the local disk or the archive. They use no model and no sandbox."""

import argparse
import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from patchwright.bot.commands.run_table import is_being_written, print_run_table
from patchwright.bot.observe.archive import StoredRuns, open_stored_runs
from patchwright.bot.terminal.output import print_json, strip_control_chars
from patchwright.bot.terminal.run_ids import find_run
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError, SettingsError, UsageError
from patchwright.resolver.events import Event, ModelReply, Trajectory
from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, UserMessage
from patchwright.resolver.masking import mask_model
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.viewer.replay import ReplayedStep, messages_at, replay_run
from patchwright.runtime.frozen_model import FrozenModel

REPLAY_DIFFERS = 3
VIEW_FILE = "view.html"


class TrajectoryReader(Protocol):
    """Reads the logs of runs."""

    def read(self, run: RunId) -> Trajectory: ...


def run_inspect_command(
    options: argparse.Namespace, settings: Settings, secrets: Secrets, environ: Mapping[str, str]
) -> int:
    """Lists, views, exports or replays runs, and masks these secrets in the output. Returns the exit code."""
    logs, directory = open_stored_runs(settings), settings.data / "runs"
    if options.command == "runs":
        print_run_table(options, logs, directory, secrets, environ)
        return 0
    run = find_run(options.run, directory, logs.list_archived_only)
    match options.command:
        case "view":
            view_run(run, options, logs, directory, secrets, has_browser=_has_browser(environ))
        case "export":
            export_run(run, options, logs, secrets)
        case _:
            return replay_saved_run(run, options, logs)
    return 0


def view_run(
    run: RunId,
    options: argparse.Namespace,
    logs: StoredRuns,
    directory: Path,
    secrets: Secrets,
    *,
    has_browser: bool,
) -> None:
    """Writes a run as an HTML file, and prints the path of that file. Opens the file if a browser is
    available.
    """
    trajectory = logs.read(run)
    if trajectory.run_resumed:
        print(
            f"{run} was resumed in {trajectory.run_resumed.run}: view that run for the rest", file=sys.stderr
        )
    file = Path(options.out) if options.out else directory / run / VIEW_FILE
    if not options.out:
        # The directory does not exist if the run is only in the archive.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_over = not is_being_written(directory / run / "events.jsonl")
    write_view(run, trajectory, logs, file, secrets, is_over=is_over)
    if options.json:
        print_json({"run": run, "file": str(file)})
    else:
        print(file)
    at_terminal = sys.stdout.isatty() and has_browser and not (options.json or options.out)
    should_open = at_terminal if options.open is None else options.open
    if should_open and not _open_in_browser(file) and options.open:
        print("No browser found. Open the file yourself.", file=sys.stderr)


def write_view(
    run: RunId,
    trajectory: Trajectory,
    logs: TrajectoryReader,
    file: Path,
    secrets: Secrets,
    *,
    is_over: bool = True,
) -> None:
    """Writes a run and its subagents as an HTML file. Masks these secrets in the file. `is_over` means that no
    process works on the run.

    Raises UsageError if the file cannot be written.
    """
    from patchwright.resolver.viewer.run_html import render_run_html

    def read_run(subagent: RunId) -> Trajectory | None:
        return _read_subagent_log(logs, subagent)

    _write_atomically(file, render_run_html(run, trajectory, read_run, secrets, is_over=is_over))


def export_run(run: RunId, options: argparse.Namespace, logs: StoredRuns, secrets: Secrets) -> None:
    """Writes the events of a run, and then the events of its subagents, as JSON lines."""
    lines = _export_lines(run, logs.read(run), logs, secrets, set())
    if options.out:
        _write_atomically(Path(options.out), "".join(lines))
    else:
        sys.stdout.writelines(lines)


def _export_lines(
    run: RunId, trajectory: Trajectory, logs: StoredRuns, secrets: Secrets, exported: set[str]
) -> Iterator[str]:
    exported.add(run)
    for entry in trajectory.entries:
        yield (
            _ExportedEntry(run=secrets.mask(run), **dict(mask_model(entry, secrets))).model_dump_json(
                warnings=False
            )
            + "\n"
        )
    for subagent, _ in trajectory.subagents():
        if subagent.run not in exported and (subagent_log := _read_subagent_log(logs, subagent.run)):
            yield from _export_lines(subagent.run, subagent_log, logs, secrets, exported)


def _read_subagent_log(logs: TrajectoryReader, run: RunId) -> Trajectory | None:
    try:
        return logs.read(run)
    except LogError:
        return None  # The log of the parent still contains the subagent's result.


def _write_atomically(file: Path, text: str) -> None:
    """Writes the complete file or leaves the old one unchanged. Only the owner can read the file. Raises
    UsageError if writing fails.
    """
    temporary = file.parent / f".{file.name}.{os.getpid()}"
    try:
        if file.exists() and not file.is_file():  # A regular file must not replace a pipe or a device.
            file.write_text(text, encoding="utf-8", errors="replace")
            return
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
        temporary.replace(file)
    except OSError as exc:
        with suppress(OSError):
            temporary.unlink()
        raise UsageError(f"Cannot write {file}: {exc.strerror}. Choose another file with --out.") from exc


def _has_browser(environ: Mapping[str, str]) -> bool:
    """Returns True if a graphical browser is available. A text browser does not count, because it would take
    over the terminal.
    """
    return any(environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def _open_in_browser(file: Path) -> bool:
    try:
        return webbrowser.open(file.resolve().as_uri())
    except webbrowser.Error:
        return False


class _ExportedEntry(FrozenModel):
    """A log entry, with the name of the run whose log contains it."""

    run: str
    seq: int
    timestamp: datetime
    event: Event


# --- replay -------------------------------------------------------------------------------------------------


def replay_saved_run(run: RunId, options: argparse.Namespace, logs: StoredRuns) -> int:
    """Rebuilds each prompt of a run, and compares it with the prompt that was sent. Returns 0 if all are
    identical, otherwise 3.
    """
    trajectory = logs.read(run)
    if options.step is not None:
        return _print_step(run, trajectory, options)
    steps = list(replay_run(trajectory))
    if options.json:
        print_json({"run": run, "steps": [{**dict(step), "identical": step.is_identical} for step in steps]})
    else:
        sys.stdout.writelines(f"{line}\n" for line in _replay_table(run, steps))
    return 0 if all(step.is_identical for step in steps) else REPLAY_DIFFERS


def _print_step(run: RunId, trajectory: Trajectory, options: argparse.Namespace) -> int:
    """Prints the prompt that the model received in one step."""
    positions = [position for position, event in enumerate(trajectory) if isinstance(event, ModelReply)]
    if not 0 < options.step <= len(positions):
        raise SettingsError(f"{run} has {len(positions)} steps: use --step 1 to {len(positions)}")
    messages = messages_at(trajectory, positions[options.step - 1])
    if options.json:
        print_json({"run": run, "step": options.step, "messages": [_message_json(each) for each in messages]})
    else:
        for message in messages:
            print(strip_control_chars(f"--- {message.role}\n{_message_text(message)}"))
    return 0


def _replay_table(run: str, steps: Iterable[ReplayedStep]) -> Iterable[str]:
    yield "step  messages  characters  cached  prompt"
    count = differing = 0
    for step in steps:
        count += 1
        differing += not step.is_identical
        comparison = (
            "not recorded" if not step.sent_fingerprint else "as sent" if step.is_identical else "DIFFERS"
        )
        yield f"{step.number:4}  {step.messages:8}  {step.characters:10,}  {step.cached_messages:6}  {comparison}"
    comparison = {0: "no prompt differs", 1: "1 prompt differs"}.get(differing, f"{differing} prompts differ")
    yield f"{run}: {count} steps rebuilt, {comparison} from the prompt that was sent"


def _message_json(message: ChatMessage) -> dict[str, object]:
    if isinstance(message, UserMessage):
        return {**message.model_dump(exclude={"images"}), "images": len(message.images)}
    return message.model_dump()


def _message_text(message: ChatMessage) -> str:
    if isinstance(message, AssistantMessage):
        return "\n".join([message.text, *(f"[{call.name} {call.arguments}]" for call in message.tool_calls)])
    if isinstance(message, UserMessage) and message.images:
        return f"{message.text}\n[{len(message.images)} images]"
    return message.text
