"""When a run ends without the model's asking: its limits, or circles. Pure."""

from decimal import Decimal

from pydantic import Field

from resolver import stuck
from resolver.actions import Reported
from resolver.domain import Commented, EndingReason, Spent
from resolver.events import Decided, Ended, Observed, Told, Trajectory
from runtime.frozen import Frozen

EARLY: frozenset[EndingReason] = frozenset({"limit", "stuck", "cancelled", "error"})
"""Endings that the agent did not choose."""
NOTICE = 5
"""The model is told when so many replies are left."""


class Limits(Frozen):
    """What one run may use."""

    steps: int = Field(default=100, ge=1)
    """Replies of the model."""
    seconds: float = Field(default=3600.0, gt=0)
    """Of work, from the first event on; the time in which a killed run waited does not count."""
    usd: Decimal = Field(default=Decimal("2.00"), gt=0)
    """Dollars, as far as the price of the model is known."""
    tokens: int | None = Field(default=None, ge=1)
    """Of prompts, cached ones too, and of replies. None: as many as it takes."""


def used(trajectory: Trajectory) -> Spent:
    """What counts towards the limits: everything since somebody last had the run go on, if anybody did."""
    for number in range(len(trajectory) - 1, 0, -1):
        event = trajectory.entries[number].event
        if isinstance(event, Told) and event.source == "resume" and event.by:
            return Trajectory(trajectory.entries[number:]).spent()
    return trajectory.spent()


def was_stopped(trajectory: Trajectory) -> bool:
    """Whether a run was ended by something else than its agent, so that it can be asked to go on.

    One that came to a pull request is not: that is where more is asked for.
    """
    settled, ended = trajectory.settled, trajectory.ended
    if not trajectory.decisions() or (settled and not isinstance(settled.outcome, Commented)):
        return False
    return settled is None or (ended is not None and ended.reason in EARLY)


def ending(trajectory: Trajectory, limits: Limits) -> Ended | None:
    """Why the model is not to be asked again, if there is a reason."""
    spent = used(trajectory)
    if spent.steps >= limits.steps:
        return Ended(reason="limit", detail=f"The limit of {limits.steps} replies of the model is reached.")
    if spent.usd >= limits.usd:
        known = f"{'at least ' if spent.unpriced else ''}${spent.usd:.4f}"
        return Ended(reason="limit", detail=f"The budget of ${limits.usd} is spent ({known}).")
    if limits.tokens is not None and spent.tokens >= limits.tokens:
        detail = f"The limit of {limits.tokens:,} tokens is reached ({spent.tokens:,})."
        return Ended(reason="limit", detail=detail)
    if spent.seconds >= limits.seconds:
        return Ended(reason="limit", detail=f"The time limit of {limits.seconds:g} s is reached.")
    return stuck.ending(trajectory)


def share(limits: Limits, spent: Spent, steps: int, among: int = 1) -> Limits | None:
    """What a run may hand on to each of so many others: half of what it has left, at most so many steps for each.

    The other half is for making use of what comes back. Time they have side by side. None: too little is left.
    """
    left = limits.steps - spent.steps
    seconds, usd = limits.seconds - spent.seconds, limits.usd - spent.usd
    tokens = None if limits.tokens is None else (limits.tokens - spent.tokens) // 2 // among
    if left < 2 * among or seconds <= 0 or usd <= 0 or (tokens is not None and tokens < 1):
        return None
    handed = min(steps, left // 2 // among)
    return Limits(steps=handed, seconds=seconds / 2, usd=usd / 2 / among, tokens=tokens)


def steps_left(trajectory: Trajectory, limits: Limits) -> int | None:
    """How many replies are left, when the model is to be told so now; None at any other time.

    A run of few steps is not worth the warning: it would come with the brief.
    """
    left = limits.steps - used(trajectory).steps
    due = 0 < left <= NOTICE < left + _last_cost(trajectory)
    return left if due and limits.steps >= 3 * NOTICE else None


def _last_cost(trajectory: Trajectory) -> int:
    """How many replies were given since the last one began: itself, and those of agents that it asked."""
    cost = 0
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Observed(observation=Reported(spent=spent)):
                cost += spent.steps
            case Decided():
                return cost + 1
            case _:
                continue
    return cost


def planning_due(trajectory: Trajectory, every: int) -> bool:
    """Whether the model is now to look back and ahead: once after every so many replies; 0 is never.

    Source: arXiv:2506.03011, section 2.2
    """
    count = len(trajectory.decisions())
    if not every or not count or count % every:
        return False
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Told(source="planning"):
                return False
            case Decided():
                return True
            case _:
                continue
    return False
