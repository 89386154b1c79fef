"""Texts that people read on the forge: one typed function per template in `templates/replies/`."""

from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.activity.finish_checks import (
    NOT_REPRODUCED,
    describe_open_points,
    has_left_out,
)
from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.domain import Job, PullRequest, SalvagedWork, Thread, Verdict
from patchwright.resolver.events import AgentStopped
from patchwright.resolver.rendering.subjects import MAX_PULL_REQUEST_TITLE, build_subject, choose_heading
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.tool_actions.control_actions import Finish


def render_pull_request_title(thread: Thread, files: tuple[str, ...] = ()) -> str:
    """Renders the title of the pull request. `files` are the changed files."""
    return build_subject(thread.title, files, MAX_PULL_REQUEST_TITLE)


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


def render_commit_message(
    thread: Thread,
    finish: Finish | None,
    requester: str = "",
    run: str = "",
    files: tuple[str, ...] = (),
) -> str:
    """Renders the message of a pull request's commit. `requester` is a name with an e-mail address, `run` the
    run's id, and `files` are the changed files.
    """
    return render_reply(
        "commit.txt.j2", thread=thread, finish=finish, requester=requester, run=run, files=files
    )


def render_working() -> str:
    """Renders the status comment of a run that starts."""
    return render_reply("working.md.j2")


def render_published(
    pull: PullRequest, verdict: Verdict, summary: Summary, *, already_open: bool = False
) -> str:
    """Renders the status comment once the pull request is open. `already_open` is True if the pull request
    was already open and already contained the same change.
    """
    return render_reply(
        "published.md.j2", pull=pull, verdict=verdict, summary=summary, already_open=already_open
    )


def render_no_pull_request(
    reason: str,
    branch: str | None,
    verdict: Verdict,
    summary: Summary,
    pasted_patch: str = "",
    advice: str = "",
) -> str:
    """Explains why there is no pull request, and where the work is: on `branch`, or in `pasted_patch`.
    `advice` says what to do.
    """
    return render_reply(
        "no_pull_request.md.j2",
        reason=reason,
        branch=branch,
        verdict=verdict,
        summary=summary,
        pasted_patch=pasted_patch,
        advice=advice,
    )


def render_question(question: str, summary: Summary) -> str:
    """Renders the comment with the agent's question."""
    return render_reply("question.md.j2", question=question, summary=summary).strip()


def render_rejection(explanation: str) -> str:
    """Renders the comment that rejects a trigger."""
    return render_reply("rejection.md.j2", explanation=explanation)


def render_withdrawn(explanation: str, summary: Summary) -> str:
    """Renders the comment for a requester who lost write access before the work was published."""
    return render_reply("withdrawn.md.j2", explanation=explanation, summary=summary)


def render_failure(sentence: str, run: str, workflow_url: str | None = None) -> str:
    """Renders the comment about a run that failed before it started, or about a run whose log cannot be read."""
    return render_reply("failed.md.j2", sentence=sentence, run=run, workflow_url=workflow_url)


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
    "pull_only",
    "issue_only",
    "no_plan",
    "old_plan",
    "not_stopped",
    "no_run",
    "already_read",
    "already_done",
]


def render_rejection_reason(reason: AdmissionProblem, job: Job) -> str:
    """Explains in one or two sentences why a job is rejected."""
    return render_reply("rejection_reason.md.j2", reason=reason, job=job).strip()


def render_unknown_branch(name: str) -> str:
    """Explains that the base branch does not exist."""
    return render_reply("unknown_branch.md.j2", name=name).strip()


def render_open_pull_request(pull: PullRequest, mention: str) -> str:
    """Explains that a request belongs on the issue's open pull request."""
    return (
        f"Pull request #{pull.number} for this issue is open, so I did not work on this request. To have the pull "
        f"request changed, comment `{mention}` and your request on the pull request. To start over, close it and ask "
        "me again."
    )


def render_nothing_changed(agent_stopped: AgentStopped) -> str:
    """Explains why there is no patch."""
    return render_reply("nothing_changed.md.j2", agent_stopped=agent_stopped).strip()


def render_question_advice(mention: str) -> str:
    """Says how to ask a question, for a request that led to no change."""
    return f"If you only want an answer, comment `{mention} explain` and your question."


def render_against_policy(violations: tuple[str, ...]) -> str:
    """Lists the parts of a patch that the policy forbids."""
    return render_reply("against_policy.md.j2", violations=violations).strip()


def salvage_commit_message(thread: Thread) -> str:
    """Renders the commit message for the work saved from a stopped run."""
    return render_reply("commit_salvage.txt.j2", thread=thread)


def render_salvaged(
    reason: str,
    work: SalvagedWork,
    verdict: Verdict | None,
    summary: Summary,
    run: str,
    mention: str,
    *,
    is_permanent: bool,
) -> str:
    """Renders the comment about a stopped run: why it stopped, where its work is, and how to resume the
    run.
    """
    return render_reply(
        "salvaged.md.j2",
        reason=reason,
        work=work,
        verdict=verdict,
        summary=summary,
        run=run,
        mention=mention,
        is_permanent=is_permanent,
    )
