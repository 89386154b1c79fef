"""Renders the texts about plans and invalid commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.text.markdown import close_code_blocks

if TYPE_CHECKING:
    from patchwright.resolver.activity.summary import Summary
    from patchwright.resolver.command_parser import CommandError
    from patchwright.resolver.domain import Job
    from patchwright.resolver.tool_actions.control_actions import ProposePlan

PLAN_DAYS = 14
"""Days after which a plan expires if nobody has approved it."""


def describe_requester(job: Job) -> str:
    """Returns the requester's login for the model's prompt."""
    return job.requester.login if job.requester else "The person who started you"


def render_plan(plan: ProposePlan, summary: Summary) -> str:
    """Renders the status comment with a plan and how to reply to it."""
    settings = summary.configuration.settings if summary.configuration else {}
    mention = settings.get("mention", "@agent")
    closed_texts = {
        name: close_code_blocks(text)
        for name, text in dict(plan).items()
        if name in ("cause", "test_plan", "risks")
    }
    plan = plan.model_copy(update=closed_texts)
    return render_reply("plan.md.j2", plan=plan, summary=summary, mention=mention, days=PLAN_DAYS)


def render_explanation(answer: str | None, summary: Summary) -> str:
    """Renders the status comment with the answer to a question. `answer` is None if the run found no
    answer.
    """
    closed_answer = close_code_blocks(answer) if answer else None
    return render_reply("explanation.md.j2", answer=closed_answer, summary=summary)


def render_invalid_command(error: CommandError) -> str:
    """Explains in a sentence or two why a command is invalid."""
    return render_reply("invalid_command.md.j2", error=error).strip()
