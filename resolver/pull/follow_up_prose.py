"""What people read of a follow-up on their pull request, as `resolver/prose.py`: one typed function per text."""

from collections.abc import Sequence

from resolver.actions import Finish, ThreadAnswer
from resolver.delivery.keeping import InComment, OnBranch
from resolver.domain import Job, PullRequest, ReviewThread, Verdict
from resolver.git.merging import Merge
from resolver.prose import render, reply
from resolver.summary import Summary
from runtime.frozen import Frozen


class Told(Frozen):
    """One thread, and what became of it."""

    number: int
    thread: ReviewThread
    answer: ThreadAnswer | None
    """None: the run ended without one."""
    done: bool
    """Whether what it asks for is on the pull request now."""


def commit_message(
    pull: PullRequest, job: Job, account: Finish | None, merge: Merge | None, author: str
) -> str:
    """Message of a commit on somebody's pull request; `author` is who asked for it, as a trailer has it."""
    return render(
        "replies/commit_follow_up.txt.j2", pull=pull, job=job, account=account, merge=merge, author=author
    )


def thread_answer(told: Told, sha: str | None, instead: str) -> str:
    """The answer in a review thread. `sha`: the commit on the pull request; None: there is none, and `instead` why."""
    return reply("thread_answer.md.j2", told=told, sha=sha, instead=instead)


def followed_up(
    pull: PullRequest,
    placed: OnBranch | InComment | None,
    verdict: Verdict,
    story: Summary,
    *,
    on_head: bool,
    instead: str,
    moved: bool,
    told: Sequence[Told],
    unresolved: bool,
    notes: Sequence[str],
    left_out: Sequence[str],
    left_open: Sequence[str],
    merge: Merge | None,
    ci: str = "",
    checks: str = "",
) -> str:
    """The status comment at the end: where the work is, what the tests say, and what became of each thread.

    `on_head`: it is on the pull request; else `instead` says why not. `moved`: its branch was ahead of where the
    work began. `unresolved`: our token may not resolve threads. `ci`: why continuous integration does not start by
    itself. `checks`: the commit on which checks failed, where that is what was to be mended.
    """
    return reply(
        "followed_up.md.j2",
        pull=pull,
        placed=placed,
        verdict=verdict,
        story=story,
        on_head=on_head,
        instead=instead,
        moved=moved,
        told=told,
        unresolved=unresolved,
        notes=notes,
        left_out=left_out,
        left_open=left_open,
        merge=merge,
        ci=ci,
        checks=checks,
    )


def up_to_date(pull: PullRequest) -> str:
    """That there is nothing to merge."""
    return reply("up_to_date.md.j2", pull=pull).strip()


def not_here(why: str, detail: str = "") -> str:
    """Why the work is not on the pull request's own branch, in a sentence."""
    return reply("not_here.md.j2", why=why, detail=detail).strip()
