"""The CodeAct loop: the next step is read from the log, so that going on after a kill is the normal path."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count

from resolver import prose, rules, stuck
from resolver.actions import Ask, Finish, Malformed, Propose, Report, Result
from resolver.condenser import ROOM, Room, Shorter
from resolver.domain import Patch
from resolver.errors import ChangeTooLarge, ContextOverflow, ModelError, ModelRefused
from resolver.events import (
    Call,
    Checkpointed,
    Condensed,
    Consulted,
    Decided,
    Ended,
    Observed,
    Prompted,
    Told,
    Trajectory,
)
from resolver.gate import was_sent_back
from resolver.llm.model import Model, Reply
from resolver.log import Log
from resolver.render import Conversation
from resolver.replay import Fingerprints, as_sent
from resolver.rules import Limits
from resolver.tools.sandboxed import CHANGES, SANDBOXED
from resolver.tools.tool import Tools
from runtime.observations import Failed, Noted, Picture
from runtime.sandbox import on_behalf_of

logger = logging.getLogger(__name__)

ENDS = (Ask, Finish, Propose, Report)
"""Actions that end the run, if it is granted."""
MAX_CALLS = 32  # of one reply; more is a model that has lost its way, at the price of a log without end
MAX_THOUGHT = 100_000  # characters of a reply's text that are kept: it is sent again with every later step


async def begin(log: Log, system: str, brief: str, tools: Tools, pictures: tuple[Picture, ...] = ()) -> None:
    """Set the agent up, once per run: what is in the log already stays as it was sent."""
    events = tuple(log.trajectory)
    if not any(isinstance(event, Prompted) for event in events):
        await log.append(Prompted(system=system, tools=as_sent(tools.specs)))
    if not any(isinstance(event, Told) and event.source == "brief" for event in events):
        await log.append(Told(text=brief, source="brief", pictures=pictures))


async def unknown() -> None:
    """The mark of a work tree that nobody watches."""


async def no_news() -> tuple[Told, ...]:
    """Nobody says anything."""
    return ()


@dataclass
class Agent:
    """Works on one run in one sandbox; a new sandbox needs a new agent."""

    model: Model
    tools: Tools
    limits: Limits
    checkpoint: Callable[[], Awaitable[Patch]]
    """The work tree as a diff against the base, as it is now in the sandbox."""
    scratch: str
    """Absolute path of the sandbox's directory for temporary files."""
    mark: Callable[[], Awaitable[str | None]] = unknown
    """Names the state of the work tree: while it is the same, so is the checkpoint. None: not known."""
    adopted: bool = False
    """Whether this is the sandbox that the run had, with all that is in it."""
    lost: str | None = None
    """Why the sandbox before this one is gone, if that is known."""
    room: Room = ROOM
    """How long the conversation may get, and who makes it shorter."""
    recover: Callable[[Call], Awaitable[Result | None]] | None = None
    """What is known of a call that was in flight, from a log of its own. None: no call has one."""
    plan_every: int = 0
    """Replies after which the model is asked to look back and ahead. 0: never."""
    news: Callable[[], Awaitable[tuple[Told, ...]]] = no_news
    """What the program has learnt meanwhile, and what people say; told when the model is asked next, each once: by
    its trigger, or else by its source."""
    end: prose.End | None = None
    """The call that ends the work. None: as the tools show."""
    gate: Callable[[Trajectory], tuple[str, ...]] = lambda trajectory: ()
    """What a run that wants to finish has not done yet, a sentence each; it is told once."""
    _arrived: bool = field(default=False, init=False)
    _conversation: Conversation = field(default_factory=Conversation, init=False)
    _saved: str | None = field(default=None, init=False)
    """The mark of the state that was written down last."""

    @cached_property
    def _fingerprints(self) -> Fingerprints:
        return Fingerprints(as_sent(self.tools.specs))

    async def run(self, log: Log) -> Ended:
        """Work until the run has ended; returns at once when it has. Told something new, it goes on.

        Cancelling it leaves a log that another agent can go on with. Raises ModelRefused when the operator
        must act, SandboxError when the machine failed; the log is then as good as after a cancellation.
        """
        if not self._arrived:
            self._arrived = True
            await self._take_over(log)
        while (ended := log.trajectory.ended) is None:
            _heed_cancellation()
            await self._step(log)
        return ended

    async def _take_over(self, log: Log) -> None:
        """Answer what was in flight when the run broke off, and say what is left of its sandbox."""
        trajectory = log.trajectory
        if trajectory.ended or not trajectory.decisions() or _wanted_end(trajectory):
            return
        saved = _saved_last(trajectory)
        text = prose.adopted() if self.adopted else prose.resumed(self.scratch, self.lost)
        await log.append(Told(text=text, source="resume"))
        calls = _in_order(trajectory.unanswered())
        known = [call for call in calls if self.adopted and isinstance(call.action, SANDBOXED)]
        if self.adopted and not known:
            with contextlib.suppress(ChangeTooLarge):  # told with the next call that changes something
                await self._save(log)
        for number, call in enumerate(calls):
            if call in known:
                continue  # asked for again: the sandbox runs each call once
            observation = await self.recover(call) if self.recover else None
            if observation is None:
                message = prose.lost(saved=saved and number == 0, adopted=self.adopted)
                observation = Failed(reason="lost", message=message)
            await log.append(Observed(call=call.id, observation=observation))

    async def _step(self, log: Log) -> None:
        trajectory = log.trajectory
        if calls := trajectory.unanswered():
            await self._answer(_in_order(calls)[0], log)
        elif wanted := _wanted_end(trajectory):
            await self._end(wanted, log)
        elif ended := rules.ending(trajectory, self.limits):
            await self._end(ended, log)
        elif word := await self._word(trajectory):
            await log.append(word)
        else:
            await self._ask(log)

    async def _answer(self, call: Call, log: Log) -> None:
        observation = self._objection(call, log.trajectory) or await self._answered(call)
        if isinstance(call.action, CHANGES) and not isinstance(observation, Failed):
            try:
                await self._save(log)
            except ChangeTooLarge as exc:
                # Its effect stays in the sandbox: the model can take away what is too much.
                observation = Failed(reason="too_large", message=str(exc))
        await log.append(Observed(call=call.id, observation=observation))

    async def _answered(self, call: Call) -> Result:
        with on_behalf_of(call.id):
            return await self.tools.answer(call.action)

    def _objection(self, call: Call, trajectory: Trajectory) -> Failed | None:
        """Why a wish to finish is not granted yet. Only once: the second time it is, and the account says so."""
        if not isinstance(call.action, Finish) or was_sent_back(trajectory):
            return None
        missing = self.gate(trajectory)
        return Failed(reason="refused", message=prose.not_yet(missing)) if missing else None

    async def _save(self, log: Log, *, anyway: bool = False) -> None:
        """Write the work tree down if it is another than the last one. Raises ChangeTooLarge.

        `anyway`: look at it even if its mark says that nothing has changed, which a mapped file may belie.
        """
        mark = await self.mark()  # before it is looked at: what changes meanwhile gives it another mark
        if mark is not None and mark == self._saved and not anyway:
            return
        patch = await self.checkpoint()
        if patch != (log.trajectory.checkpoint() or Patch(base=patch.base, diff=b"")):
            await log.append(Checkpointed(patch=patch))
        self._saved = mark

    async def _end(self, ended: Ended, log: Log) -> None:
        """The last state of the work tree, with what background jobs have written, and then the ending."""
        with contextlib.suppress(ChangeTooLarge):  # then it is the last state that was small enough
            await self._save(log, anyway=True)
        await log.append(ended)

    async def _word(self, trajectory: Trajectory) -> Told | None:
        """What the program has to say before the model is asked again, if it was not said yet."""
        last = _last_word(trajectory)
        names = tuple(spec.name for spec in self.tools.specs)
        end = self.end or ("finish" if "finish" in names else "report")
        if isinstance(last, Decided) and not last.calls:
            text = prose.cut_off(None) if last.truncated else prose.no_call(names, end)
            return Told(text=text, source="program")
        if pattern := stuck.nudge(trajectory):
            return Told(text=prose.nudge(pattern, end), source="nudge")
        for news in await self.news():
            if not _is_told(news, trajectory):
                return news
        if rules.planning_due(trajectory, self.plan_every):
            return Told(text=prose.planning("plan" in names), source="planning")
        if (left := rules.steps_left(trajectory, self.limits)) is not None:
            notice = Told(text=prose.steps_left(left, end), source="program")
            return None if last == notice else notice
        return None

    async def _ask(self, log: Log) -> None:
        before = log.trajectory
        if relief := await self.room.relief(before):
            await self._note(relief, log)
            return  # what it cost counts before the model is asked
        try:
            prompt = self._conversation.messages(before)
            reply = await self.model.reply(prompt, self.tools.specs)
        except ModelError as exc:
            if exc.usage is not None:  # billed, though nothing came of it
                await log.append(Consulted(purpose="failed", usage=exc.usage))
            await self._failed(exc, before, log)
            return
        sent = self._fingerprints.of(prompt)
        await log.append(self._decided(reply, before).model_copy(update={"prompt": sent}))
        if log.trajectory.spent().unpriced and not before.spent().unpriced:
            logger.warning("price unknown, dollar limit not enforced", extra={"model": reply.usage.model})

    async def _failed(self, exc: ModelError, before: Trajectory, log: Log) -> None:
        if isinstance(exc, ModelRefused):
            raise exc  # no other run would fare better: the operator must hear it
        if not isinstance(exc, ContextOverflow):
            await self._end(Ended(reason="error", detail=str(exc)), log)
            return
        relief = await self.room.relief_from_overflow(before)
        await self._note(relief, log)
        if not any(isinstance(event, Condensed) for event in relief):
            await self._end(Ended(reason="limit", detail=str(exc)), log)

    async def _note(self, events: Shorter, log: Log) -> None:
        for event in events:
            await log.append(event)

    def _decided(self, reply: Reply, before: Trajectory) -> Decided:
        used = {call.id for decision in before.decisions() for call in decision.calls}
        calls: list[Call] = []
        for number, wanted in enumerate(reply.calls[:MAX_CALLS], start=1):
            action = self.tools.parse(wanted)
            if number == MAX_CALLS and len(reply.calls) > MAX_CALLS:
                problem = prose.too_many_calls(made=len(reply.calls), limit=MAX_CALLS)
                action = Malformed(name=wanted.name[:100], arguments="{}", problem=problem)
            elif reply.truncated and number == len(reply.calls) and isinstance(action, Malformed):
                action = action.model_copy(update={"problem": prose.cut_off(action.name)})
            calls.append(Call(id=_fresh(wanted.id, used), action=action))
        return Decided(
            thought=reply.text[:MAX_THOUGHT],
            calls=tuple(calls),
            usage=reply.usage,
            reasoning=reply.reasoning,
            truncated=reply.truncated,
        )


