"""Selects the maintainers' instructions for the prompts, up to a limit in tokens. The system prompt contains those for
every run. The first message contains those with a keyword in the thread, and a list of the others.
"""

from patchwright.resolver.domain import JobId, Thread
from patchwright.resolver.events import Message, Trajectory
from patchwright.resolver.llm import token_estimate
from patchwright.resolver.preparation.instruction_sections import select_sections
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.skills.skills import RepoSkill, RepoSkills, find_trigger, normalize_text
from patchwright.resolver.text.untrusted import QuotedText, quote, strip_hidden
from patchwright.runtime.frozen_model import FrozenModel

MIN_TOKENS = 200  # tokens; a shorter excerpt of instructions is not useful
MAX_WHOLE_TOKENS = 1_000  # of a longer file for every run, only the sections that matter are shown
MAX_LATER_TOKENS = 4_000  # tokens of a skill whose keyword is in a later message
MAX_LISTED = 50  # skills and directories that are only listed


class IncludedSkill(FrozenModel):
    """Instructions whose text is in the prompts."""

    skill: RepoSkill
    keyword: str | None
    """The keyword of these instructions that was found in the thread. None if they are always included."""
    text: QuotedText
    omitted_sections: tuple[str, ...] = ()
    """Headings of the sections that are left out because the file is long and they are about something else."""
    tokens: int


class PromptInstructions(FrozenModel):
    """The maintainers' instructions in the prompts."""

    included: tuple[IncludedSkill, ...] = ()
    omitted: tuple[RepoSkill, ...] = ()
    """Skills whose text is left out because it exceeds the budget."""
    listed: tuple[RepoSkill, ...] = ()
    nested: tuple[RepoSkill, ...] = ()
    unlisted_count: int = 0
    """Number of skills that are not listed because there are too many."""
    problems: tuple[str, ...] = ()
    budget: int = 0
    """Budget in tokens."""

    @property
    def has_more_to_read(self) -> bool:
        """True if the prompts omit some instructions that the tool `read_skill` can return."""
        return bool(self.omitted or self.listed or self.nested) or any(
            skill.text.cut_characters or skill.omitted_sections for skill in self.included
        )


def select_instructions(skills: RepoSkills, thread: Thread, command: str, budget: int) -> PromptInstructions:
    """Selects the instructions for the start of a run.

    Instructions for every run come first, in order of priority. Instructions with a matching keyword follow.
    Only the visible text of the thread is searched for keywords, so hidden text cannot select instructions.
    """
    sources = (thread.title, thread.body, command, *(comment.body for comment in thread.comments))
    text = normalize_text(*(strip_hidden(part)[0] for part in sources))
    always = [(skill, None) for skill in skills.skills if skill.kind == "always"]
    triggered = [(skill, find_trigger(skill, text)) for skill in skills.skills if skill.kind == "triggered"]
    included: list[IncludedSkill] = []
    omitted: list[RepoSkill] = []
    remaining = budget
    for skill, keyword in (*always, *((skill, word) for skill, word in triggered if word)):
        if (included_skill := _include_skill(skill, keyword, remaining)) is None:
            omitted.append(skill)
            continue
        included.append(included_skill)
        remaining -= included_skill.tokens
    listed = [skill for skill in skills.skills if skill.kind == "listed"]
    listed += [skill for skill, word in triggered if word is None]
    nested = [skill for skill in skills.skills if skill.kind == "nested"]
    return PromptInstructions(
        included=tuple(included),
        omitted=tuple(omitted),
        listed=tuple(listed[:MAX_LISTED]),
        nested=tuple(nested[:MAX_LISTED]),
        unlisted_count=max(0, len(listed) - MAX_LISTED) + max(0, len(nested) - MAX_LISTED),
        problems=skills.problems,
        budget=budget,
    )


def find_newly_triggered(
    skills: RepoSkills, instructions: PromptInstructions, trajectory: Trajectory
) -> tuple[Message, ...]:
    """Returns a message with each skill whose keyword is in a later message of a person, but was not in the thread at
    the start. Each skill has its own `trigger_id`, so that the agent reads it only once.
    """
    later = (
        line.removeprefix("> ")
        for event in trajectory
        if isinstance(event, Message) and event.source in ("comment", "resume")
        for line in event.text.splitlines()
        if line.startswith("> ")  # The other lines are not the person's words.
    )
    if not (text := normalize_text(*later)):
        return ()
    known = {one.skill.name for one in instructions.included}
    found = ((skill, find_trigger(skill, text)) for skill in skills.skills if skill.kind == "triggered")
    included = (
        _include_skill(skill, keyword, MAX_LATER_TOKENS)
        for skill, keyword in found
        if keyword is not None and skill.name not in known
    )
    return tuple(
        Message(
            text=render_prompt("triggered_skill.md.j2", included=one),
            source="program",
            trigger_id=JobId(f"skill-{one.skill.name}"),
        )
        for one in included
        if one is not None
    )


def _include_skill(skill: RepoSkill, keyword: str | None, remaining: int) -> IncludedSkill | None:
    content, omitted, hidden = skill.text, tuple[str, ...](), 0
    if skill.kind == "always" and token_estimate.estimate_text_tokens(content) > MAX_WHOLE_TOKENS:
        # Text that nobody sees on the page must not look like a section.
        visible, hidden = strip_hidden(content)
        content, omitted = select_sections(visible)
    tokens = token_estimate.estimate_text_tokens(content)
    if tokens > remaining < MIN_TOKENS:
        return None
    limit = len(content) if tokens <= remaining else len(content) * remaining // tokens
    text = quote(content, limit)
    text = text.model_copy(update={"hidden_characters": text.hidden_characters + hidden})
    return IncludedSkill(
        skill=skill,
        keyword=keyword,
        text=text,
        omitted_sections=omitted,
        tokens=min(token_estimate.estimate_text_tokens(text.text), remaining),
    )
