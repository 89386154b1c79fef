"""THE WAY OF A PULL REQUEST, top to bottom: a review, a mention or a label on it becomes a commit on its branch."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from resolver.ci.checks import Failing
from resolver.deliver import Attempt
from resolver.domain import Commented, Issue, Job, Outcome, Patch, PullRequest, Verdict
from resolver.errors import ForgeError
from resolver.events import Ended, Judged, Settled
from resolver.forge import Forge, RepoFacts
from resolver.git.merging import Merge, merge
from resolver.kit import Kit, Reporting
from resolver.log import Log
from resolver.preparing.attachments import attachments
from resolver.preparing.preparing import prepared, started
from resolver.proof.baseline import Baselines, Bases
from resolver.proof.merge import prove_merge
from resolver.pull import follow_up_prose
from resolver.pull.handing_over import Work, hand_over
from resolver.pull.seen import ANSWERS, PullSeen, earlier_runs, pull_seen, runs_of
from resolver.settings import configuration
from resolver.settings.repository import complain, read_config
from resolver.suites.find import find_suites
from resolver.suites.suite import Suites
from resolver.validate import prove
from resolver.workspace import Workspace
from runtime.sandbox import Sandboxes

Attempting = Callable[..., Awaitable[Attempt]]
"""`resolve.attempt`."""

BY_GIT = "The base branch was merged by git alone: no agent was needed."

# As people ask for it: "@agent rebase", "resolve the merge conflicts", "bring this up to date with main".
MERGES = re.compile(
    r"\brebase\b|\b(resolve|fix|solve|mend)\b[^.\n]{0,40}\bconflicts?\b|\bmerge (in )?(the )?(base|main|master)\b"
    r"|\bupdate (the|this|my) branch\b|\bbring\b[^.\n]{0,40}\bup to date\b",
    re.IGNORECASE,
)


_BESIDE = re.compile(
    r"@[\w-]+|\b(please|can|could|would|you|to|this|it|the|on|onto|with|into|in|and|our|latest|current|changes|from"
    r"|main|master|base|branch|merge|pull request|pr|now|again|thanks?)\b|\W",
    re.IGNORECASE,
)
"""What people say beside it, and mean no more by."""


async def follow_up(
    job: Job,
    thread: PullRequest,
    facts: RepoFacts,
    log: Log,
    kit: Kit,
    forge: Forge,
    reporting: Reporting,
    attempt: Attempting,
    failing: Failing | None = None,
) -> Outcome:
    """Work on an admitted pull request to its end: its head is pinned, and its base branch says how it is done.

    `failing`: what checks find of the head, where that is what is to be mended.
    """
    async with reporting(job, log):
        credentials = await forge.credentials(job.repo)
        kit.secrets.add(credentials.token)
        if log.trajectory.started is not None:
            assert isinstance(log.trajectory.started.thread, PullRequest)
            thread = log.trajectory.started.thread
        rules = thread.base_sha or thread.base
        async with kit.workspaces.clone(facts.clone_url, thread.head_sha, credentials, rules) as workspace:
            if log.trajectory.started is None:
                thread = _pinned(job, thread, workspace)
                await log.append(started(job, thread, workspace, facts.clone_url, thread.base, kit))
            assert log.trajectory.started is not None
            await complain(job, workspace, forge)
            wanted = asked_to_merge(log.trajectory.started.job, thread)
            merged = await merge(workspace, workspace.rules.base) if wanted else None
            if wanted == "alone" and merged is None:
                outcome: Outcome = await _nothing_to_merge(job, thread, forge)
            else:
                if wanted == "alone" and merged is not None and not merged.conflicts:
                    tried = await _plain_merge(job, workspace, merged, log, kit)
                else:
                    tried = await _by_agent(job, thread, workspace, merged, log, kit, forge, attempt, failing)
                at = workspace.at_commit(merged.commit) if merged else workspace
                work = Work(at, tried.patch, tried.verdict, merged)

                async def again(at: Workspace, patch: Patch) -> Verdict:
                    return await _prove_again(job, at, patch, log, kit)

                outcome = await hand_over(job, thread, tried, work, facts, log, kit, forge, again)
    await log.append(Settled(outcome=outcome))
    return outcome


def asked_to_merge(job: Job, pull: PullRequest) -> Literal["", "too", "alone"]:
    """Whether the base branch is to be merged in, by the command or by the review that is the trigger; "": it is not.

    too: beside something else. alone: that is all.
    """
    said = pull.review.body if pull.review and pull.review.trusted else ""
    asked = job.asked
    text = f"{asked.text}\n{said}"
    if asked.verb in ("plan", "explain") or not MERGES.search(text):
        return ""
    more = _BESIDE.sub("", MERGES.sub("", text)) or any(thread.asked for thread in pull.threads)
    return "too" if more else "alone"


def _pinned(job: Job, pull: PullRequest, workspace: Workspace) -> PullRequest:
    """The pull request as the run goes on to see it."""
    now: dict[str, object] = {"base_sha": workspace.rules.base}
    if asked_to_merge(job, pull) == "alone":
        now["threads"] = ()  # nobody asked about them
    if job.checks:
        now["threads"], now["comments"] = (), tuple(one for one in pull.comments if one.trusted)
    return pull.model_copy(update=now)


async def _by_agent(
    job: Job,
    pull: PullRequest,
    workspace: Workspace,
    merged: Merge | None,
    log: Log,
    kit: Kit,
    forge: Forge,
    attempt: Attempting,
    failing: Failing | None,
) -> Attempt:
    at = workspace.at_commit(merged.commit) if merged else workspace
    attached = await attachments(pull, job.repo, forge)
    seen = (
        None if log.trajectory.decisions() else await _seen(job, pull, workspace, merged, kit, forge, failing)
    )
    return await attempt(job, at, log, kit, attached, seen, merged)


async def _seen(
    job: Job,
    pull: PullRequest,
    workspace: Workspace,
    merged: Merge | None,
    kit: Kit,
    forge: Forge,
    failing: Failing | None,
) -> PullSeen:
    """What the agent is shown of the pull request, with its issue and what earlier runs of ours say of it."""
    issue: Issue | None = None
    if named := ANSWERS.findall(pull.body):
        try:
            found = await forge.thread(job.model_copy(update={"number": int(named[-1])}))
            issue = found if isinstance(found, Issue) else None
        except ForgeError as exc:
            if exc.retryable:
                raise
    earlier = await earlier_runs(job, runs_of(pull, issue.reports if issue else ()), kit.logs)
    return await pull_seen(pull, workspace, earlier, merged, failing, issue)


async def _nothing_to_merge(job: Job, pull: PullRequest, forge: Forge) -> Commented:
    reason = follow_up_prose.up_to_date(pull)
    url = await forge.say(job.repo, job.number, job.id, reason)
    return Commented(url=url, branch=None, reason=reason, verdict=Verdict(kind="empty", reason=reason))


# --- what needs no agent ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tests:
    """How the repository is tested, as its base branch says."""

    suites: Suites
    sandboxes: Sandboxes
    seconds: int
    remembered: Baselines


async def _tests(job: Job, workspace: Workspace, log: Log, kit: Kit) -> _Tests:
    config = (await read_config(workspace.rules)).config
    await configuration.record(log, kit, config)
    suites = await find_suites(workspace.rules, config)
    return _Tests(
        suites=suites,
        sandboxes=await prepared(job, workspace, config, suites, log, kit),
        seconds=config.test_timeout or kit.settings.test_timeout,
        remembered=Baselines(kit.settings.data / "cache" / "baselines"),
    )


async def _plain_merge(job: Job, workspace: Workspace, merged: Merge, log: Log, kit: Kit) -> Attempt:
    """A merge in which nothing is in conflict, proven like any other change."""
    nothing = Patch(base=merged.commit, diff=b"")
    if log.trajectory.ended is None:
        await log.append(Ended(reason="finished", detail=BY_GIT))
    ended = log.trajectory.ended
    assert ended is not None
    if verdict := log.trajectory.verdict:
        return Attempt(ended, nothing, verdict)
    at = workspace.at_commit(merged.commit)
    tests = await _tests(job, at, log, kit)
    async with Bases(workspace, tests.sandboxes, job.id, tests.seconds, tests.remembered) as head:
        verdict = await prove_merge(
            merged, tests.remembered, at, nothing, tests.suites, tests.sandboxes, job.id, tests.seconds, head
        )
    await log.append(Judged(verdict=verdict))
    return Attempt(ended, nothing, verdict)


async def _prove_again(job: Job, at: Workspace, patch: Patch, log: Log, kit: Kit) -> Verdict:
    """The verdict on a patch that was put on top of another head."""
    tests, name = await _tests(job, at, log, kit), f"{job.id}-moved"
    async with Bases(at, tests.sandboxes, name, tests.seconds, tests.remembered) as bases:
        return await prove(at, patch, tests.suites, tests.sandboxes, name, tests.seconds, bases)
