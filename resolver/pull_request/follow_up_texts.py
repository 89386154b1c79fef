"""The values of the texts in which Patchwright tells people about its work on a pull request."""

from collections.abc import Sequence
from dataclasses import dataclass

from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.domain import PullRequest, ReviewThread, Verdict
from patchwright.resolver.git.merge import MergeResult
from patchwright.resolver.publishing.publish_branch import BranchLocation, CommentLocation
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.tool_actions.control_actions import ThreadReply
from patchwright.runtime.frozen_model import FrozenModel


class ThreadResult(FrozenModel):
    """The result of a run for one review thread."""

    number: int
    thread: ReviewThread
    reply: ThreadReply | None
    """The agent's reply; None if the run ended without one."""
    is_done: bool
    """True if the requested change is on the pull request now."""


@dataclass(frozen=True)
class FollowUpReport:
    """The values for the final status comment on a pull request."""

    pull: PullRequest
    location: BranchLocation | CommentLocation | None
    verdict: Verdict
    summary: Summary
    is_on_head: bool
    """True if the change is on the pull request."""
    reason: str
    """Why the change is not on the pull request; empty if it is."""
    has_moved: bool
    """True if someone else pushed to the branch during the run."""
    thread_results: Sequence[ThreadResult]
    unresolved: bool
    """True if the token cannot resolve threads."""
    notes: Sequence[str]
    excluded_changes: Sequence[str]
    open_points: Sequence[str]
    merge: MergeResult | None
    ci: str = ""
    """Why continuous integration does not start automatically."""
    failed_checks_commit: str = ""
    """The commit whose failed checks the run repairs, if any."""


def render_not_pushed_reason(reason: str, detail: str = "") -> str:
    """Explains in a sentence why the change is not on the pull request's own branch."""
    return render_reply("not_pushed_reason.md.j2", reason=reason, detail=detail).strip()


def link_newer_version(body: str, url: str) -> str:
    """Returns the description of our pull request with a note at its start that links the comment about a newer
    version. Replaces the note of an earlier version, and keeps everything else.
    """
    note = render_reply("newer_version.md.j2", url=url).strip()
    start, end = note.splitlines()[0], note.splitlines()[-1]
    if body.startswith(start) and end in body:
        body = body.partition(end)[2].lstrip()
    return f"{note}\n\n{body}"
