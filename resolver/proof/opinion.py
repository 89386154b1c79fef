"""A second model's opinion of a patch: it reads issue and diff, and its words go to reviewers. It decides nothing."""

import logging

from resolver.domain import Opinion, Patch, Thread, Verdict
from resolver.errors import ModelError
from resolver.events import Usage
from resolver.llm.model import FromUser, Message, Model, System
from resolver.proof import proof_prose
from resolver.secrets import Secrets
from resolver.words.quotation import quote, visible

logger = logging.getLogger(__name__)

DIFF = 60_000  # characters of the patch that are shown
ISSUE = 20_000  # characters of the issue
WORDS = 3_000  # characters of the opinion that are kept


async def opinion(
    model: Model, thread: Thread, patch: Patch, verdict: Verdict, secrets: Secrets
) -> tuple[Opinion | None, Usage | None]:
    """What the model thinks, and what it cost; None: it gave no opinion that could be understood, or no reply."""
    diff = secrets.mask(patch.diff.decode(errors="replace"))
    asked: list[Message] = [
        System(text=proof_prose.reviewer_system()),
        FromUser(
            text=proof_prose.to_review(
                thread.title, quote(thread.body, ISSUE), verdict, diff[:DIFF], cut=len(diff) > DIFF
            )
        ),
    ]
    try:
        reply = await model.reply(asked, ())
    except ModelError as exc:
        logger.warning("no second opinion", extra={"model": model.name, "why": str(exc)})
        return None, exc.usage
    return understood(reply.text, reply.usage.model), reply.usage


def understood(text: str, model: str) -> Opinion | None:
    """The opinion in a reply that begins with APPROVE or REJECT, as was asked for; None: it does not."""
    shown, _ = visible(text)
    first, _, rest = shown.strip().partition("\n")
    word, _, more = first.strip("*# `").partition(" ")
    decision = word.strip(":.,*").upper()
    if decision not in ("APPROVE", "REJECT"):
        return None
    words = "\n".join(filter(None, (more.strip(" *:-"), rest.strip())))
    return Opinion(approves=decision == "APPROVE", words=words[:WORDS].strip(), model=model)
