"""Asks a second model to review a patch. The model's opinion is shown to human reviewers and does not affect
the verdict.
"""

import logging

from patchwright.resolver.domain import ModelReview, Patch, Thread, Verdict
from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import ChatMessage, Model, SystemMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.text.untrusted import quote, strip_hidden

logger = logging.getLogger(__name__)

MAX_DIFF_LENGTH = 60_000  # maximum characters of the patch that the model sees
MAX_ISSUE_LENGTH = 20_000  # maximum characters of the issue that the model sees
MAX_REVIEW_LENGTH = 3_000  # maximum characters of the review that are kept


async def review_patch(
    model: Model, thread: Thread, patch: Patch, verdict: Verdict, secrets: Secrets
) -> tuple[ModelReview | None, ReplyUsage | None]:
    """Asks a model to review the patch. Returns the review, and the usage of the model call. The review is None
    if there is no reply or the reply cannot be parsed.
    """
    diff = secrets.mask(patch.diff.decode(errors="replace"))
    messages: list[ChatMessage] = [
        SystemMessage(text=render("prompts/reviewer_system.md.j2")),
        UserMessage(
            text=render(
                "prompts/review_request.md.j2",
                title=thread.title,
                issue=quote(thread.body, MAX_ISSUE_LENGTH),
                verdict=verdict,
                diff=diff[:MAX_DIFF_LENGTH],
                is_truncated=len(diff) > MAX_DIFF_LENGTH,
            )
        ),
    ]
    try:
        reply = await model.reply(messages, ())
    except ModelError as exc:
        logger.warning("patch review failed", extra={"model": model.name, "error": str(exc)})
        return None, exc.usage
    return parse_review(reply.text, reply.usage.model), reply.usage


def parse_review(text: str, model: str) -> ModelReview | None:
    """Parses a reply that begins with APPROVE or REJECT. Returns None if the reply begins with another
    word.
    """
    visible, _ = strip_hidden(text)
    first, _, rest = visible.strip().partition("\n")
    word, _, same_line_text = first.strip("*# `").partition(" ")
    decision = word.strip(":.,*").upper()
    if decision not in ("APPROVE", "REJECT"):
        return None
    reasons = "\n".join(filter(None, (same_line_text.strip(" *:-"), rest.strip())))
    return ModelReview(
        approved=decision == "APPROVE", reasons=reasons[:MAX_REVIEW_LENGTH].strip(), model=model
    )
