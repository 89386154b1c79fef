"""What the first message shows of a pull request: its change so far, its threads, and what earlier runs did there."""

import asyncio
import re
from collections.abc import Iterable

from resolver.ci.checks import Failing
from resolver.domain import Comment, Delivered, Issue, Job, JobId, PullRequest, ReviewThread
from resolver.errors import LogError
from resolver.events import Trajectory
from resolver.gate import last_account
from resolver.git.merging import Merge
from resolver.git.plumbing import GitFailed, run_git
from resolver.git.repository import HISTORY, Workspace
from resolver.log import Logs
from resolver.pull.threads import open_threads, waiting
from resolver.words.quotation import Quoted, quote
from runtime.frozen import Frozen

DIFF_LIMIT = 30_000  # characters of the diff so far; whole files, the small ones first
STAT_FILES = 100
COMMENT_LIMIT = 4_000  # characters of one comment in a thread
ISSUE_LIMIT = 8_000  # characters of the text of the issue that it answers
HUNK_LINES = 8  # the last ones; the whole change stands above
HUNK_LIMIT = 2_000
THREADS = 60  # shown whole; more than that is no review but a mistake
THREAD_COMMENTS = 12  # the latest of one thread
EARLIER = 3  # runs
RUNS_READ = 10
ANSWERS = re.compile(r"^Fixes #(\d{1,9})$", re.MULTILINE)
"""How the body of a pull request of ours names its issue."""
ACCOUNT = re.compile(r"^### What was wrong$.*?(?=^Fixes #\d+\s*\Z|\Z)", re.MULTILINE | re.DOTALL)
"""What the body of a pull request of ours says of the work, from the account to the list of steps."""


class ThreadSeen(Frozen):
    """A review thread as the agent is shown it."""

    number: int
    waits: bool
    """Whether the run has to answer it."""
    path: str
    line: int | None
    hunk: Quoted | None
    earlier: int
    """Comments left out because there are later ones."""
    comments: tuple[tuple[Comment, Quoted], ...]


class ChangeSoFar(Frozen):
    """What a pull request changes, as far as it is shown."""

    since: str
    """Commit where it left its base branch."""
    reachable: bool
    """Whether that commit is in the history that the sandbox has."""
    files: str
    """One line for each: lines added and removed, and its path."""
    diff: Quoted | None
    left_out: tuple[str, ...]
    """Paths whose change is not shown."""


class EarlierRun(Frozen):
    """What a run of ours did on this pull request before."""

    opened: bool
    """Whether it is the one that opened it."""
    verdict: str
    why: str
    cause: Quoted | None
    change: Quoted | None
    checked: Quoted | None


class IssueSeen(Frozen):
    """The issue that a pull request answers."""

    thread: Issue
    title: Quoted
    body: Quoted


class PullSeen(Frozen):
    """A pull request as the agent is shown it, beside its title, text and conversation."""

    change: ChangeSoFar
    threads: tuple[ThreadSeen, ...]
    unseen: int
    """Open threads that are not shown."""
    resolved: int
    review: tuple[Comment, Quoted] | None
    """What was written in the review that started the run."""
    earlier: tuple[EarlierRun, ...]
    """Oldest first."""
    merge: Merge | None
    """Where the base branch was merged in; the agent has to put together what is in conflict."""
    failing: Failing | None = None
    """What checks find of it, where that is what is to be mended."""
    issue: IssueSeen | None = None
    """The one that its text names as we do; None: it names none, or it cannot be had."""

    def without_account(self, body: str) -> str:
        """Its text without what the run that opened it wrote there of its work, where `earlier` tells that."""
        told = any(run.opened and run.cause for run in self.earlier)
        return ACCOUNT.sub("", body, count=1) if told else body


async def pull_seen(
    pull: PullRequest,
    workspace: Workspace,
    earlier: tuple[EarlierRun, ...],
    merge: Merge | None,
    failing: Failing | None = None,
    issue: Issue | None = None,
) -> PullSeen:
    """All of it. Raises WorkspaceError."""
    threads, waits = open_threads(pull), waiting(pull)
    return PullSeen(
        change=await change_so_far(workspace, pull.head_sha),
        threads=tuple(
            _thread(number, thread, waits=number in waits)
            for number, thread in list(threads.items())[:THREADS]
        ),
        unseen=max(0, len(threads) - THREADS),
        resolved=len(pull.threads) - len(threads),
        review=(pull.review, quote(pull.review.body, COMMENT_LIMIT)) if pull.review else None,
        earlier=earlier,
        merge=merge,
        failing=failing,
        issue=IssueSeen(thread=issue, title=quote(issue.title, 300), body=quote(issue.body, ISSUE_LIMIT))
        if issue
        else None,
    )


