"""Which of a repository's instructions the agent is told at once, within a budget, and which it is only named."""

from resolver.domain import Thread
from resolver.llm import tokens
from resolver.preparing.skills import Skill, Skills, called, searchable
from resolver.words.quotation import Quoted, quote, visible
from runtime.frozen import Frozen

LEAST = 200  # tokens; less of a text than this is not worth beginning
MAX_NAMED = 50  # skills and directories that are only named


class Shown(Frozen):
    """Instructions that stand in the first message."""

    skill: Skill
    keyword: str | None
    """The word of the thread that called for it; None: it is always shown."""
    text: Quoted
    tokens: int


class Instructions(Frozen):
    """What the first message says of a repository's instructions."""

    shown: tuple[Shown, ...] = ()
    left_out: tuple[Skill, ...] = ()
    """For which the budget had no room."""
    listed: tuple[Skill, ...] = ()
    nested: tuple[Skill, ...] = ()
    unnamed: int = 0
    """Skills beyond those that are named."""
    problems: tuple[str, ...] = ()
    budget: int = 0
    """Tokens."""

    @property
    def readable(self) -> bool:
        """Whether there is anything that `read_skill` gives and the first message does not."""
        return bool(self.left_out or self.listed or self.nested) or any(one.text.cut for one in self.shown)


def instructions(skills: Skills, thread: Thread, command: str, budget: int) -> Instructions:
    """What to tell at the start of a run.

    First what is always told, the best known file first, then what a keyword calls for. A keyword counts where a
    person reading the page would see it.
    """
    said = (thread.title, thread.body, command, *(comment.body for comment in thread.comments))
    text = searchable(*(visible(part)[0] for part in said))
    always = [(skill, None) for skill in skills.skills if skill.kind == "always"]
    triggered = [(skill, called(skill, text)) for skill in skills.skills if skill.kind == "triggered"]
    shown: list[Shown] = []
    left_out: list[Skill] = []
    left = budget
    for skill, keyword in (*always, *((skill, word) for skill, word in triggered if word)):
        if (one := _shown(skill, keyword, left)) is None:
            left_out.append(skill)
            continue
        shown.append(one)
        left -= one.tokens
    named = [skill for skill in skills.skills if skill.kind == "listed"]
    named += [skill for skill, word in triggered if word is None]
    nested = [skill for skill in skills.skills if skill.kind == "nested"]
    return Instructions(
        shown=tuple(shown),
        left_out=tuple(left_out),
        listed=tuple(named[:MAX_NAMED]),
        nested=tuple(nested[:MAX_NAMED]),
        unnamed=max(0, len(named) - MAX_NAMED) + max(0, len(nested) - MAX_NAMED),
        problems=skills.problems,
        budget=budget,
    )


def _shown(skill: Skill, keyword: str | None, left: int) -> Shown | None:
    whole = tokens.of_text(skill.text)
    if whole > left < LEAST:
        return None
    limit = len(skill.text) if whole <= left else len(skill.text) * left // whole
    text = quote(skill.text, limit)
    return Shown(skill=skill, keyword=keyword, text=text, tokens=min(tokens.of_text(text.text), left))
