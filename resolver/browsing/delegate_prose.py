"""What agents read that work for another one, as `resolver/prose.py`: one typed function per text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from resolver.prose import render
from resolver.words.quotation import visible

if TYPE_CHECKING:
    from resolver.browsing.prompt import BrowsingPrompt  # it imports this module
    from resolver.preparing.skills import Skill
    from runtime.observations import Page


def browsing_system() -> str:
    """The browsing agent's system prompt."""
    return render("prompts/browsing_system.md.j2")


def browsing_prompt(prompt: BrowsingPrompt, longest: int) -> str:
    """Everything else that the browsing agent is shown; `longest`: characters of a report."""
    return render("prompts/browsing.md.j2", prompt=prompt, task=prompt.task.strip(), longest=longest)


def no_action(*, cut_off: bool) -> str:
    """That no action was found in a reply; `cut_off`: it ran into the output limit."""
    return render("prompts/no_action.md.j2", cut_off=cut_off).strip()


def browsing_unfinished(detail: str, page: Page | None, thought: str) -> str:
    """What there is to say of a browsing agent that ended without a report."""
    return render("prompts/browsing_unfinished.md.j2", detail=detail, page=page, thought=thought).strip()


def challenge(what: str) -> str:
    """What a browsing agent is told of a page that stands in its way."""
    return render("prompts/challenge.md.j2", what=what).strip()


def challenged(what: str, url: str) -> str:
    """Why its work ended at such a page."""
    return render("prompts/challenged.md.j2", what=what, url=url).strip()


def guessed(url: str) -> str:
    """What a browsing agent is told that went to an address which nobody named."""
    return render("prompts/guessed.md.j2", url=url).strip()


def off_form(problem: str) -> str:
    """What a browsing agent is told whose report is not in the form that was asked for."""
    return render("prompts/off_form.md.j2", problem=problem).strip()


def investigator_system(
    root: str,
    scratch: str,
    kind: Literal["docker", "local"],
    steps: int,
    longest: int,
    skill: Skill | None = None,
) -> str:
    """An investigator's system prompt; `longest`: characters of a report; `skill`: what a micro agent is told."""
    values = {"root": root, "scratch": scratch, "kind": kind, "steps": steps, "longest": longest}
    text = visible(skill.text)[0] if skill else ""
    return render("prompts/investigator_system.md.j2", **values, skill=skill, text=text)


def formed_report(longest: int) -> str:
    """The description of the tool that a micro agent reports with; `longest`: characters of a report."""
    return render("prompts/formed_report.md.j2", longest=longest).strip()


def micro_agent(skill: Skill) -> str:
    """The description of the tool that asks a micro agent."""
    return render("prompts/micro_agent.md.j2", skill=skill).strip()


def investigator_unfinished(detail: str, thought: str) -> str:
    """What there is to say of an investigator that ended without a report."""
    return render("prompts/investigator_unfinished.md.j2", detail=detail, thought=thought).strip()
