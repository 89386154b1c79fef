"""Tries again to post comments that GitHub did not accept at first.

The final text of a job is stored in Redis before it is posted, and removed afterwards. If GitHub rejects the
text, or the process dies, the text is posted later. If it were lost, the comment would show the job as in
progress forever.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from patchwright.bot.errors import ForgeUnavailable, QueueDown
from patchwright.bot.jobs import JobRecord
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.unposted_comments import UnpostedComment, UnpostedComments, new_comment
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.rendering.template_renderer import render_reply

log = logging.getLogger(__name__)

FIRST_WAIT = timedelta(seconds=30)  # time before the first retry; doubled after every attempt
MAX_WAIT = timedelta(hours=1)
MAX_AGE = timedelta(days=3)  # older texts are dropped
# If no job is known for a text, the text is posted after this time. Until then, the delivery that led to the
# text may be retried.
NO_JOB_WAIT = timedelta(minutes=10)


class OutboxForge(Protocol):
    """The part of GitHubForge that the outbox uses. The methods may raise ForgeError."""

    outbox: "CommentOutbox | None"

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str: ...

    async def is_comment_in_progress(self, repo: Repo, number: int, tag: str) -> bool: ...


class CommentOutbox:
    """Stores texts until GitHub accepts them."""

    def __init__(
        self,
        store: UnpostedComments,
        forge: OutboxForge,
        records: ArqQueue,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._forge = forge
        self._records = records
        self._clock = clock

    async def store(self, repo: Repo, number: int, tag: str, body: str | None) -> None:
        """Stores the final text of a job (`body`) before it is posted. Does nothing if Redis is down.

        If `body` is None, records that a comment now shows the job as in progress.
        """
        with contextlib.suppress(QueueDown):
            await self._store.put(new_comment(repo, number, tag, body))

    async def remove(self, repo: Repo, number: int, tag: str) -> None:
        """Removes a final text after it was posted. If Redis is down, the text stays stored, and may be
        posted again.
        """
        with contextlib.suppress(QueueDown):
            await self._store.remove(repo, number, tag)

    async def post_due(self) -> None:
        """Posts the texts that GitHub has not accepted, if their jobs have ended. Raises QueueDown."""
        now = self._clock()
        for comment in await self._store.list_due(now):
            record = await self._records.get_record(comment.tag)
            if record is not None and record.state != "completed":
                continue  # The job has not ended, and will post its own text.
            if record is None and now - comment.since < (NO_JOB_WAIT if comment.body else MAX_AGE):
                continue
            if now - comment.since >= MAX_AGE:
                log.warning("comment never posted", extra=_fields(comment))
                await self._store.remove(comment.repo, comment.number, comment.tag)
                continue
            try:
                await self._post(comment, record)
            except ForgeError as exc:
                log.warning("comment not posted yet", extra={**_fields(comment), "reason": str(exc)})
                wait = min(FIRST_WAIT * 2 ** min(comment.attempts, 10), MAX_WAIT)
                changes = {"attempts": comment.attempts + 1, "next_attempt": now + wait}
                await self._store.put(comment.model_copy(update=changes))
                if isinstance(exc, ForgeUnavailable):
                    return  # GitHub is down, so the other texts would fail, too.

    async def _post(self, comment: UnpostedComment, record: JobRecord | None) -> None:
        place = comment.repo, comment.number, comment.tag
        body = comment.body
        if body is None and await self._forge.is_comment_in_progress(*place):
            body = render_reply("ended.md.j2", run=comment.tag, result=record.result if record else None)
        if body is None:
            await self._store.remove(*place)
            return
        await self._forge.upsert_comment(*place, body)  # upsert_comment also removes the stored text
        log.info("comment posted late", extra=_fields(comment))


def _fields(comment: UnpostedComment) -> dict[str, object]:
    return {"job": comment.tag, "repo": str(comment.repo), "number": comment.number}


@contextlib.asynccontextmanager
async def open_outbox(url: str, forge: OutboxForge) -> AsyncIterator[CommentOutbox]:
    """Yields an outbox. Inside the block, the forge stores final texts in this outbox before it posts them."""
    store, queue = UnpostedComments(url), ArqQueue(url)
    forge.outbox = CommentOutbox(store, forge, queue)
    try:
        yield forge.outbox
    finally:
        forge.outbox = None
        await store.close()
        await queue.close()