def _heed_cancellation() -> None:
    """Raises CancelledError when the task was cancelled and what it waited for then has swallowed it.

    Python 3.11's `wait_for` does, in the model's client for one, where the answer comes in the same moment; the run
    would go on for hours that nobody wants. Source: github.com/python/cpython/issues/86296
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _saved_last(trajectory: Trajectory) -> bool:
    """Whether the first open call was done, and is in the patch that the new sandbox started from.

    A checkpoint is written before the answer of its call; so that call is open when a checkpoint stands last.
    """
    events = (entry.event for entry in reversed(trajectory.entries))
    last = next(event for event in events if isinstance(event, Decided | Checkpointed | Observed))
    return isinstance(last, Checkpointed)


def _in_order(calls: tuple[Call, ...]) -> list[Call]:
    """As the model wrote them, but what ends the run last: what came with it is done first."""
    return sorted(calls, key=lambda call: isinstance(call.action, ENDS))


def _last_word(trajectory: Trajectory) -> Decided | Told | None:
    """What the model or somebody else said last."""
    said = (entry.event for entry in reversed(trajectory.entries))
    return next((event for event in said if isinstance(event, Decided | Told)), None)


def _is_told(news: Told, trajectory: Trajectory) -> bool:
    told = (event for event in trajectory if isinstance(event, Told))
    if news.by is not None:
        return any(event.by == news.by for event in told)
    return any(event.source == news.source for event in told)


def _wanted_end(trajectory: Trajectory) -> Ended | None:
    """How the run ends, when the last word is a reply that asked for its end and was granted it."""
    last = _last_word(trajectory)
    if not isinstance(last, Decided) or trajectory.unanswered():
        return None
    ends = {call.id: call.action for call in last.calls if isinstance(call.action, ENDS)}
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Observed(call=call, observation=Noted()) if call in ends:
                action = ends[call]
                if isinstance(action, Ask):
                    return Ended(reason="asked", detail=action.question)
                if isinstance(action, Propose):
                    steps = f"{len(action.steps)} step{'s' * (len(action.steps) != 1)}"
                    return Ended(reason="asked", detail=f"The plan of {steps} waits for a go.")
                how = "reported" if isinstance(action, Report) else "gave its account"
                return Ended(reason="finished", detail=f"The agent {how} and ended the work.")
            case Decided():
                return None
            case _:
                continue
    return None


def _fresh(id: str, used: set[str]) -> str:
    """An id that no call of this run has, made of what providers take back; remembers it as used."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", id)[:48] or "call"
    fresh = next(name for name in chain([stem], (f"{stem}-{n}" for n in count(2))) if name not in used)
    used.add(fresh)
    return fresh
