"""The way of finished work through the proof, and back to the agent a bounded number of times."""

from collections.abc import Awaitable, Callable

from resolver import proof_prose
from resolver.domain import Verdict
from resolver.events import Ended, Judged, Told
from resolver.kit import Kit
from resolver.log import Log
from resolver.validate import Heard


async def judged(
    log: Log, kit: Kit, ending: Ended, prove: Callable[[Heard], Awaitable[Verdict]]
) -> Verdict | None:
    """The verdict with which the work is over; None: the agent was told what it has to mend, and goes on.

    A verdict on the tests that were run first ends the proof when it goes back: the agent need not wait for the rest.
    """
    told = sum(isinstance(event, Told) and event.source == "proof" for event in log.trajectory)
    may_go_on = ending.reason == "finished" and told < kit.settings.repairs

    async def heard(first: Verdict) -> bool:
        await log.append(Judged(verdict=first))
        return may_go_on and goes_back(first)

    verdict = await prove(heard)
    if not verdict.partial:
        await log.append(Judged(verdict=verdict))
    if not (may_go_on and goes_back(verdict)):
        return verdict
    await log.append(Told(text=proof_prose.sent_back(verdict), source="proof"))
    return None


def goes_back(verdict: Verdict) -> bool:
    """Whether the agent is to hear of it: it broke something, or its own tests fail."""
    return verdict.kind == "regressed" or bool(verdict.still_failing)
