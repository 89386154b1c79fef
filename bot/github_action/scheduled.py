"""Finds what earlier workflow runs left behind: requests without a reply, for a scheduled workflow, and the status
comments of killed runs.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.reconcile.poller import Poller
from patchwright.bot.webhooks.delivery import Delivery, IgnoredEvent
from patchwright.bot.webhooks.triggers import Triggers, find_job, possible_job_ids
from patchwright.resolver.domain import Job, Repo
from patchwright.resolver.errors import ForgeError, SettingsError
from patchwright.resolver.rendering.template_renderer import render_reply

log = logging.getLogger(__name__)

SCHEDULED_EVENTS = frozenset({"schedule", "workflow_dispatch"})
# How far back to search. GitHub keeps deliveries for the same time.
LOOKBACK = timedelta(days=3)


async def find_missed_delivery(
    github: GitHubForge, repo: Repo, triggers: Triggers, min_age: timedelta
) -> Delivery:
    """Returns the event of the oldest request that the bot has not replied to. Returns an IgnoredEvent if there
    is no such request.

    Skips requests that are younger than `min_age`, because their workflows may still be running. The reason in the
    IgnoredEvent names them. Raises ForgeError.
    """
    young: list[int] = []
    now = datetime.now(UTC)
    poller = Poller(github.rest, github.identity, (repo,))
    for repository in await poller.repositories.list_current():
        if str(repository.repo).lower() != str(repo).lower():
            continue
        result = await poller.poll(repository, now - LOOKBACK, "", triggers.label)
        for event in sorted(result.events, key=lambda event: event.occurred_at) if result else ():
            job = find_job(event.delivery, triggers)
            if job and result and not {*possible_job_ids(event.delivery, job)} & result.own_comments.keys():
                if event.occurred_at + min_age <= now:
                    return event.delivery
                young.append(job.number)
    return IgnoredEvent(event="schedule", reason=_describe_young_requests(young, min_age))


def _describe_young_requests(numbers: Sequence[int], min_age: timedelta) -> str:
    if not numbers:
        return f"No missed requests: all requests of the last {LOOKBACK.days} days have a reply."
    threads = ", ".join(f"#{number}" for number in dict.fromkeys(numbers))
    return (
        f"Nothing to do yet: a request in {threads} has no reply, but it is younger than "
        f"{min_age.total_seconds() / 60:.0f} minutes, so another workflow run may still be working on it."
    )


async def correct_stale_comments(github: GitHubForge, job: Job, mention: str) -> None:
    """Says in the thread's other status comments that their runs have ended, if they still show progress.

    A run that does work at the same time, in another workflow, replaces this text with its next progress or its
    result. A failure is only logged, because it must not keep the job from its own work.
    """
    try:
        for run in await github.list_comments_in_progress(job.repo, job.number):
            if run != job.id:
                await github.upsert_comment(
                    job.repo, job.number, run, render_reply("killed_run.md.j2", mention=mention)
                )
    except ForgeError as exc:
        log.warning("stale comment not corrected", extra={"job": job.id, "error": str(exc)})


def workflow_repository(environ: Mapping[str, str]) -> Repo:
    """Returns the workflow's repository. Raises SettingsError if it is not set."""
    try:
        return Repo.parse(environ.get("GITHUB_REPOSITORY", ""))
    except ValueError as exc:
        raise SettingsError(
            "GITHUB_REPOSITORY is not set. Run this command in a GitHub Actions workflow."
        ) from exc
