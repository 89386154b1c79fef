"""Prompts and messages that the model reads: one typed function per template in `templates/prompts/`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from patchwright.resolver.activity.summary import StepSummary
from patchwright.resolver.domain import Job, TestRun
from patchwright.resolver.llm.model import ChatMessage, ToolSpec
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.skills.skill_docs import load_skill_docs
from patchwright.runtime.egress_policy import NetworkMode
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.output_text import clip

if TYPE_CHECKING:  # These modules import this one at runtime.
    from patchwright.resolver.actions import SubagentResult
    from patchwright.resolver.prompts.initial_prompt import InitialPrompt
    from patchwright.resolver.security.risk import RiskRating
    from patchwright.resolver.skills.skills import RepoSkill
    from patchwright.resolver.stuck import Pattern
    from patchwright.resolver.text.untrusted import QuotedText
    from patchwright.resolver.tool_actions.control_actions import Plan


def render_initial_prompt(prompt: InitialPrompt) -> str:
    """Renders the first message to the agent."""
    # The templates use the values in these groups directly, such as `root` for `sandbox.root`.
    groups = vars(prompt.request) | vars(prompt.repository) | vars(prompt.sandbox)
    return render("prompts/initial_prompt.md.j2", **groups, **vars(prompt))


@dataclass(frozen=True)
class SandboxDescription:
    """What a system prompt says about the sandbox."""

    root: str
    """Absolute path of the repository's work tree."""
    scratch: str
    """Absolute path of a directory for the agent's own files."""
    kind: Literal["docker", "local"]
    network: NetworkMode = "none"
    features: Sequence[SandboxFeature] = ()
    secret_names: Sequence[str] = ()
    """The secrets that commands may use."""


def render_system_prompt(
    sandbox: SandboxDescription,
    *,
    tools: Collection[str] = (),
    max_steps: int | None = None,
    max_repairs: int = 0,
    is_pull_request: bool = False,
    has_vision: bool = True,
) -> str:
    """Renders the system prompt.

    `tools` are the names of the agent's tools. The agent gets at most `max_steps` replies; None means that
    the prompt does not mention this limit. A failed patch is returned to the agent at most `max_repairs`
    times. If `is_pull_request` is True, the task comes from the reviewers of a pull request. Otherwise, the
    task is an issue. If `has_vision` is False, no model describes images, and the prompt does not mention the
    functions that need one.
    """
    docs = load_skill_docs() if "kernel" in sandbox.features else ()
    skills = [doc for doc in docs if has_vision or not doc.needs_vision]
    return render(
        "prompts/system.md.j2",
        **vars(sandbox),
        tools=tools,
        max_steps=max_steps,
        max_repairs=max_repairs,
        is_pull_request=is_pull_request,
        skills=[doc for doc in skills if doc.is_reader],
        unlisted_skills=[doc.name for doc in skills if not doc.is_reader],
    )


def render_baseline(before: TestRun) -> str:
    """Renders the test results on the untouched code, for an agent whose initial prompt did not contain
    them.
    """
    return render("prompts/baseline.md.j2", baseline=before, failed_tests=before.failed_tests).strip()


def render_malformed_call(tool: ToolSpec, problems: Sequence[str]) -> str:
    """Explains why a call was not executed, and shows the schema of the tool's arguments."""
    return render("prompts/malformed_call.md.j2", tool=tool, problems=problems).strip()


def render_unknown_tool(name: str, suggestions: str | None, known: Sequence[str]) -> str:
    """Tells the model that a tool does not exist, and lists the existing tools."""
    return render("prompts/unknown_tool.md.j2", name=name, suggestions=suggestions, known=known).strip()


def render_truncated(tool: str | None) -> str:
    """Tells the model that its reply reached the output limit. `tool` is the name of the tool in the
    truncated call, or None if no call was truncated.
    """
    return render("prompts/truncated.md.j2", tool=tool).strip()


def render_too_many_calls(count: int, limit: int) -> str:
    """Tells the model that a reply contained too many calls. This text is the result of the first
    call that was not executed.
    """
    return render("prompts/too_many_calls.md.j2", count=count, limit=limit).strip()


FinalTool = Literal["finish", "propose_plan", "report"]
"""The tool with which an agent ends its work."""


def render_no_call(tools: Sequence[str], final_tool: FinalTool = "finish") -> str:
    """Tells the model that a reply without a tool call has no effect."""
    return render("prompts/no_call.md.j2", tools=tools, final_tool=final_tool).strip()


def render_finish_accepted() -> str:
    """Renders the answer to an accepted finish call."""
    return render("prompts/finish_accepted.md.j2").strip()


def render_steps_left(steps: int, final_tool: FinalTool = "finish") -> str:
    """Tells the model that the run will soon reach its limit of steps."""
    return render("prompts/steps_left.md.j2", steps=steps, final_tool=final_tool).strip()


