"""Renders the texts about verification for the agent and the review model: one typed function per text, as in
`resolver/prompts/prompt_texts.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchwright.resolver.rendering.template_renderer import render

if TYPE_CHECKING:
    from patchwright.resolver.domain import Verdict
    from patchwright.resolver.text.untrusted import QuotedText


def render_verification_failed(verdict: Verdict) -> str:
    """Tells the agent that verification failed, because the patch breaks tests or its own tests fail."""
    return render("prompts/verification_failed.md.j2", verdict=verdict)


def render_reviewer_system() -> str:
    """Renders the system prompt of the review model."""
    return render("prompts/reviewer_system.md.j2")


def render_review_request(
    title: str, issue: QuotedText, verdict: Verdict, diff: str, *, truncated: bool
) -> str:
    """Renders the prompt of the review model. `truncated` means that `diff` is incomplete."""
    return render(
        "prompts/review_request.md.j2",
        title=title,
        issue=issue,
        verdict=verdict,
        diff=diff,
        is_truncated=truncated,
    )


def render_unsettled_verdict(verdict: Verdict) -> str:
    """Tells the agent that the fix is not proven, that a person has to agree to conditions, or that the review
    model rejected the patch.
    """
    return render("prompts/unsettled_verdict.md.j2", verdict=verdict)


def render_another_attempt(verdict: Verdict, number: int, max_attempts: int) -> str:
    """Tells the agent that the work tree was reset for another attempt. `number` is the number of the previous
    attempt.
    """
    return render("prompts/another_attempt.md.j2", verdict=verdict, number=number, max_attempts=max_attempts)
