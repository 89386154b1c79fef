"""When a conversation is sent shorter, and how: decided from the log alone, and kept in it as `Condensed`."""

import logging
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, Protocol

from resolver import prose
from resolver.actions import Plan
from resolver.errors import ModelError
from resolver.events import Condensed, Consulted, Decided, Entry, Event, Observed, Prompted, Told, Trajectory
from resolver.llm import tokens
from resolver.llm.model import FromUser, Message, Model, System
from resolver.render import condensed, is_maskable, messages, pictures_of, result
from resolver.summary import steps

logger = logging.getLogger(__name__)

KEEP = 6  # latest replies that stay as they are
LARGE = 1_000  # characters; a smaller result is hardly longer than the line in its place
PAUSE = 4  # replies at least between two condensations: each of them makes the provider read all of it anew
GOAL = 0.6  # of the room: what a condensation is to come down to
TRUSTED = 1.8  # times our estimate; no tokenizer makes more of code and English
SHARE = 0.7  # of a model's window: the reply, and what one step adds, must have room too
LEARNED = 0.8  # of the length that a provider has refused
MAX_SUMMARY = 12_000  # characters
SUMMARY = 3_000  # tokens that one may take
MAX_TOLD = 120_000  # characters of a conversation that the summary is made from
LISTED = 60  # latest calls that stand for a conversation nobody could sum up

Cause = Literal["length", "overflow"]
Shorter = tuple[Consulted | Condensed, ...]
"""What to append to the log; nothing when there is nothing to be done."""


class Condenser(Protocol):
    """Makes a conversation shorter."""

    async def condense(self, trajectory: Trajectory, goal: int) -> Shorter:
        """Bring it down to `goal` tokens (as `tokens` counts them), or nearer."""


@dataclass(frozen=True)
class Masking:
    """Puts one line in the place of each large result, but those of the `keep` latest replies."""

    keep: int = KEEP
    least: int = LARGE

    async def condense(self, trajectory: Trajectory, goal: int) -> Shorter:
        before = condensed(trajectory)
        replies = trajectory.decisions()
        old = replies[before.forgotten : max(len(replies) - self.keep, 0)]
        calls = {call.id for reply in old for call in reply.calls}
        large = tuple(
            event.call
            for event in trajectory
            if isinstance(event, Observed)
            and event.call in calls
            and event.call not in before.masked
            and is_maskable(event.observation)
            and (len(result(event.observation)) > self.least or pictures_of(event.observation))
        )
        return (Condensed(masked=tuple(dict.fromkeys(large))),) if large else ()


@dataclass(frozen=True)
class Listing:
    """Forgets all but the latest replies; a line for each of their calls stands in their place."""

    keep: int = KEEP

    async def condense(self, trajectory: Trajectory, goal: int) -> Shorter:
        if (forgotten := forgettable(trajectory, self.keep, goal)) is None:
            return ()
        return (_forgotten(trajectory, forgotten, None),)


@dataclass(frozen=True)
class Summarizing:
    """Forgets all but the latest replies; what a model wrote about them stands in their place.

    A model that fails, or writes more than it was to sum up, is told in the log, and done without.
    """

    model: Model
    keep: int = KEEP

    async def condense(self, trajectory: Trajectory, goal: int) -> Shorter:
        if (forgotten := forgettable(trajectory, self.keep, goal)) is None:
            return ()
        asked: list[Message] = [
            System(text=prose.condense()),
            FromUser(text=prose.to_condense(_gone(trajectory, forgotten), MAX_TOLD)),
        ]
        try:
            reply = await self.model.reply(asked, ())
        except ModelError as exc:
            logger.warning("no summary", extra={"model": self.model.name, "why": str(exc)})
            billed = () if exc.usage is None else (Consulted(purpose="condense", usage=exc.usage),)
            return (*billed, _forgotten(trajectory, forgotten, None))
        spent = Consulted(purpose="condense", usage=reply.usage)
        return (spent, _forgotten(trajectory, forgotten, reply.text.strip()[:MAX_SUMMARY] or None))


