"""A run again from its log alone: the prompt of each step is rebuilt, without model or sandbox, and compared."""

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from resolver import render
from resolver.browsing import prompt as browsing_prompt
from resolver.events import Decided, Prompted, Trajectory
from resolver.llm.model import FromModel, FromTool, FromUser, Message, System, ToolSpec
from runtime.frozen import Frozen


class Replayed(Frozen):
    """One step of a run, rebuilt."""

    number: int
    """Of the model's reply, from 1."""
    messages: int
    characters: int
    """Of the messages, pictures not counted."""
    kept: int
    """How many messages at the beginning are the same, byte for byte, as in the step before."""
    sent: str
    """Fingerprint of what was sent; "" in a log of an older version."""
    rebuilt: str
    """Fingerprint of what the log gives now."""

    @property
    def same(self) -> bool:
        return self.sent in ("", self.rebuilt)


def replay(trajectory: Trajectory) -> Iterator[Replayed]:
    """Each step of a run, in order."""
    number, before = 0, tuple[Message, ...]()
    for at, entry in enumerate(trajectory.entries):
        if not isinstance(entry.event, Decided):
            continue
        number += 1
        prompt = messages_at(trajectory, at)
        yield Replayed(
            number=number,
            messages=len(prompt),
            characters=sum(len(text) for message in prompt for text in _texts(message)),
            kept=_same_beginning(before, prompt),
            sent=entry.event.prompt,
            rebuilt=fingerprint(prompt, _tools(trajectory)),
        )
        before = prompt


def messages_at(trajectory: Trajectory, entry: int) -> tuple[Message, ...]:
    """What the model was sent for the reply that stands at this place of the log."""
    so_far = Trajectory(trajectory.entries[:entry])
    shown: Callable[[Trajectory], tuple[Message, ...]] = render.messages
    if trajectory.assigned is not None and trajectory.assigned.role == "browse":
        shown = browsing_prompt.shown
    return shown(so_far)


def fingerprint(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
    """The same for the same prompt, byte for byte, and for no other; 32 hexadecimal digits."""
    return Fingerprints(tools).of(tuple(messages))


class Fingerprints:
    """Those of a conversation that grows: its beginning is not read anew with each step."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self._tools = blake2b(json.dumps(list(tools), sort_keys=True).encode(), digest_size=16)
        self._read: tuple[Message, ...] = ()
        self._digest = self._tools.copy()

    def of(self, messages: tuple[Message, ...]) -> str:
        """The fingerprint of this prompt, whatever was asked for before."""
        known = len(self._read)
        if messages[:known] != self._read:
            known, self._digest = 0, self._tools.copy()
        for message in messages[known:]:
            _add(self._digest, message)
        self._read = messages
        return self._digest.hexdigest()


def _add(digest: blake2b, message: Message) -> None:
    for text in (message.role, *_texts(message)):
        part = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(part))
        digest.update(part)
    if isinstance(message, FromUser):
        for picture in message.pictures:
            digest.update(blake2b(picture.data).digest())


def as_sent(specs: Sequence[ToolSpec]) -> tuple[dict[str, Any], ...]:
    """Tools as the log keeps them, and providers get them."""
    return tuple(spec.as_openai() for spec in specs)


def _tools(trajectory: Trajectory) -> tuple[dict[str, Any], ...]:
    return next((event.tools for event in trajectory if isinstance(event, Prompted)), ())


def _texts(message: Message) -> Iterator[str]:
    match message:
        case System(text=text) | FromUser(text=text):
            yield text
        case FromTool(call=answered, text=text):
            yield from (answered, text)
        case FromModel(text=text, calls=calls, reasoning=reasoning):
            yield text
            for call in calls:
                yield from (call.id, call.name, call.arguments)
            for block in reasoning:
                yield json.dumps(block, sort_keys=True)


def _same_beginning(before: Sequence[Message], after: Sequence[Message]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))
