"""When a run ends without the model's asking: its limits, and the plainest signs that it is stuck. Pure."""

import re
from collections.abc import Iterator
from decimal import Decimal

from pydantic import Field

from resolver.actions import Action, Reported, Result
from resolver.domain import Spent
from resolver.events import Decided, Ended, Observed, Told, Trajectory
from runtime.actions import SendInput
from runtime.frozen import Frozen
from runtime.observations import Ran

REPEATS = 4
"""The same call with the same result so many times in a row is a loop."""
SILENT = 3
"""So many replies in a row without any call are a monologue."""
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


def ending(trajectory: Trajectory, limits: Limits) -> Ended | None:
    """Why the model is not to be asked again, if there is a reason."""
    spent = trajectory.spent()
    if spent.steps >= limits.steps:
        return Ended(reason="limit", detail=f"The limit of {limits.steps} replies of the model is reached.")
    if spent.usd >= limits.usd:
        return Ended(reason="limit", detail=f"The budget of ${limits.usd} is spent (${spent.usd:.4f}).")
    if spent.seconds >= limits.seconds:
        return Ended(reason="limit", detail=f"The time limit of {limits.seconds:g} s is reached.")
    if silent_replies(trajectory) >= SILENT:
        return Ended(
            reason="stuck", detail=f"The model gave {SILENT} replies in a row without calling a tool."
        )
    if repeated_call(trajectory, times=REPEATS):
        return Ended(
            reason="stuck", detail=f"The model made the same call {REPEATS} times with the same result."
        )
    return None


def share(limits: Limits, spent: Spent, steps: int) -> Limits | None:
    """What a run may hand on to another one: half of what it has left, at most so many steps.

    The other half is for making use of what comes back. None: too little is left.
    """
    left = limits.steps - spent.steps
    seconds, usd = limits.seconds - spent.seconds, limits.usd - spent.usd
    if left < 2 or seconds <= 0 or usd <= 0:
        return None
    return Limits(steps=min(steps, left // 2), seconds=seconds / 2, usd=usd / 2)


def steps_left(trajectory: Trajectory, limits: Limits) -> int | None:
    """How many replies are left, when the model is to be told so now; None at any other time.

    A run of few steps is not worth the warning: it would come with the brief.
    """
    left = limits.steps - trajectory.spent().steps
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


def silent_replies(trajectory: Trajectory) -> int:
    """How many replies at the end of the run made no call."""
    count = 0
    for reply in reversed(trajectory.decisions()):
        if reply.calls:
            break
        count += 1
    return count


def repeated_call(trajectory: Trajectory, times: int) -> bool:
    """Whether the last calls were all the same and had the same result."""
    exchanges: list[tuple[Action, Result]] = []
    for exchange in _exchanges_backwards(trajectory):
        if _only_waits(exchange[0]):
            return False  # for a command that takes its time; the limits count that
        exchanges.append(exchange)
        if len(exchanges) == times:
            break
    return len(exchanges) == times and all(exchange == exchanges[0] for exchange in exchanges)


def _only_waits(action: Action) -> bool:
    return isinstance(action, SendInput) and not action.text and action.key is None


def _exchanges_backwards(trajectory: Trajectory) -> Iterator[tuple[Action, Result]]:
    """Calls with their results, the last first, down to the last word of somebody else."""
    results: dict[str, Result] = {}
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Observed(call=id, observation=observation):
                results[id] = _essence(observation)
            case Decided(calls=calls):
                for call in reversed(calls):
                    if call.id in results:
                        yield call.action, results[call.id]
            case Told(source="brief" | "comment" | "resume"):
                return
            case _:
                continue


def _essence(observation: Result) -> Result:
    """An observation without what differs between two runs of the same command."""
    if not isinstance(observation, Ran):
        return observation
    # Test runners print how long they took.
    output = re.sub(r"\b\d+\.\d+ ?s\b", "", observation.output)
    return observation.model_copy(update={"seconds": 0.0, "output": output})