def render_lost_call(*, is_saved: bool, is_same_sandbox: bool = False) -> str:
    """Renders the answer to a call that was interrupted.

    If `is_saved` is True, the call's changes to the work tree are kept. If `is_same_sandbox` is True, the
    whole sandbox is kept.
    """
    return render("prompts/lost_call.md.j2", is_saved=is_saved, is_same_sandbox=is_same_sandbox).strip()


def render_new_sandbox(scratch: str, reason: str | None = None) -> str:
    """Tells the model that its run continues in a new sandbox, and why the previous one was lost."""
    return render("prompts/new_sandbox.md.j2", scratch=scratch, reason=reason).strip()


def render_same_sandbox() -> str:
    """Tells the model that its run continues in the same sandbox."""
    return render("prompts/same_sandbox.md.j2").strip()


def render_skill(skill: RepoSkill, text: str, start: int, next_line: int | None) -> str:
    """Renders a part of a repository's instructions, starting at line `start`. `next_line` is the first line
    of the next part; None if there is none.
    """
    return render("prompts/skill.md.j2", skill=skill, text=text, start=start, next_line=next_line).strip()


def render_unknown_skill(name: str, names: Sequence[str]) -> str:
    """Tells the model that a skill does not exist, and lists the existing skills."""
    return render("prompts/unknown_skill.md.j2", name=name, names=names).strip()


def render_condense_system() -> str:
    """Renders the system prompt of the model that writes summaries."""
    return render("prompts/condense_system.md.j2")


def render_condense_request(messages: Sequence[ChatMessage], limit: int) -> str:
    """Renders the work so far, for a model that summarizes it. The text has at most about `limit`
    characters.
    """
    record = render("prompts/condense_request.md.j2", messages=messages)
    return clip(record, limit)


def render_condensation(
    replies: int, summary: str | None, steps: Sequence[StepSummary] | None, plan: Plan | None
) -> str:
    """Renders the text that replaces the model's first `replies` replies. The text contains their `summary` or,
    without a summary, a list of their last calls (`steps`).

    `plan` is the agent's latest plan if one of the replaced replies contains it.
    """
    return render("prompts/condensation.md.j2", replies=replies, summary=summary, steps=steps, plan=plan)


def render_masked_result(size: int, label: Literal["output", "diff", "answer"], facts: str) -> str:
    """Renders the line that replaces an old result of `size` characters."""
    return render("prompts/masked_result.md.j2", size=size, label=label, facts=facts).strip()


def render_not_delegated(*, is_too_deep: bool, count: int = 1) -> str:
    """Explains why `count` tasks were not delegated: either subagents are nested too deeply, or too little of
    the budget is left.
    """
    return render("prompts/not_delegated.md.j2", is_too_deep=is_too_deep, count=count).strip()


def render_subagent_result(result: SubagentResult) -> str:
    """Renders a subagent's report as quoted text, so that it cannot imitate a message from Patchwright."""
    return render("prompts/subagent_result.md.j2", result=result).strip()


def render_answer(job: Job, answer: QuotedText) -> str:
    """Renders a person's answer to the agent's question."""
    return render("prompts/answer.md.j2", job=job, answer=answer).strip()


def render_message(job: Job, comment: QuotedText) -> str:
    """Renders a comment that a person wrote during the run."""
    return render("prompts/message.md.j2", job=job, comment=comment).strip()


def render_nudge(pattern: Pattern, final_tool: FinalTool = "finish") -> str:
    """Tells the model that it is repeating itself, and what to do instead."""
    return render("prompts/nudge.md.j2", pattern=pattern, final_tool=final_tool).strip()


def render_planning(has_list: bool) -> str:
    """Asks the model to review its progress and plan ahead. `has_list` is True if the model has a tool for
    its plan.
    """
    return render("prompts/planning.md.j2", has_list=has_list).strip()


def render_finish_rejected(missing: Sequence[str]) -> str:
    """Explains why a finish call is rejected. A finish call is rejected only once."""
    return render("prompts/finish_rejected.md.j2", missing=missing).strip()


def render_too_risky(rating: RiskRating) -> str:
    """Tells the model that a call is blocked because of its risk, and what to do instead."""
    return render("prompts/too_risky.md.j2", rating=rating).strip()


def render_external_tool(text: str, server: str) -> str:
    """Renders the description of an external tool."""
    return render("prompts/external_tool.md.j2", text=text, server=server).strip()


def render_question_accepted() -> str:
    """Renders the answer to a question that ends the run until a person replies."""
    return render("prompts/question_accepted.md.j2").strip()


def render_resumed_by(job: Job | None, stop_reason: str, comment: QuotedText) -> str:
    """Tells the model that somebody resumed its run. `job` is None if the operator resumed it. `comment` may
    be empty.
    """
    return render("prompts/resume_message.md.j2", job=job, stop_reason=stop_reason, comment=comment).strip()
