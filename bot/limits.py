"""How much may be asked of us in a day: by one person, for one repository, in dollars."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase

from bot.errors import QueueDown
from bot.pacing import Urgency, writing
from bot.redis.ledger import Ledger, Standing
from bot.words import not_listed, over_limit
from bot.worker import Resolve
from resolver import prose
from resolver.deliver import tell
from resolver.domain import Job, JobId, Outcome, Refused, Spent
from resolver.forge import Forge, may_trigger
from resolver.settings.settings import Settings

log = logging.getLogger(__name__)


def limited(
    resolve: Resolve, ledger: Ledger, forge: Forge, settings: Settings, spent: Callable[[JobId], Spent]
) -> Resolve:
    """`resolve` for jobs within the day's limits; the others are refused, and told why.

    `spent`: what a job has cost by its log; it may block.
    """

    async def on(job: Job) -> Spent:
        return await asyncio.to_thread(spent, job.id)

    async def within(job: Job) -> Outcome:
        standing = await ledger.begin(job)
        if job.requester is None:  # checks that fail are nobody's wish
            standing = standing.model_copy(update={"by_user": 0})
        begun = (await on(job)).steps > 0
        explanation = None if begun else unlisted(job, settings) or over(standing, settings)
        # A stranger hears of no limits: they are refused as one, by `resolve`, before any work.
        if explanation is not None and await may_trigger(job, forge):
            with writing(Urgency.ACKNOWLEDGEMENT):
                await tell(job, forge, prose.refused(explanation))
            outcome: Outcome = Refused(explanation=explanation)
        else:
            try:
                outcome = await resolve(job)
            finally:
                cost = await on(job)
                await _quietly(lambda: ledger.charge(job.id, cost))
        if isinstance(outcome, Refused) and not (await on(job)).steps:
            # Else a stranger's words would use up a repository's day.
            await _quietly(lambda: ledger.forget(job))
        return outcome

    return within


def unlisted(job: Job, settings: Settings) -> str | None:
    """Why this repository is not worked for; None: it is."""
    name, listed = str(job.repo).lower(), settings.only_repositories
    if not listed or any(fnmatchcase(name, pattern.lower()) for pattern in listed):
        return None
    return not_listed(job.repo)


def over(standing: Standing, settings: Settings) -> str | None:
    """Which limit is reached, as a sentence; None: none is."""
    if standing.by_user > settings.user_runs_per_day:
        return over_limit("user_runs_per_day", settings.user_runs_per_day)
    if standing.by_repository > settings.repository_runs_per_day:
        return over_limit("repository_runs_per_day", settings.repository_runs_per_day)
    if standing.usd >= settings.usd_per_day:
        return over_limit("usd_per_day", settings.usd_per_day)
    return None


async def _quietly(note: Callable[[], Awaitable[None]]) -> None:
    """A cost that cannot be noted is noted with the next try, and lost at worst; the work is not."""
    try:
        await note()
    except QueueDown as exc:
        log.warning("cost not noted", extra={"reason": str(exc)})
