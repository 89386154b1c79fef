"""What becomes of the work on somebody's pull request: a commit on its branch, and an answer in each thread.

Nobody's push is ever overwritten: where the branch has moved, the change goes on top of what is there, proven again.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from resolver import prose
from resolver.ci.checks import RUN
from resolver.ci.hold import CI, ci_for
from resolver.deliver import AUTHOR, Attempt, leaks, tell, undelivered
from resolver.delivery.finding import show_finding
from resolver.delivery.keeping import InComment, OnBranch, publish_or_attach, run_directory, signature
from resolver.domain import Commented, Delivered, Job, Outcome, Patch, PullRequest, Verdict
from resolver.errors import BranchMoved, Forbidden, ForgeError, NotFound, Unauthorized, WorkspaceError
from resolver.events import Judged
from resolver.forge import Forge, Published, RepoFacts
from resolver.git.merging import Merge
from resolver.git.plumbing import run_git
from resolver.kit import Kit
from resolver.log import Log
from resolver.pull import follow_up_prose
from resolver.pull.follow_up_prose import Told
from resolver.pull.threads import answers, open_threads, waiting
from resolver.secrets import masked
from resolver.security.policy import bounds, check
from resolver.summary import summarize
from resolver.words.wording import coded
from resolver.workspace import Workspace
from runtime.errors import NoSandboxes

logger = logging.getLogger(__name__)

MOVES = 2  # times that a branch may move away under us

Prove = Callable[[Workspace, Patch], Awaitable[Verdict]]


@dataclass(frozen=True)
class Work:
    """A change on a commit, and what the tests say of it."""

    workspace: Workspace
    patch: Patch
    verdict: Verdict
    merge: Merge | None
    """Where the commit is that merge."""

    @property
    def parents(self) -> tuple[str, ...]:
        return self.merge.parents if self.merge else (self.workspace.base,)


@dataclass(frozen=True)
class Place:
    """Where the work is."""

    work: Work
    at: OnBranch | InComment | None = None
    """None: there is none."""
    instead: str = ""
    """Why it is not on the pull request, in a sentence; empty: it is."""
    moved: bool = False
    """Whether somebody else pushed meanwhile."""

    @property
    def sha(self) -> str | None:
        """The commit on the pull request."""
        return self.at.published.sha if isinstance(self.at, OnBranch) and not self.instead else None


async def hand_over(
    job: Job,
    pull: PullRequest,
    tried: Attempt,
    work: Work,
    facts: RepoFacts,
    log: Log,
    kit: Kit,
    forge: Forge,
    prove: Prove,
) -> Outcome:
    """Publish the work where its verdict and the forge allow, answer the threads, and say in the thread how it went.

    Every effect is looked up before it is made, so that the same work can be handed over again after a crash.
    """
    story = summarize(log.trajectory)
    if (early := await undelivered(job, tried.ending, log.trajectory, forge)) is not None:
        return early
    content = await check(work.workspace, work.patch, bounds(kit.settings))
    refused = content.refused or await leaks(work.patch, content.files, work.workspace, kit.secrets)
    if refused:
        place = Place(work, instead=prose.against_policy(refused))
    elif work.verdict.kind == "empty":
        left_out = prose.against_policy(tried.left_out) if tried.left_out else ""
        place = Place(work, instead=left_out or follow_up_prose.not_here("empty"))
    else:
        place = await _place(job, pull, work, facts, log, kit, forge, prove)
    told, unresolved = await _answer(job, pull, place, log, forge)
    ci = await _ci(job, place.work, log, kit, forge)
    url = await tell(
        job,
        forge,
        follow_up_prose.followed_up(
            pull,
            place.at,
            place.work.verdict,
            story,
            on_head=place.sha is not None,
            instead=place.instead,
            moved=place.moved,
            told=told,
            unresolved=unresolved,
            notes=content.notes,
            left_out=tried.left_out,
            left_open=tried.left_open,
            merge=work.merge,
            ci=ci.told(kit.settings.mention) if place.sha is not None else "",
            checks=job.checks,
        ),
    )
    verdict = place.work.verdict
    if place.sha is not None:
        await show_finding(job, place.sha, verdict, story, forge)
        return Delivered(
            url=pull.url,
            number=pull.number,
            branch=pull.head,
            draft=pull.draft,
            verdict=verdict,
            ci=ci.state,
        )
    branch = place.at.name if isinstance(place.at, OnBranch) else None
    return Commented(url=url, branch=branch, reason=place.instead, verdict=verdict)


# --- where the work goes ------------------------------------------------------------------------------------


async def _place(
    job: Job,
    pull: PullRequest,
    work: Work,
    facts: RepoFacts,
    log: Log,
    kit: Kit,
    forge: Forge,
    prove: Prove,
) -> Place:
    """On the pull request's own branch; else on one of ours, or in a comment, and why."""
    place = Place(work)
    for left in reversed(range(MOVES + 1)):
        if why := await _objection(job, pull, place.work, facts, forge):
            return await _elsewhere(job, replace(place, instead=why), log, kit, forge)
        commit = await _commit(job, pull, place.work, log, kit, forge)
        into = None if pull.same_repository else pull.head_repo
        git_dir, parent = place.work.workspace.git_dir, place.work.parents[0]
        try:
            seen = await forge.publish(job.repo, git_dir, commit, pull.head, parent, into)
            return replace(place, at=OnBranch(pull.head, seen))
        except BranchMoved:
            place = await _on_top(job, pull, place, facts, log, kit, forge, prove, last=not left)
            if place.at is not None:
                return place
        except Unauthorized:
            raise
        except (ForgeError, WorkspaceError) as exc:
            if exc.retryable:
                raise
            place = replace(place, instead=follow_up_prose.not_here("refused", str(exc)))
        if place.instead:
            break
    return await _elsewhere(job, place, log, kit, forge)


