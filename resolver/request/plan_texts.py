"""Renders the texts about plans, explanations and invalid commands, for people and for the model.

There is one function for each text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from patchwright.resolver.rendering.template_renderer import render, render_reply
from patchwright.resolver.text.markdown import close_code_blocks

if TYPE_CHECKING:
    from patchwright.resolver.activity.summary import Summary
    from patchwright.resolver.command_parser import CommandError
    from patchwright.resolver.domain import Job
    from patchwright.resolver.text.untrusted import QuotedText
    from patchwright.resolver.tool_actions.control_actions import ProposePlan
    from patchwright.runtime.egress_policy import NetworkMode


def render_explain_system(
    root: str,
    scratch: str,
    kind: Literal["docker", "local"],
    network: NetworkMode,
    max_length: int,
    *,
    is_pull_request: bool,
) -> str:
    """Renders the system prompt of a run that answers a question.

    `max_length` is the maximum number of characters in the answer. The other arguments are those of
    `SandboxDescription`.
    """
    return render(
        "prompts/explain_system.md.j2",
        root=root,
        scratch=scratch,
        kind=kind,
        network=network,
        max_length=max_length,
        is_pull_request=is_pull_request,
    )


def render_plan_approval(job: Job, comment: QuotedText) -> str:
    """Tells the model that its plan is approved. `comment` is the text of the approval, which may be
    empty.
    """
    return render("prompts/plan_approval.md.j2", requester=describe_requester(job), comment=comment).strip()


def render_plan_feedback(job: Job, comment: QuotedText) -> str:
    """Tells the model that someone replied to its plan but did not approve the plan. Quotes the reply."""
    return render("prompts/plan_feedback.md.j2", requester=describe_requester(job), comment=comment).strip()


def render_plan_not_approved() -> str:
    """Tells the model that its tool call was not run, because its plan is not approved yet."""
    return render("prompts/plan_not_approved.md.j2").strip()


def render_plan_already_approved() -> str:
    """Tells the model that its new plan was not posted, because its earlier plan is already approved."""
    return render("prompts/plan_already_approved.md.j2").strip()


def render_plan_accepted() -> str:
    """Tells the model that its plan was posted and now waits for approval."""
    return render("prompts/plan_accepted.md.j2").strip()


def describe_requester(job: Job) -> str:
    """Returns the requester's login for the model's prompt."""
    return job.requester.login if job.requester else "The person who started you"


# --- texts for people --------------------------------------------------------------------------------------


def render_plan(plan: ProposePlan, summary: Summary) -> str:
    """Renders the status comment with a plan and how to reply to it."""
    settings = summary.configuration.settings if summary.configuration else {}
    days = f"{settings.get('plan_expiry_days', 14):g} days"
    mention = settings.get("mention", "@agent")
    closed_texts = {
        name: close_code_blocks(text)
        for name, text in dict(plan).items()
        if name in ("cause", "test_plan", "risks")
    }
    plan = plan.model_copy(update=closed_texts)
    return render_reply("plan.md.j2", plan=plan, summary=summary, mention=mention, days=days)


def render_explanation(answer: str | None, summary: Summary) -> str:
    """Renders the status comment with the answer to a question. `answer` is None if the run found no
    answer.
    """
    return render_reply(
        "explanation.md.j2", answer=close_code_blocks(answer) if answer else None, summary=summary
    )


def render_invalid_command(error: CommandError) -> str:
    """Explains in a sentence or two why a command is invalid."""
    return render_reply("invalid_command.md.j2", error=error).strip()


def render_unknown_model(name: str, known: Sequence[str]) -> str:
    """Explains that a model is not allowed, and lists the allowed models."""
    return render_reply("unknown_model.md.j2", name=name, known=known).strip()
