"""Enforces daily limits per user and per repository, and a daily limit on total cost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Literal

from patchwright.bot.errors import QueueDown
from patchwright.bot.github.start_labels import is_allowed
from patchwright.bot.job_runner import JobResolver
from patchwright.bot.redis.quotas import DailyUsage, Quotas
from patchwright.bot.write_limiter import Priority, write_priority
from patchwright.resolver.authorization import authorize
from patchwright.resolver.domain import Job, JobId, Outcome, Rejected, Usage
from patchwright.resolver.forge import Forge
from patchwright.resolver.pipeline.publish import post_comment
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.settings.settings import Settings

log = logging.getLogger(__name__)

DailyLimit = Literal["user", "repository", "usd"]
"""What exceeds a limit of one day: the runs of a person or a repository, or the cost of all runs."""


def with_daily_limits(
    resolve: JobResolver,
    quotas: Quotas,
    forge: Forge,
    settings: Settings,
    read_usage: Callable[[JobId], Usage],
) -> JobResolver:
    """Wraps `resolve` so that a job is rejected if it exceeds a daily limit, or if the operator has not allowed
    its repository. The rejection contains the reason.

    `read_usage` returns the usage of a job from the job's log, and may block.
    """

    async def usage_of(job: Job) -> Usage:
        return await asyncio.to_thread(read_usage, job.id)

    async def resolve_within_limits(job: Job) -> Outcome:
        daily_usage = await quotas.count_start(job)
        if job.requester is None:  # A CI failure started this job, so it counts toward no user's limit.
            daily_usage = daily_usage.model_copy(update={"user_jobs": 0})
        has_started = (await usage_of(job)).steps > 0
        explanation = (
            None
            if has_started
            else repository_not_allowed(job, settings) or exceeded_limit(daily_usage, settings)
        )
        # Users without write access get no notice about limits: `resolve` rejects their jobs before any work.
        if explanation is not None and await authorize(forge, job.repo, job.requester):
            with write_priority(Priority.ACKNOWLEDGMENT):
                await post_comment(job, forge, reply_texts.render_rejection(explanation))
            outcome: Outcome = Rejected(explanation=explanation)
        else:
            try:
                outcome = await resolve(job)
            finally:
                usage = await usage_of(job)
                await _ignore_queue_down(lambda: quotas.record_cost(job.id, usage))
        if isinstance(outcome, Rejected) and not (await usage_of(job)).steps:
            # A rejected job does not count. Otherwise comments by users without write access would use up the
            # repository's daily limit.
            await _ignore_queue_down(lambda: quotas.forget_start(job))
        return outcome

    return resolve_within_limits


def repository_not_allowed(job: Job, settings: Settings) -> str | None:
    """Returns an explanation if the operator has not allowed the job's repository, otherwise None."""
    if is_allowed(job.repo, settings):
        return None
    return render_reply("repository_not_allowed.md.j2", repo=job.repo).strip()


def exceeded_limit(usage: DailyUsage, settings: Settings) -> str | None:
    """Returns a sentence that names the first daily limit that this usage exceeds, or None if the usage is
    within all limits.
    """
    if usage.user_jobs > settings.runs_per_day:
        return _explain_limit("user", settings.runs_per_day)
    if usage.repository_jobs > settings.runs_per_day:
        return _explain_limit("repository", settings.runs_per_day)
    if usage.usd >= settings.usd_per_day:
        return _explain_limit("usd", settings.usd_per_day)
    return None


def _explain_limit(reason: DailyLimit, limit: int | Decimal) -> str:
    return render_reply("over_limit.md.j2", reason=reason, limit=limit).strip().replace("\n", " ")


async def _ignore_queue_down(operation: Callable[[], Awaitable[None]]) -> None:
    """Runs the operation. If Redis fails, only logs the failure.

    If the cost of a job could not be recorded, the next try of the job records it. If the job has no further
    try, its cost is missing from the daily total.
    """
    try:
        await operation()
    except QueueDown as exc:
        log.warning("cost not recorded", extra={"reason": str(exc)})
