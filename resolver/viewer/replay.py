"""Rebuilds the prompt of each step of a run from the run's log, without a model or a sandbox. Compares each
rebuilt prompt with the prompt that was sent.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from patchwright.resolver.agent import messages
from patchwright.resolver.browsing import prompt as browsing_prompt
from patchwright.resolver.events import ModelReply, SystemPrompt, Trajectory
from patchwright.resolver.llm.model import ChatMessage
from patchwright.resolver.llm.prompt_fingerprint import fingerprint, list_message_texts
from patchwright.runtime.frozen_model import FrozenModel


class ReplayedStep(FrozenModel):
    """One rebuilt step of a run."""

    number: int
    """Number of the model's reply. The first reply is 1."""
    messages: int
    characters: int
    """Number of characters in the messages, without images."""
    cached_messages: int
    """Number of messages at the start of the prompt that are the same as in the previous step."""
    sent_fingerprint: str
    """Fingerprint of the prompt that was sent; "" in a log of an older version."""
    rebuilt_fingerprint: str
    """Fingerprint of the rebuilt prompt."""

    @property
    def is_identical(self) -> bool:
        return self.sent_fingerprint in ("", self.rebuilt_fingerprint)


def replay_run(trajectory: Trajectory) -> Iterator[ReplayedStep]:
    """Yields each step of a run, in order."""
    number, previous = 0, tuple[ChatMessage, ...]()
    for position, entry in enumerate(trajectory.entries):
        if not isinstance(entry.event, ModelReply):
            continue
        number += 1
        prompt = messages_at(trajectory, position)
        yield ReplayedStep(
            number=number,
            messages=len(prompt),
            characters=sum(len(text) for message in prompt for text in list_message_texts(message)),
            cached_messages=_common_prefix_length(previous, prompt),
            sent_fingerprint=entry.event.prompt_fingerprint,
            rebuilt_fingerprint=fingerprint(prompt, _recorded_tools(trajectory)),
        )
        previous = prompt


def messages_at(trajectory: Trajectory, entry: int) -> tuple[ChatMessage, ...]:
    """Returns the messages that were sent to the model before its reply. `entry` is the position of this reply
    in the log.
    """
    earlier = Trajectory(trajectory.entries[:entry])
    build: Callable[[Trajectory], tuple[ChatMessage, ...]] = messages.build_messages
    if trajectory.subagent_started is not None and trajectory.subagent_started.role == "browse":
        build = browsing_prompt.build_prompt
    return build(earlier)


def _recorded_tools(trajectory: Trajectory) -> tuple[dict[str, Any], ...]:
    return next((event.tools for event in trajectory if isinstance(event, SystemPrompt)), ())


def _common_prefix_length(before: Sequence[ChatMessage], after: Sequence[ChatMessage]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((position for position, (old, new) in pairs if old != new), min(len(before), len(after)))
