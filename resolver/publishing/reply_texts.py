"""Renders the body of a pull request, and the texts about rejections."""

from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.activity.finish_checks import NOT_REPRODUCED, describe_open_points, has_left_out
from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.domain import Job, Thread, Verdict
from patchwright.resolver.rendering.subjects import choose_heading
from patchwright.resolver.rendering.template_renderer import render_reply


@dataclass(frozen=True)
class PullRequestRemarks:
    """What a pull request says beyond the verdict and the summary of its run."""

    notes: tuple[str, ...] = ()
    """What a reviewer has to look at in the change."""
    open_points: tuple[str, ...] = ()
    """What the agent left open."""
    excluded_changes: tuple[str, ...] = ()
    """Changes that Patchwright removed because of its rules."""
    unsigned_reason: str = ""
    """Why the commit is not signed."""
    pr_template: str = ""
    """The filled-in pull request template of the repository."""
    ci: str = ""
    """Why continuous integration does not start automatically."""
    files: tuple[str, ...] = ()
    """The changed files."""
    is_draft: bool | None = None
    """None if only the verdict decides."""


def render_pull_request_body(
    thread: Thread,
    verdict: Verdict,
    summary: Summary,
    context: PullRequestRemarks = PullRequestRemarks(),
    mention: str = "@agent",
) -> str:
    """Renders the body of the pull request. It starts with the verdict and ends with the filled-in template.

    If something that the issue asks for is left out, merging the pull request does not close the issue.
    """
    heading = choose_heading(thread.title, context.files)
    open_points = describe_open_points(context.open_points, verdict)
    if heading == "Docs":
        open_points = tuple(point for point in open_points if point != NOT_REPRODUCED)
    return render_reply(
        "pull_body.md.j2",
        thread=thread,
        verdict=verdict,
        summary=summary,
        is_partial=bool(context.excluded_changes) or has_left_out(summary.finish),
        heading=heading,
        notes=context.notes,
        open_points=open_points,
        excluded_changes=context.excluded_changes,
        unsigned_reason=context.unsigned_reason,
        pr_template=context.pr_template,
        ci=context.ci,
        mention=mention,
        is_draft=verdict.kind != "fixed" if context.is_draft is None else context.is_draft,
    )


def render_rejection(explanation: str) -> str:
    """Renders the comment that rejects a trigger."""
    return render_reply("rejection.md.j2", explanation=explanation)


AdmissionProblem = Literal[
    "permission",
    "withdrawn",
    "unlabeled",
    "closed",
    "closed_pull",
    "locked",
    "archived",
    "empty",
    "gone",
    "nothing_asked",
    "other_agent",
    "pull_only",
    "issue_only",
    "no_plan",
    "old_plan",
    "not_stopped",
    "no_run",
    "no_call",
    "already_read",
    "already_done",
]


def render_rejection_reason(
    reason: AdmissionProblem, job: Job, label: str = "", *, mention: str = "", is_workflow: bool = False
) -> str:
    """Explains in one or two sentences why a job is rejected. `label` and `mention` start a run, if they are known."""
    return render_reply(
        "rejection_reason.md.j2",
        reason=reason,
        job=job,
        label=label,
        mention=mention,
        is_workflow=is_workflow,
    ).strip()


DecisionProblem = Literal["call_waits", "other_call", "expired_call"]


def render_against_policy(violations: tuple[str, ...]) -> str:
    """Lists the parts of a patch that the policy forbids."""
    return render_reply("against_policy.md.j2", violations=violations).strip()
