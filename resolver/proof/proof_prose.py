"""What the proof tells the agent, as `resolver/prose.py`: one typed function per text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resolver.prose import render

if TYPE_CHECKING:
    from resolver.domain import Opinion, Verdict
    from resolver.words.quotation import Quoted


def sent_back(verdict: Verdict) -> str:
    """What the agent hears when its patch breaks tests that passed before, or fails those that it brings."""
    return render("prompts/sent_back.md.j2", verdict=verdict)


def reviewer_system() -> str:
    """The system prompt of the model that gives a second opinion."""
    return render("prompts/reviewer_system.md.j2")


def to_review(title: str, issue: Quoted, verdict: Verdict, diff: str, *, cut: bool) -> str:
    """What that model is shown; `cut`: the diff is longer than this."""
    return render("prompts/to_review.md.j2", title=title, issue=issue, verdict=verdict, diff=diff, cut=cut)


def reflection(opinion: Opinion) -> str:
    """What the agent hears when a second model rejects its patch."""
    return render("prompts/reflection.md.j2", opinion=opinion)


def another_attempt(verdict: Verdict, number: int, attempts: int) -> str:
    """That the work tree was put back, and the work begins again; `number`: of the attempt that ended."""
    return render("prompts/another_attempt.md.j2", verdict=verdict, number=number, attempts=attempts)
