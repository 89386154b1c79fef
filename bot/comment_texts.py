"""Renders the comments that the bot posts outside a run, from `templates/replies/`."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from patchwright.bot.jobs import Cancellation, JobResult
from patchwright.resolver.comment_commands import COMMANDS
from patchwright.resolver.domain import Repo
from patchwright.resolver.rendering.template_renderer import render_reply

DailyLimit = Literal["user_runs_per_day", "repository_runs_per_day", "usd_per_day"]
"""The name of a setting that limits the number or the cost of the runs of one day."""


def over_limit_text(reason: DailyLimit, limit: int | Decimal) -> str:
    """Explains that a daily limit is reached and no run starts today."""
    return render_reply("over_limit.md.j2", reason=reason, limit=limit).strip().replace("\n", " ")


def help_text(mention: str, label: str, *, in_workflow: bool = False) -> str:
    """Lists the commands and how to use them. In a workflow, nothing can stop or continue a run."""
    return render_reply(
        "help.md.j2", commands=COMMANDS, mention=mention, label=label, in_workflow=in_workflow
    )


def stop_text(mention: str, *, has_unreadable: bool) -> str:
    """Renders the reply to a stop command that found no job, or could not cancel every job.

    `has_unreadable` is True if the queue contains a job that only another version of Patchwright can read.
    """
    return render_reply("stop.md.j2", mention=mention, has_unreadable=has_unreadable)


def cannot_stop_workflow_text(url: str) -> str:
    """Explains how to cancel a run in a workflow. `url` is the page that lists the workflow runs."""
    return render_reply("cannot_stop_workflow.md.j2", url=url)


def killed_run_text(mention: str) -> str:
    """Explains that a run in a workflow ended without a result."""
    return render_reply("killed_run.md.j2", mention=mention)


def queued_text(ahead: int, mention: str, *, same_thread: bool, building_images: bool = False) -> str:
    """Renders the notice that a job is queued behind `ahead` other jobs.

    `same_thread` is True if the other jobs belong to the same issue or pull request. `building_images` is True
    if no worker can take jobs yet, because container images are still being built.
    """
    return render_reply(
        "queue_notice.md.j2",
        ahead=ahead,
        mention=mention,
        same_thread=same_thread,
        building_images=building_images,
    )


def unreadable_job_text() -> str:
    """Explains that a job waits for a worker of the version that queued it."""
    return render_reply("unreadable_job.md.j2")


def cancellation_text(cancellation: Cancellation) -> str:
    """Explains why a queued job was canceled."""
    return render_reply("cancellation.md.j2", reason=cancellation.reason, by=cancellation.by).strip()


def ended_text(run: str, result: JobResult | None) -> str:
    """Renders the last status comment of a job that ended without posting its final text.

    `result` is None if the result of the job is unknown.
    """
    return render_reply("ended.md.j2", run=run, result=result)


def missing_permissions_text(permissions: Sequence[str], settings_url: str, notice_url: str) -> str:
    """Lists the permissions that the owner has to grant at `settings_url`.

    `notice_url` is the URL of an earlier notice that explains how to grant them; "" if there is none.
    """
    return render_reply(
        "missing_permissions.md.j2", permissions=permissions, settings_url=settings_url, notice_url=notice_url
    ).strip()


def repository_not_allowed_text(repo: Repo) -> str:
    """Explains that the operator has not allowed this repository."""
    return render_reply("repository_not_allowed.md.j2", repo=repo).strip()