async def _objection(job: Job, pull: PullRequest, work: Work, facts: RepoFacts, forge: Forge) -> str:
    """Why this work does not go on the pull request's branch as it is now, in a sentence; empty: it may."""
    if work.verdict.kind == "regressed":
        return follow_up_prose.not_here("regressed", work.verdict.reason)
    if work.verdict.still_failing:
        return follow_up_prose.not_here("failing", ", ".join(map(coded, work.verdict.still_failing[:3])))
    if pull.head_repo is None:
        return follow_up_prose.not_here("gone")
    if pull.same_repository and pull.head == facts.default_branch:
        return follow_up_prose.not_here("default")
    now = await forge.thread(job)
    if not now.open:
        return follow_up_prose.not_here("closed")
    if isinstance(now, PullRequest) and not (now.same_repository or now.maintainer_can_modify):
        return follow_up_prose.not_here("fork")
    return ""


async def _on_top(
    job: Job,
    pull: PullRequest,
    place: Place,
    facts: RepoFacts,
    log: Log,
    kit: Kit,
    forge: Forge,
    prove: Prove,
    *,
    last: bool,
) -> Place:
    """The work on the head as it is now, proven there; or why it does not go there."""
    now = await forge.thread(job)
    assert isinstance(now, PullRequest)
    credentials = await forge.credentials(job.repo)
    kit.secrets.add(credentials.token)
    head = now.head_sha
    workspace = await kit.workspaces.fetch(place.work.workspace, facts.clone_url, head, credentials)
    if own := await _own_commit(workspace, pull.head_sha, head, job):
        # Of an earlier try, with somebody's push before it, behind it, or both.
        return replace(place, at=OnBranch(pull.head, Published(sha=own, verified=True)), moved=True)
    if place.work.merge:
        return replace(place, instead=follow_up_prose.not_here("moved_merge"))
    if job.checks:
        return replace(place, instead=follow_up_prose.not_here("moved_checks"))
    if last:
        return replace(place, instead=follow_up_prose.not_here("moving"))
    patch = Patch(base=head, diff=place.work.patch.diff)
    try:
        await workspace.tree(patch)
    except WorkspaceError:
        return replace(place, instead=follow_up_prose.not_here("moved"))
    try:
        verdict = await prove(workspace, patch)
    except NoSandboxes:
        return replace(place, instead=follow_up_prose.not_here("moved_unproven"))
    await log.append(Judged(verdict=verdict))
    return replace(place, work=Work(workspace, patch, verdict, None), moved=True)


