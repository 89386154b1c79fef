"""Repairs failed checks on the bot's pull requests, or explains why there is no repair.

The number of earlier repairs is counted from the commits of the pull request. Even if stored state is lost,
repairs therefore cannot continue endlessly.
"""

import logging

from patchwright.resolver.checks import Check, FailedCheck, FailedChecks, count_consecutive_repairs
from patchwright.resolver.ci.log_excerpt import MAX_EXCERPT
from patchwright.resolver.domain import Job, Outcome, PullRequest, Rejected, Reported, Verdict
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound, RateLimited, Unauthorized
from patchwright.resolver.events import JobCompleted
from patchwright.resolver.forge import Forge, RepoFacts
from patchwright.resolver.pipeline.publish import post_comment
from patchwright.resolver.pipeline.resolve_pull_request import resolve_pull_request
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.filters import inline_code
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run.dependencies import Run, RunDependencies
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.text.untrusted import quote_output

logger = logging.getLogger(__name__)

# Number of logs that are read per commit. Checks that fail on several systems usually fail for the same
# reason.
MAX_LOGS = 3
MAX_NAMES = 8  # Number of check names that a notice lists.


class NoRepairNotice(str):
    """A text for the pull request that says why there is no repair."""


async def repair_failed_checks(run: Run) -> Outcome:
    """Repairs the failed checks of the job's commit if the bot made the commit. If no repair is possible and
    people need to know why, posts the reason.
    """
    assert isinstance(run.thread, PullRequest), "an issue has no checks to repair"
    failing = None
    if not run.log.trajectory.replies():
        result = await _find_failed_checks(run.job, run.thread, run.facts, run.deps, run.forge)
        if not isinstance(result, FailedChecks):
            return await _complete_without_repair(run.job, result, run.log, run.forge)
        failing = result
    return await resolve_pull_request(run, failing)


async def _complete_without_repair(
    job: Job, reason: NoRepairNotice | Rejected, log: RunLog, forge: Forge
) -> Outcome:
    outcome: Outcome
    if isinstance(reason, Rejected):  # No person requested this job, so nobody expects a reply.
        logger.info("checks not repaired", extra={"job": job.id, "reason": reason.explanation})
        outcome = reason
        if log.trajectory.run_started is not None:
            await post_comment(job, forge, reply_texts.render_rejection(reason.explanation))
    else:
        url = await post_comment(job, forge, reason)
        verdict = Verdict(kind="empty", reason="Nothing was changed.")
        outcome = Reported(url=url, branch=None, reason=reason, verdict=verdict)
    await log.append(JobCompleted(outcome=outcome))
    return outcome


async def _find_failed_checks(
    job: Job, pull: PullRequest, facts: RepoFacts, deps: RunDependencies, forge: Forge
) -> FailedChecks | NoRepairNotice | Rejected:
    """Returns the failed checks to repair, a notice to post, or a rejection that is only logged."""
    limit = deps.settings.max_ci_repairs
    if not limit or facts.archived or pull.locked:
        return Rejected(
            explanation="repairs of failed checks are disabled, or the pull request is read-only."
        )
    if not pull.open or not pull.is_same_repository or pull.head_sha != job.failed_checks_commit:
        return Rejected(explanation="the pull request is closed or no longer at this commit.")
    bot_user, commits = await forge.get_bot_user(job.repo), await forge.list_commits(job.repo, job.number)
    if (
        bot_user is None
        or not commits
        or commits[-1].sha != job.failed_checks_commit
        or not commits[-1].is_run_commit(bot_user)
    ):
        return Rejected(explanation="the last commit is not mine, so I do not repair it.")
    try:
        checks = await forge.list_checks(job.repo, job.failed_checks_commit)
        at_base = await forge.list_checks(job.repo, pull.base_branch)
    except (Forbidden, NotFound) as exc:
        return Rejected(explanation=f"the checks cannot be read: {exc}")
    failed = [check for check in checks if check.state == "failed"]
    broken = [check for check in checks if check.state == "broken"]
    if not failed:
        if not broken:
            return Rejected(explanation="no check fails anymore.")
        return _render_notice("inconclusive", job, pull, broken)
    failed_at_base = {(check.app, check.name) for check in at_base if check.state == "failed"}
    to_repair = [check for check in failed if (check.app, check.name) not in failed_at_base]
    if not to_repair:
        return _render_notice("failing_at_base", job, pull, failed)
    repair_count = count_consecutive_repairs(commits, bot_user)
    if repair_count >= limit:
        return _render_notice("limit", job, pull, to_repair, repair_count)
    return FailedChecks(
        commit=job.failed_checks_commit,
        checks=tuple([await _load_failed_check(job, check, deps, forge) for check in to_repair[:MAX_LOGS]]),
        unread_names=tuple(_display_name(check) for check in to_repair[MAX_LOGS : MAX_LOGS + MAX_NAMES]),
        failing_at_base=tuple(_display_name(check) for check in failed if check not in to_repair)[:MAX_NAMES],
    )


def _render_notice(
    reason: str, job: Job, pull: PullRequest, checks: list[Check], repair_count: int = 0
) -> NoRepairNotice:
    names = tuple((inline_code(_display_name(check)), check.conclusion) for check in checks)
    text = render_reply(
        "checks_not_repaired.md.j2",
        reason=reason,
        commit=job.failed_checks_commit,
        pull=pull,
        names=names[:MAX_NAMES],
        more_count=len(names[MAX_NAMES:]),
        repair_count=repair_count,
    )
    return NoRepairNotice(text.strip())


def _display_name(check: Check) -> str:
    """Returns the check's name as one line of printable characters. The name is untrusted."""
    words = " ".join(check.name.split())
    return "".join(char for char in words if char.isprintable())[:100].strip() or "a check"


async def _load_failed_check(job: Job, check: Check, deps: RunDependencies, forge: Forge) -> FailedCheck:
    try:
        text = await forge.get_check_log(job.repo, check)
    except (Unauthorized, RateLimited):
        raise
    except ForgeError as exc:
        return FailedCheck(
            name=_display_name(check), app=check.app[:100], log=None, problem=deps.secrets.mask(str(exc))
        )
    if not text.strip():
        return FailedCheck(
            name=_display_name(check),
            app=check.app[:100],
            log=None,
            problem="it has no output",
        )
    return FailedCheck(
        name=_display_name(check),
        app=check.app[:100],
        log=quote_output(deps.secrets.mask(text), MAX_EXCERPT + 1_000),
    )