@dataclass(frozen=True)
class InTurn:
    """Asks one condenser after the other, until the conversation is short enough."""

    condensers: tuple[Condenser, ...]

    async def condense(self, trajectory: Trajectory, goal: int) -> Shorter:
        done: Shorter = ()
        for condenser in self.condensers:
            so_far = extended(trajectory, done)
            if done and tokens.of_messages(messages(so_far)) <= goal:
                break
            done += await condenser.condense(so_far, goal)
        return done


MASKING_THEN_LISTING = InTurn((Masking(), Listing()))


@dataclass(frozen=True)
class Room:
    """How long a conversation may get, and what is done about it."""

    condenser: Condenser = MASKING_THEN_LISTING
    most: int = 100_000
    """Tokens."""

    async def relief(self, trajectory: Trajectory) -> Shorter:
        """What to append before the model is asked again; nothing while the conversation is short enough."""
        most = min([self.most, *(int(LEARNED * event.before) for event in _overflows(trajectory))])
        if size(trajectory) <= most or _replies_since_condensed(trajectory) < PAUSE:
            return ()
        # Only now: it takes as long as to write all of the prompt.
        if (now := _plausible(trajectory)) <= most:
            return ()
        return await self._condensed(trajectory, self.condenser, "length", now, int(GOAL * most))

    async def relief_from_overflow(self, trajectory: Trajectory) -> Shorter:
        """The same after the provider refused the prompt; nothing when it did right after the last relief."""
        last = next((e for e in _backwards(trajectory) if isinstance(e, Decided | Condensed)), None)
        if isinstance(last, Condensed) and last.cause == "overflow":
            return ()
        now = _plausible(trajectory)
        # The last resort: a single result that is larger than the model takes.
        condenser = InTurn((self.condenser, Masking(keep=0)))
        return await self._condensed(trajectory, condenser, "overflow", now, now // 2)

    async def _condensed(
        self, trajectory: Trajectory, condenser: Condenser, cause: Cause, now: int, goal: int
    ) -> Shorter:
        """With what it came to, in tokens as the provider counts: ours are an estimate of them."""
        estimated = tokens.of_messages(messages(trajectory)) or 1
        ratio = min(max(now / estimated, 0.25), 4.0)
        done = await condenser.condense(trajectory, int(goal / ratio))
        after = int(ratio * tokens.of_messages(messages(extended(trajectory, done))))
        facts = {"cause": cause, "before": now, "after": after}
        paid = tuple(event for event in done if isinstance(event, Consulted))
        if after < now:
            return (*paid, condensed(done).model_copy(update=facts))
        if not done or cause == "overflow":
            return paid
        # It would be longer. That it was tried is kept: it is not tried again with each reply.
        return (*paid, Condensed(cause=cause, before=now, after=now))


ROOM = Room()
"""What an agent has that was given none: no model sums up for it."""


def room_in(model: Model) -> int:
    """Tokens of a conversation that are fit for this model: longer ones cost more and are understood less well."""
    return ROOM.most if model.window is None else min(ROOM.most, int(SHARE * model.window))


def size(trajectory: Trajectory) -> int:
    """Tokens of the conversation that would be sent now.

    As the provider counted them for the last reply, with an estimate of what came after; all of it is an
    estimate where nothing was counted since the conversation was last made shorter.
    """
    latest = list(takewhile(lambda e: not isinstance(e, Condensed), _backwards(trajectory)))
    counted = next((n for n, event in enumerate(latest) if isinstance(event, Decided)), None)
    if counted is not None:
        decided = latest[counted]
        assert isinstance(decided, Decided)
        if decided.usage.prompt_tokens:
            since = sum(_of_event(event) for event in latest[:counted])
            return decided.usage.prompt_tokens + decided.usage.completion_tokens + since
    return _estimated(trajectory)


def _plausible(trajectory: Trajectory) -> int:
    """Its size, but for a count that is far from our estimate: several tries of one reply are counted together."""
    counted = size(trajectory)
    estimated = _estimated(trajectory)
    return counted if counted <= TRUSTED * estimated else estimated


def _estimated(trajectory: Trajectory) -> int:
    prompted = next((event for event in trajectory if isinstance(event, Prompted)), None)
    tools = tokens.of_text(str(prompted.tools)) if prompted else 0
    return tools + tokens.of_messages(messages(trajectory))


def forgettable(trajectory: Trajectory, keep: int, goal: int) -> int | None:
    """How many of the first replies to forget, so that the rest and a summary take `goal`; None: no more than now.

    The latest reply always stays, with its calls, their results, and its reasoning, which providers demand.
    """
    replies = len(trajectory.decisions())
    already = condensed(trajectory).forgotten
    for kept in range(max(keep, 1), 0, -1):
        forgotten = replies - kept
        if forgotten <= already:
            continue
        rest = messages(extended(trajectory, (Condensed(forgotten=forgotten, summary="-"),)))
        if kept == 1 or tokens.of_messages(rest) <= max(goal // 2, goal - SUMMARY):
            return forgotten
    return None


def extended(trajectory: Trajectory, events: tuple[Event, ...]) -> Trajectory:
    """The trajectory as it would be with these events."""
    if not events:
        return trajectory
    at = trajectory.entries[-1].at
    more = (Entry(seq=len(trajectory) + n, at=at, event=event) for n, event in enumerate(events))
    return Trajectory((*trajectory.entries, *more))


def _forgotten(trajectory: Trajectory, forgotten: int, summary: str | None) -> Condensed:
    calls = None
    if summary is None:
        calls = [step for step in steps(trajectory) if step.number <= forgotten][-LISTED:]
    plan = _plan(trajectory, forgotten)
    return Condensed(forgotten=forgotten, summary=prose.condensed(forgotten, summary, calls, plan))


def _plan(trajectory: Trajectory, forgotten: int) -> Plan | None:
    """The latest plan, if it is among what is forgotten."""
    plans = [
        (number, call.action)
        for number, reply in enumerate(trajectory.decisions(), start=1)
        for call in reply.calls
        if isinstance(call.action, Plan)
    ]
    return plans[-1][1] if plans and plans[-1][0] <= forgotten else None


def _gone(trajectory: Trajectory, forgotten: int) -> tuple[Message, ...]:
    """What is sent now, and would not be any more."""
    now = messages(trajectory)
    rest = messages(extended(trajectory, (Condensed(forgotten=forgotten, summary="-"),)))
    same = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(now[::-1], rest[::-1], strict=False))
    )
    return tuple(message for message in now[: len(now) - same] if not isinstance(message, System))


def _overflows(trajectory: Trajectory) -> list[Condensed]:
    return [event for event in trajectory if isinstance(event, Condensed) and event.cause == "overflow"]


def _replies_since_condensed(trajectory: Trajectory) -> int:
    """A large number when it never was."""
    count = 0
    for event in _backwards(trajectory):
        match event:
            case Condensed():
                return count
            case Decided():
                count += 1
            case _:
                continue
    return max(count, PAUSE)


def _backwards(trajectory: Trajectory) -> list[Event]:
    return [entry.event for entry in reversed(trajectory.entries)]


def _of_event(event: Event) -> int:
    match event:
        case Observed(observation=observation):
            shown = tokens.PICTURE * len(pictures_of(observation))
            return tokens.of_text(result(observation)) + tokens.PER_MESSAGE + shown
        case Told(text=text, pictures=pictures):
            return tokens.of_text(text) + tokens.PER_MESSAGE + tokens.PICTURE * len(pictures)
        case _:
            return 0