async def _own_commit(workspace: Workspace, since: str, head: str, job: Job) -> str | None:
    """The commit of this run between two heads, if there is one."""
    listed = await run_git(
        *("log", f"--format=%H %(trailers:key={RUN},valueonly,separator=%x20)", f"{since}..{head}"),
        git_dir=workspace.git_dir,
    )
    rows = (line.split() for line in listed.decode(errors="replace").splitlines())
    return next((row[0] for row in rows if job.id in row[1:]), None)


async def _elsewhere(job: Job, place: Place, log: Log, kit: Kit, forge: Forge) -> Place:
    """The work on a branch of ours, or in the comment."""
    started = log.trajectory.started
    assert started is not None and isinstance(started.thread, PullRequest)
    work, pull = place.work, started.thread
    commit = await _commit(job, pull, work, log, kit, forge)
    # A fork's change stays with its author: a branch of ours would bring it into the repository.
    branch = f"{kit.settings.branch_prefix}pull-{job.number}-{job.id[-8:].strip('-.')}"
    branches = (branch,) if pull.same_repository else ()
    directory = run_directory(kit.settings, job.id)
    git_dir, parent = work.workspace.git_dir, work.parents[0]
    at = await publish_or_attach(job.repo, git_dir, commit, branches, parent, forge, directory)
    return replace(place, at=at)


async def _commit(job: Job, pull: PullRequest, work: Work, log: Log, kit: Kit, forge: Forge) -> str:
    """The work as a commit of our own repository, the same for the same work."""
    account = summarize(log.trajectory).account
    author = ""
    if job.requester is not None:
        author = "{} <{}>".format(*signature(job.requester, kit.settings.github_server_url))
    message = follow_up_prose.commit_message(
        masked(pull, kit.secrets), job, masked(account, kit.secrets) if account else None, work.merge, author
    )
    when = log.trajectory.entries[0].at
    us = await forge.identity(job.repo)
    ours = signature(us, kit.settings.github_server_url) if us else AUTHOR
    message = (await _ci(job, work, log, kit, forge)).message(message)
    return await work.workspace.commit(work.patch, message, author=ours, when=when, parents=work.parents)


async def _ci(job: Job, work: Work, log: Log, kit: Kit, forge: Forge) -> CI:
    return await ci_for(log.trajectory, work.workspace, work.parents[0], job.repo, forge, kit.settings)


# --- what the threads are told ------------------------------------------------------------------------------


async def _answer(
    job: Job, pull: PullRequest, place: Place, log: Log, forge: Forge
) -> tuple[tuple[Told, ...], bool]:
    """Answer every thread that waits, or that the agent answered, and resolve what is done; whether we may not."""
    given = answers(pull, summarize(log.trajectory).account)
    threads = open_threads(pull)
    instead = "" if place.work.verdict.kind == "empty" else place.instead
    told: list[Told] = []
    unresolved = False
    for number in sorted(threads.keys() & (waiting(pull).keys() | given.keys())):
        answer = given.get(number)
        done = place.sha is not None and answer is not None and answer.done
        one = Told(number=number, thread=threads[number], answer=answer, done=done)
        told.append(one)
        text = follow_up_prose.thread_answer(one, place.sha, instead)
        try:
            await forge.answer(job.repo, job.number, one.thread, job.id, text)
        except (NotFound, Forbidden) as exc:  # it was deleted, or locked: the comment says the same
            logger.warning("thread not answered", extra={"job": job.id, "error": str(exc)})
            continue
        if done:
            try:
                await forge.settle_thread(job.repo, one.thread)
            except (NotFound, Forbidden):
                unresolved = True
    return tuple(told), unresolved
