"""Collects the context of a pull request for the initial prompt: its diff, its threads, and earlier runs."""

import asyncio
import re
from collections.abc import Iterable

from patchwright.resolver.activity.finish_checks import last_finish
from patchwright.resolver.checks import FailedChecks
from patchwright.resolver.domain import Comment, Issue, Job, JobId, Published, PullRequest, ReviewThread
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.git.git_process import GitFailed, run_git
from patchwright.resolver.git.merge import MergeResult
from patchwright.resolver.git.repository import HISTORY_DEPTH, Workspace
from patchwright.resolver.review_threads import list_open_threads, list_waiting_threads
from patchwright.resolver.run_log import LogStore
from patchwright.resolver.text.untrusted import QuotedText, quote
from patchwright.runtime.frozen_model import FrozenModel

# Maximum characters of the diff. If not all files fit, the files with the smallest diffs are shown.
DIFF_LIMIT = 30_000
MAX_STAT_FILES = 100
COMMENT_LIMIT = 4_000  # characters of one comment in a thread
ISSUE_LIMIT = 8_000  # characters of the linked issue's text
HUNK_LINES = 8  # Maximum lines at the end of a diff hunk. The prompt also contains the diff.
HUNK_LIMIT = 2_000
MAX_THREADS = 60  # threads shown in full; more are unlikely in a real review
MAX_THREAD_COMMENTS = 12  # Number of the latest comments of a thread that are shown.
MAX_EARLIER_RUNS = 3  # Number of the latest runs that are shown.
MAX_RUNS_READ = 10
CLOSING_REFERENCE = re.compile(r"^(?:Fixes|Part of) #(\d{1,9})$", re.MULTILINE)
"""Matches the line that names the issue. The bot writes this line into the body of its pull requests."""
SUMMARY_SECTION = re.compile(
    r"^\*\*What was (?:wrong|missing):\*\* .*?(?=^(?:Fixes|Part of) #\d+\s*\Z|\Z)", re.MULTILINE | re.DOTALL
)
"""Matches the description of the work in the body of the bot's pull requests, from the summary to the steps."""


class ReviewThreadContext(FrozenModel):
    """A review thread as the agent sees it."""

    number: int
    needs_reply: bool
    """True if the run must reply to the thread."""
    path: str
    line: int | None
    hunk: QuotedText | None
    omitted_comments: int
    """Number of earlier comments that are not shown."""
    comments: tuple[tuple[Comment, QuotedText], ...]


class CurrentDiff(FrozenModel):
    """The diff of a pull request. If the diff is very large, only a part of it is shown."""

    merge_base: str
    """ID of the commit where the pull request's branch diverged from its base branch."""
    has_merge_base: bool
    """True if the sandbox's git history contains the commit `merge_base`."""
    files: str
    """One line per file, with the number of added lines, the number of removed lines, and the path."""
    diff: QuotedText | None
    omitted_files: tuple[str, ...]
    """Paths of the files whose diff is not shown."""


class EarlierRun(FrozenModel):
    """An earlier run on this pull request."""

    opened_pull_request: bool
    """True if the earlier run opened this pull request."""
    verdict: str
    reason: str
    cause: QuotedText | None
    change: QuotedText | None
    testing: QuotedText | None


class IssueContext(FrozenModel):
    """The issue that a pull request fixes."""

    thread: Issue
    title: QuotedText
    body: QuotedText


class PullRequestContext(FrozenModel):
    """The data about a pull request that the agent sees in addition to the title, body and conversation."""

    diff: CurrentDiff
    threads: tuple[ReviewThreadContext, ...]
    omitted_threads: int
    """Number of open threads that are not shown."""
    resolved_threads: int
    review: tuple[Comment, QuotedText] | None
    """The body of the review that started the run."""
    earlier_runs: tuple[EarlierRun, ...]
    """Earlier runs, oldest first."""
    merge: MergeResult | None
    """The merge of the base branch, whose conflicts the agent resolves; None if no merge was requested."""
    failing_checks: FailedChecks | None = None
    """The failed checks that the run repairs; None if it repairs none."""
    issue: IssueContext | None = None
    """The issue that the pull request's body names; None if the body names no issue or the token cannot read
    the issue.
    """

    def strip_own_summary(self, body: str) -> str:
        """Returns the pull request's body. If one of `earlier_runs` wrote a summary in the body, the summary is
        removed.
        """
        has_summary = any(run.opened_pull_request and run.cause for run in self.earlier_runs)
        return SUMMARY_SECTION.sub("", body, count=1) if has_summary else body


async def build_pr_context(
    pull: PullRequest,
    workspace: Workspace,
    earlier_runs: tuple[EarlierRun, ...],
    merge: MergeResult | None,
    failing_checks: FailedChecks | None = None,
    issue: Issue | None = None,
) -> PullRequestContext:
    """Collects the context of the pull request. Raises WorkspaceError."""
    threads, waits = list_open_threads(pull), list_waiting_threads(pull)
    return PullRequestContext(
        diff=await get_current_diff(workspace, pull.head_sha),
        threads=tuple(
            _thread_context(number, thread, needs_reply=number in waits)
            for number, thread in list(threads.items())[:MAX_THREADS]
        ),
        omitted_threads=max(0, len(threads) - MAX_THREADS),
        resolved_threads=len(pull.threads) - len(threads),
        review=(pull.review, quote(pull.review.body, COMMENT_LIMIT)) if pull.review else None,
        earlier_runs=earlier_runs,
        merge=merge,
        failing_checks=failing_checks,
        issue=IssueContext(thread=issue, title=quote(issue.title, 300), body=quote(issue.body, ISSUE_LIMIT))
        if issue
        else None,
    )


