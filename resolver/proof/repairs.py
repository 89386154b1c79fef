"""The way of finished work through the proof: back to the agent, or to another attempt, a bounded number of times."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from resolver import rules
from resolver.domain import Patch, Verdict
from resolver.events import Checkpointed, Consulted, Ended, Judged, Told, Trajectory
from resolver.kit import Kit
from resolver.log import Log
from resolver.proof import proof_prose
from resolver.proof.opinion import opinion
from resolver.validate import Heard

RANKS = ("empty", "regressed", "untested", "unproven", "fixed")
"""From the worst to the best."""


async def judged(
    log: Log,
    kit: Kit,
    ending: Ended,
    patch: Patch,
    prove: Callable[[Heard], Awaitable[Verdict]],
    start_over: Callable[[], Awaitable[bool]],
) -> Verdict | None:
    """The verdict with which the work is over; None: the agent was told something, and goes on.

    A verdict on the tests that were run first ends the proof when it goes back: the agent need not wait for the rest.
    `start_over` makes the work tree what it is at base, and says whether it could.
    """
    rounds = Rounds.of(log.trajectory)
    finished = ending.reason == "finished"
    may_repair = finished and rounds.repairs < kit.settings.repairs

    async def heard(first: Verdict) -> bool:
        await log.append(Judged(verdict=first))
        return may_repair and goes_back(first)

    verdict = await prove(heard)
    if may_repair and goes_back(verdict):
        if not verdict.partial:
            await log.append(Judged(verdict=verdict))
        await log.append(Told(text=proof_prose.sent_back(verdict), source="proof"))
        return None
    verdict = await _with_opinion(verdict, log, kit, patch)
    await log.append(Judged(verdict=verdict))
    said = verdict.opinion
    if said and not said.approves and verdict.kind != "fixed" and finished and not rounds.reflections:
        await log.append(Told(text=proof_prose.reflection(said), source="proof"))
        return None
    attempts = kit.settings.candidates
    if verdict.kind != "fixed" and finished and rounds.attempts < attempts and await start_over():
        text = proof_prose.another_attempt(verdict, rounds.attempts, attempts)
        await log.append(Told(text=text, source="proof"))
        return None
    return await _the_best(log, verdict)


def goes_back(verdict: Verdict) -> bool:
    """Whether the agent is to hear of it: it broke something, or its own tests fail."""
    return verdict.kind == "regressed" or bool(verdict.still_failing)


@dataclass(frozen=True)
class Rounds:
    """How often the proof has sent the work back since somebody last asked for it, and why."""

    repairs: int = 0
    """In the present attempt: a test failed."""
    reflections: int = 0
    """In the present attempt: a second model rejected the patch."""
    attempts: int = 1
    """That were begun."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> "Rounds":
        repairs = reflections = 0
        attempts = 1
        for verdict, _, put_back in _told(trajectory):
            if put_back:
                repairs, reflections, attempts = 0, 0, attempts + 1
            elif goes_back(verdict):
                repairs += 1
            else:
                reflections += 1
        return cls(repairs, reflections, attempts)


def _told(trajectory: Trajectory) -> list[tuple[Verdict, Patch | None, bool]]:
    """Each verdict that the agent was told of since somebody last asked for work: the verdict, the work tree that it
    is about, and whether that was put back to what it is at base."""
    found: list[tuple[Verdict, Patch | None, bool]] = []
    patch: Patch | None = None
    last: tuple[Verdict, Patch | None] | None = None
    put_back = False
    for event in trajectory:
        match event:
            case Told(source="brief" | "comment"):
                found, last = [], None
            case Checkpointed():
                patch, put_back = event.patch, last is not None
            case Judged():
                last, put_back = (event.verdict, patch), False
            case Told(source="proof") if last is not None:
                found.append((*last, put_back))
                last = None
            case _:
                continue
    return found


async def _with_opinion(verdict: Verdict, log: Log, kit: Kit, patch: Patch) -> Verdict:
    settings, started = kit.settings, log.trajectory.started
    if not settings.second_opinion or verdict.kind == "empty" or started is None:
        return verdict
    spent = rules.used(log.trajectory)
    capped = settings.max_tokens is not None and spent.tokens >= settings.max_tokens
    if capped or spent.usd >= settings.max_usd or spent.seconds >= settings.timeout:
        return verdict  # words are not worth more than the operator allowed
    said, usage = await opinion(kit.models.judge, started.thread, patch, verdict, kit.secrets)
    if usage is not None:
        await log.append(Consulted(purpose="judge", usage=usage))
    return verdict.model_copy(update={"opinion": said})


async def _the_best(log: Log, verdict: Verdict) -> Verdict:
    """The best of all attempts, which the log then ends with: the patch that stands last there is delivered."""
    earlier = [(found, patch) for found, patch, put_back in _told(log.trajectory) if put_back]
    if not earlier:
        return verdict
    best, patch = max(earlier, key=lambda each: _worth(each[0]))
    if patch is None or _worth(best) <= _worth(verdict):
        return verdict
    await log.append(Checkpointed(patch=patch))
    await log.append(Judged(verdict=best))
    return best


def _worth(verdict: Verdict) -> tuple[int, int, int]:
    """By kind, then by the tests that pass and fail with it."""
    after = verdict.after
    return RANKS.index(verdict.kind), after.passed if after else 0, -after.failed if after else 0
