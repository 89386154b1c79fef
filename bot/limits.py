"""How much may be asked of us in a day: by one person, for one repository, in dollars."""

import logging
from collections.abc import Awaitable, Callable

from bot.errors import QueueDown
from bot.redis.ledger import Ledger, Standing
from bot.words import over_limit
from bot.worker import Resolve
from resolver import prose
from resolver.domain import Job, JobId, Outcome, Refused, Spent
from resolver.forge import Forge
from resolver.settings import Settings

log = logging.getLogger(__name__)


def limited(
    resolve: Resolve, ledger: Ledger, forge: Forge, settings: Settings, spent: Callable[[JobId], Spent]
) -> Resolve:
    """`resolve` for jobs within the day's limits; the others are refused, and told why.

    `spent`: what a job has cost by its log.
    """

    async def within(job: Job) -> Outcome:
        standing = await ledger.begin(job)
        cost = spent(job.id)
        if cost.steps == 0 and (explanation := over(standing, settings)):  # what has begun may go on
            await forge.say(job.repo, job.number, job.id, prose.refused(explanation))
            outcome: Outcome = Refused(explanation=explanation)
        else:
            try:
                outcome = await resolve(job)
            finally:
                await _quietly(lambda: ledger.charge(job.id, spent(job.id)))
        return outcome

    return within


def over(standing: Standing, settings: Settings) -> str | None:
    """Which limit is reached, as a sentence; None: none is."""
    if standing.by_user > settings.user_runs_per_day:
        return over_limit("user_runs_per_day", standing.by_user, settings.user_runs_per_day)
    if standing.by_repository > settings.repository_runs_per_day:
        return over_limit("repository_runs_per_day", standing.by_repository, settings.repository_runs_per_day)
    if standing.usd >= settings.usd_per_day:
        return over_limit("usd_per_day", 0, settings.usd_per_day)
    return None


async def _quietly(note: Callable[[], Awaitable[None]]) -> None:
    """A cost that cannot be noted is noted with the next try, and lost at worst; the work is not."""
    try:
        await note()
    except QueueDown as exc:
        log.warning("cost not noted", extra={"reason": str(exc)})