def _thread_context(number: int, thread: ReviewThread, *, needs_reply: bool) -> ReviewThreadContext:
    return ReviewThreadContext(
        number=number,
        needs_reply=needs_reply,
        path=thread.path if thread.path.isprintable() else ascii(thread.path),
        line=thread.line,
        hunk=quote("\n".join(thread.hunk.splitlines()[-HUNK_LINES:]), HUNK_LIMIT) if thread.hunk else None,
        omitted_comments=max(0, len(thread.comments) - MAX_THREAD_COMMENTS),
        comments=tuple(
            (comment, quote(comment.body, COMMENT_LIMIT))
            for comment in thread.comments[-MAX_THREAD_COMMENTS:]
        ),
    )


# --- the current diff --------------------------------------------------------------------------------------


async def get_current_diff(workspace: Workspace, head: str) -> CurrentDiff:
    """Returns the diff between `head` and its merge base with the base branch. Raises WorkspaceError."""
    base = workspace.config_source.base

    async def git(*arguments: str) -> str:
        return (await run_git(*arguments, git_dir=workspace.git_dir)).decode(errors="replace")

    try:
        merge_base_sha = (await git("merge-base", base, head)).strip()
    except GitFailed as exc:
        if exc.exit_code != 1:
            raise
        return CurrentDiff(merge_base=base, has_merge_base=False, files="", diff=None, omitted_files=())
    arguments = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", merge_base_sha, head)
    rows = [row for row in (await git("diff", "--numstat", *arguments)).splitlines() if row]
    commit_count = int(await git("rev-list", "--count", f"{merge_base_sha}..{head}"))
    shown, omitted = await _fit_diff(workspace, arguments)
    files = "\n".join(rows[:MAX_STAT_FILES])
    if len(rows) > MAX_STAT_FILES:
        files += f"\n... and {len(rows) - MAX_STAT_FILES} more files"
    return CurrentDiff(
        merge_base=merge_base_sha,
        has_merge_base=commit_count < HISTORY_DEPTH,
        files=files,
        diff=quote(shown, DIFF_LIMIT * 2) if shown else None,
        omitted_files=omitted,
    )


async def _fit_diff(workspace: Workspace, changes: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns a diff of at most DIFF_LIMIT characters, and the names of the files that it leaves out. The
    smallest changes are included first, but the files keep their original order.
    """
    try:
        output = await run_git("diff", *changes, git_dir=workspace.git_dir)
    except GitFailed:  # The diff exceeds the limit for the output of git.
        return "", ()
    parts = re.split(r"^(?=diff --git )", output.decode(errors="replace"), flags=re.MULTILINE)
    parts = [part for part in parts if part]
    remaining, included = DIFF_LIMIT, set[int]()
    for index in sorted(range(len(parts)), key=lambda index: len(parts[index])):
        if (remaining := remaining - len(parts[index])) < 0:
            break
        included.add(index)
    shown = "".join(part for index, part in enumerate(parts) if index in included)
    omitted = (part.partition("\n")[0] for index, part in enumerate(parts) if index not in included)
    return shown, tuple(line.rpartition(" b/")[2] for line in omitted)


# --- earlier runs ------------------------------------------------------------------------------------------


def list_runs(pull: PullRequest, issue_reports: Iterable[str]) -> tuple[JobId, ...]:
    """Returns the runs that may have worked on this pull request, oldest first. The bot's comments on the
    pull request and on its issue name these runs.
    """
    return tuple(JobId(run) for run in dict.fromkeys((*issue_reports, *pull.reported_runs)))[-MAX_RUNS_READ:]


async def load_earlier_runs(job: Job, runs: Iterable[JobId], logs: LogStore) -> tuple[EarlierRun, ...]:
    """Loads the earlier runs on this pull request, at most the latest MAX_EARLIER_RUNS. Some of `runs` are
    skipped: runs on other pull requests, and runs whose logs cannot be read on this machine.
    """
    found: list[EarlierRun] = []
    for run in runs:
        if run == job.id:
            continue
        try:
            trajectory = await asyncio.to_thread(logs.read, run)
            if trajectory.run_resumed:
                trajectory = await asyncio.to_thread(logs.read, trajectory.run_resumed.run)
        except LogError:
            continue
        if (earlier_run := _earlier_run(job, trajectory)) and earlier_run not in found:
            found.append(earlier_run)
    return tuple(found[-MAX_EARLIER_RUNS:])


def _earlier_run(job: Job, trajectory: Trajectory) -> EarlierRun | None:
    """Returns the summary of a run. Returns None if the run's log does not show that the run opened this pull
    request or worked on it. Texts on GitHub are not used, because other people could have written them.
    """
    started, outcome = trajectory.run_started, trajectory.job_completed and trajectory.job_completed.outcome
    if started is None or started.job.repo != job.repo or outcome is None:
        return None
    did_open = isinstance(outcome, Published) and outcome.number == job.number != started.job.number
    if not did_open and started.job.number != job.number:
        return None
    finish, verdict = last_finish(trajectory), trajectory.verdict
    return EarlierRun(
        opened_pull_request=did_open,
        verdict=verdict.kind if verdict else "none",
        reason=verdict.reason if verdict else "",
        cause=quote(finish.cause, 2_000) if finish else None,
        change=quote(finish.change, 2_000) if finish else None,
        testing=quote(finish.testing, 2_000) if finish else None,
    )