def _thread(number: int, thread: ReviewThread, *, waits: bool) -> ThreadSeen:
    return ThreadSeen(
        number=number,
        waits=waits,
        path=thread.path if thread.path.isprintable() else ascii(thread.path),
        line=thread.line,
        hunk=quote("\n".join(thread.hunk.splitlines()[-HUNK_LINES:]), HUNK_LIMIT) if thread.hunk else None,
        earlier=max(0, len(thread.comments) - THREAD_COMMENTS),
        comments=tuple(
            (comment, quote(comment.body, COMMENT_LIMIT)) for comment in thread.comments[-THREAD_COMMENTS:]
        ),
    )


# --- the change so far --------------------------------------------------------------------------------------


async def change_so_far(workspace: Workspace, head: str) -> ChangeSoFar:
    """What `head` changes since it left the base branch. Raises WorkspaceError."""
    base = workspace.rules.base

    async def git(*arguments: str) -> str:
        return (await run_git(*arguments, git_dir=workspace.git_dir)).decode(errors="replace")

    try:
        since = (await git("merge-base", base, head)).strip()
    except GitFailed as exc:
        if exc.exit_code != 1:
            raise
        return ChangeSoFar(since=base, reachable=False, files="", diff=None, left_out=())
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", since, head)
    rows = [row for row in (await git("diff", "--numstat", *plain)).splitlines() if row]
    behind = int(await git("rev-list", "--count", f"{since}..{head}"))
    shown, left_out = await _diff(workspace, plain)
    files = "\n".join(rows[:STAT_FILES])
    if len(rows) > STAT_FILES:
        files += f"\n... and {len(rows) - STAT_FILES} more files"
    return ChangeSoFar(
        since=since,
        reachable=behind < HISTORY,
        files=files,
        diff=quote(shown, DIFF_LIMIT * 2) if shown else None,
        left_out=left_out,
    )


async def _diff(workspace: Workspace, plain: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The change of as many files as fit, in their order, and the names of the others."""
    try:
        whole = await run_git("diff", *plain, git_dir=workspace.git_dir)
    except GitFailed:  # it is larger than what is kept of a command
        return "", ()
    parts = re.split(r"^(?=diff --git )", whole.decode(errors="replace"), flags=re.MULTILINE)
    parts = [part for part in parts if part]
    left, kept = DIFF_LIMIT, set[int]()
    for index in sorted(range(len(parts)), key=lambda index: len(parts[index])):
        if (left := left - len(parts[index])) < 0:
            break
        kept.add(index)
    shown = "".join(part for index, part in enumerate(parts) if index in kept)
    left_out = (part.partition("\n")[0] for index, part in enumerate(parts) if index not in kept)
    return shown, tuple(line.rpartition(" b/")[2] for line in left_out)


# --- what was done before -----------------------------------------------------------------------------------


def runs_of(pull: PullRequest, issue_reports: Iterable[str]) -> tuple[JobId, ...]:
    """Runs that may have worked on this pull request, by our own reports in it and in its issue, oldest first."""
    return tuple(JobId(run) for run in dict.fromkeys((*issue_reports, *pull.reports)))[-RUNS_READ:]


async def earlier_runs(job: Job, runs: Iterable[JobId], logs: Logs) -> tuple[EarlierRun, ...]:
    """What those of these runs did that delivered to the pull request at hand; a log of another machine is not here."""
    found: list[EarlierRun] = []
    for run in runs:
        if run == job.id:
            continue
        try:
            trajectory = await asyncio.to_thread(logs.read, run)
            if trajectory.resumed:
                trajectory = await asyncio.to_thread(logs.read, trajectory.resumed.run)
        except LogError:
            continue
        if (one := _earlier(job, trajectory)) and one not in found:
            found.append(one)
    return tuple(found[-EARLIER:])


def _earlier(job: Job, trajectory: Trajectory) -> EarlierRun | None:
    """A run's account, where its log says that it belongs to this pull request: no text of anybody decides that."""
    started, outcome = trajectory.started, trajectory.settled and trajectory.settled.outcome
    if started is None or started.job.repo != job.repo or outcome is None:
        return None
    opened = isinstance(outcome, Delivered) and outcome.number == job.number != started.job.number
    if not opened and started.job.number != job.number:
        return None
    account, verdict = last_account(trajectory), trajectory.verdict
    return EarlierRun(
        opened=opened,
        verdict=verdict.kind if verdict else "none",
        why=verdict.reason if verdict else "",
        cause=quote(account.cause, 2_000) if account else None,
        change=quote(account.change, 2_000) if account else None,
        checked=quote(account.checked, 2_000) if account else None,
    )
