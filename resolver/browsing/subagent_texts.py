"""Renders the texts that subagents read: one typed function per text, as in `resolver/prompts/prompt_texts.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.text.untrusted import strip_hidden

if TYPE_CHECKING:
    from patchwright.resolver.skills.skills import RepoSkill
    from patchwright.runtime.observations import PageSnapshot


def render_browsing_system_prompt() -> str:
    """Renders the browsing agent's system prompt."""
    return render("prompts/browsing_system.md.j2")


def render_no_action(*, cut_off: bool) -> str:
    """Tells the browsing agent that its reply contained no action. `cut_off` is True if the reply reached the
    output limit.
    """
    return render("prompts/no_action.md.j2", cut_off=cut_off).strip()


def render_browsing_unfinished(detail: str, page: PageSnapshot | None, thought: str) -> str:
    """Renders the result of a browsing agent that ended without a report."""
    return render("prompts/browsing_unfinished.md.j2", detail=detail, page=page, thought=thought).strip()


def render_challenge_note(challenge: str) -> str:
    """Tells the browsing agent that the page is a challenge, such as a CAPTCHA."""
    return render("prompts/challenge.md.j2", challenge=challenge).strip()


def render_challenge_stop(challenge: str, url: str) -> str:
    """Explains that the agent stopped because the page is a challenge, such as a CAPTCHA."""
    return render("prompts/challenged.md.j2", challenge=challenge, url=url).strip()


def render_guessed_url_note(url: str) -> str:
    """Tells the browsing agent that it guessed the URL of a page."""
    return render("prompts/guessed.md.j2", url=url).strip()


def render_schema_error(problem: str) -> str:
    """Tells the agent that its report does not match the output schema."""
    return render("prompts/off_form.md.j2", problem=problem).strip()


def render_investigator_system_prompt(
    root: str,
    scratch: str,
    kind: Literal["docker", "local"],
    steps: int,
    max_report_length: int,
    skill: RepoSkill | None = None,
) -> str:
    """Renders an investigator's system prompt. A report may have at most `max_report_length` characters.
    If the investigator is a micro agent, `skill` contains its instructions.
    """
    values = {
        "root": root,
        "scratch": scratch,
        "kind": kind,
        "steps": steps,
        "max_report_length": max_report_length,
    }
    text = strip_hidden(skill.text)[0] if skill else ""
    return render("prompts/investigator_system.md.j2", **values, skill=skill, text=text)


def render_report_tool(max_report_length: int) -> str:
    """Renders the description of a micro agent's report tool. A report may have at most `max_report_length`
    characters.
    """
    return render("prompts/formed_report.md.j2", max_report_length=max_report_length).strip()


def render_micro_agent_tool(skill: RepoSkill) -> str:
    """Renders the description of the tool that calls a micro agent."""
    return render("prompts/micro_agent.md.j2", skill=skill).strip()


def render_investigator_unfinished(detail: str, thought: str) -> str:
    """Renders the result of an investigator that ended without a report."""
    return render("prompts/investigator_unfinished.md.j2", detail=detail, thought=thought).strip()
