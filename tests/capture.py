"""A run made into a fixture: `script/capture RUN NAME`. What went wrong once is a test from then on."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from patchwright.bot.composition import composition_root
from patchwright.bot.credentials import collect_secrets
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError, SettingsError
from patchwright.resolver.events import Entry, ModelReply, SystemPrompt, Trajectory
from patchwright.resolver.llm.prompt_fingerprint import fingerprint
from patchwright.resolver.masking import mask_trajectory
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.viewer.replay import messages_at, replay_run

CAPTURED = Path(__file__).parent / "golden" / "captured"


def capture(logs: FileLogStore, run: RunId, place: Path, secrets: Secrets) -> tuple[Path, ...]:
    """Writes the run and its subagents' runs below `place`, and returns the written files.

    Masks these secrets, and stores the fingerprints of the prompts. Raises LogError if the run does not exist, or if
    this version builds its prompts differently, because such a fixture could not detect a change.
    """
    trajectory = logs.read(run)
    place.mkdir(parents=True)
    written = [_write(trajectory, place / "events.jsonl", run, secrets)]
    for request, _ in trajectory.subagents():
        name = request.run.removeprefix(f"{run}-")
        written.append(_write(logs.read(request.run), place / f"{name}.jsonl", request.run, secrets))
    return tuple(written)


def _write(trajectory: Trajectory, file: Path, run: RunId, secrets: Secrets) -> Path:
    if other := [step.number for step in replay_run(trajectory) if not step.is_identical]:
        raise LogError(f"Step {other[0]} of {run} was sent another prompt than this version builds.")
    lines = (entry.model_dump_json() + "\n" for entry in _as_if_sent(mask_trajectory(trajectory, secrets)))
    file.write_text("".join(lines), encoding="utf-8")
    return file


def _as_if_sent(trajectory: Trajectory) -> list[Entry]:
    """The entries, each reply with the fingerprint that its prompt has without the secrets."""
    tools = next((event.tools for event in trajectory if isinstance(event, SystemPrompt)), ())
    return [
        entry.model_copy(
            update={
                "event": entry.event.model_copy(
                    update={"prompt_fingerprint": fingerprint(messages_at(trajectory, at), tools)}
                )
            }
        )
        if isinstance(entry.event, ModelReply)
        else entry
        for at, entry in enumerate(trajectory.entries)
    ]


def main(arguments: Sequence[str], captured: Path = CAPTURED) -> int:
    parser = argparse.ArgumentParser(prog="script/capture", description=__doc__)
    parser.add_argument("run", help="the run's name, as `patchwright runs` lists it")
    parser.add_argument("name", help="of the directory below tests/golden/captured")
    parser.add_argument(
        "--hide", action="append", default=[], metavar="TEXT", help="masked beside the secrets"
    )
    options = parser.parse_args(arguments)
    try:
        settings = composition_root.read_settings({}, composition_root.read_environment(), None, Path())
        secrets = collect_secrets(settings, composition_root.read_environment())
        for text in options.hide:
            secrets.add(text)
        files = capture(
            FileLogStore(settings.data / "runs"), RunId(options.run), captured / options.name, secrets
        )
    except (LogError, SettingsError, FileExistsError) as exc:
        print(f"script/capture: {exc}", file=sys.stderr)
        return 2
    print(*files, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
