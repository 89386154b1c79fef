"""Looking at runs that are on this disk: nothing here starts a model or a sandbox."""

import argparse
import sys
from collections.abc import Iterable

from bot.terminal import plain, print_json
from resolver.domain import JobId
from resolver.errors import SettingsError
from resolver.events import Decided, Trajectory
from resolver.llm.model import FromModel, FromUser, Message
from resolver.log import FileLogs
from resolver.replay import Replayed, messages_at, replay
from resolver.settings import Settings

DIFFERS = 3


def replayed(options: argparse.Namespace, settings: Settings) -> int:
    """Rebuild each prompt of a run; 0 when all are what was sent, else 3."""
    trajectory = FileLogs(settings.data / "runs").read(JobId(options.run))
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
