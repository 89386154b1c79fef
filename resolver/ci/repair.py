"""What becomes of checks that fail on a pull request of ours: a repair on its branch, or a word why there is none.

How often that was done already is read from the commits, so that nothing which is forgotten here begins it anew.
"""

import logging

from resolver import prose
from resolver.ci.check_log import MAX_LOG
from resolver.ci.checks import Check, CheckSeen, Failing, repairs_in_a_row
from resolver.deliver import tell
from resolver.domain import Commented, Job, Outcome, PullRequest, Refused, Thread, Verdict
from resolver.errors import Forbidden, ForgeError, NotFound, RateLimited, Unauthorized
from resolver.events import Settled
from resolver.follow_up import Attempting, follow_up
from resolver.forge import Forge, RepoFacts
from resolver.kit import Kit, Reporting
from resolver.log import Log
from resolver.words.quotation import printed
from resolver.words.wording import coded

logger = logging.getLogger(__name__)

LOGS = 3  # that are read of one commit: what fails on many systems fails on all of them alike
NAMES = 8  # that are listed


class Said(str):
    """Why there is no repair, in a sentence for the pull request."""


async def repair(
    job: Job,
    thread: Thread,
    facts: RepoFacts,
    log: Log,
    kit: Kit,
    forge: Forge,
    reporting: Reporting,
    attempt: Attempting,
) -> Outcome:
    """Repair what failed on the commit that the job names, if that is ours to do; else say why, where that helps."""
    assert isinstance(thread, PullRequest), "nothing is checked of an issue"
    failing = None
    if not log.trajectory.decisions():
        found = await _found(job, thread, facts, kit, forge)
        if not isinstance(found, Failing):
            return await _settled(job, found, log, forge)
        failing = found
    return await follow_up(job, thread, facts, log, kit, forge, reporting, attempt, failing)


async def _settled(job: Job, found: Said | Refused, log: Log, forge: Forge) -> Outcome:
    outcome: Outcome
    if isinstance(found, Refused):  # nobody asked, and nobody waits for an answer
        logger.info("checks left alone", extra={"job": job.id, "reason": found.explanation})
        outcome = found
        if log.trajectory.started is not None:
            await tell(job, forge, prose.refused(found.explanation))
    else:
        url = await tell(job, forge, found)
        verdict = Verdict(kind="empty", reason="Nothing was changed.")
        outcome = Commented(url=url, branch=None, reason=found, verdict=verdict)
    await log.append(Settled(outcome=outcome))
    return outcome


async def _found(
    job: Job, pull: PullRequest, facts: RepoFacts, kit: Kit, forge: Forge
) -> Failing | Said | Refused:
    """What is to be repaired; else what is to be said, or why nothing is."""
    limit = kit.settings.ci_repairs
    if not limit or facts.archived or pull.locked:
        return Refused(explanation="checks are not watched, or nobody may write here any more.")
    if not pull.open or not pull.same_repository or pull.head_sha != job.checks:
        return Refused(explanation="the pull request is closed, or not at this commit any more.")
    us, commits = await forge.identity(job.repo), await forge.commits(job.repo, job.number)
    if us is None or not commits or commits[-1].sha != job.checks or not commits[-1].is_by(us):
        return Refused(explanation="the last commit is not one of ours: it is not ours to repair.")
    try:
        checks = await forge.checks(job.repo, job.checks)
        at_base = await forge.checks(job.repo, pull.base)
    except (Forbidden, NotFound) as exc:
        return Refused(explanation=f"the checks may not be read: {exc}")
    failed = [one for one in checks if one.state == "failed"]
    broken = [one for one in checks if one.state == "broken"]
    if not failed:
        if not broken:
            return Refused(explanation="no check fails any more.")
        return _said("broken", job, pull, broken)
    red = {(one.by, one.name) for one in at_base if one.state == "failed"}
    ours = [one for one in failed if (one.by, one.name) not in red]
    if not ours:
        return _said("red", job, pull, failed)
    done = repairs_in_a_row(commits, us)
    if done >= limit:
        return _said("limit", job, pull, ours, done)
    return Failing(
        commit=job.checks,
        checks=tuple([await _seen(job, one, kit, forge) for one in ours[:LOGS]]),
        unread=tuple(_name(one) for one in ours[LOGS : LOGS + NAMES]),
        red_at_base=tuple(_name(one) for one in failed if one not in ours)[:NAMES],
    )


def _said(why: str, job: Job, pull: PullRequest, checks: list[Check], done: int = 0) -> Said:
    names = tuple((coded(_name(one)), one.how) for one in checks)
    text = prose.reply(
        "checks.md.j2",
        why=why,
        commit=job.checks,
        pull=pull,
        names=names[:NAMES],
        more=len(names[NAMES:]),
        done=done,
    )
    return Said(text.strip())


def _name(check: Check) -> str:
    """One line that nothing in a stranger's name can leave."""
    words = " ".join(check.name.split())
    return "".join(char for char in words if char.isprintable())[:100].strip() or "a check"


async def _seen(job: Job, check: Check, kit: Kit, forge: Forge) -> CheckSeen:
    try:
        text = await forge.check_log(job.repo, check)
    except (Unauthorized, RateLimited):
        raise
    except ForgeError as exc:
        return CheckSeen(name=_name(check), by=check.by[:100], log=None, problem=kit.secrets.mask(str(exc)))
    if not text.strip():
        return CheckSeen(
            name=_name(check), by=check.by[:100], log=None, problem="it printed and reported nothing"
        )
    return CheckSeen(
        name=_name(check), by=check.by[:100], log=printed(kit.secrets.mask(text), MAX_LOG + 1_000)
    )
