"""Stores comments that GitHub has not accepted yet, and comments of jobs in progress."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import cast

from patchwright.bot.redis.connection import RedisStore, parse_stored
from patchwright.resolver.domain import JobId, Repo
from patchwright.runtime.frozen_model import FrozenModel

UNPOSTED_KEY = "patchwright:unposted_comments"  # hash: thread and tag -> UnpostedComment


class UnpostedComment(FrozenModel):
    """The last text that a job wrote for its comment. GitHub may not have accepted this text."""

    repo: Repo
    number: int
    tag: JobId
    body: str | None
    """The final text of the comment. It is None while the comment shows the job as in progress."""
    since: datetime
    """The time when the text was written (UTC)."""
    attempts: int = 0
    """The number of repeated attempts to post the text."""
    next_attempt: datetime

    @property
    def field(self) -> str:
        """The key of this comment in the Redis hash."""
        return comment_field(self.repo, self.number, self.tag)


class UnpostedComments(RedisStore):
    """Stores unposted comments in Redis. Every method except `close` may raise QueueDown."""

    async def put(self, comment: UnpostedComment) -> None:
        """Stores the comment. Replaces an earlier text for the same comment."""
        await cast(
            "Awaitable[int]",
            self._redis.hset(UNPOSTED_KEY, comment.field, comment.model_dump_json()),
        )

    async def remove(self, repo: Repo, number: int, tag: str) -> None:
        await cast("Awaitable[int]", self._redis.hdel(UNPOSTED_KEY, comment_field(repo, number, tag)))

    async def list_due(self, now: datetime) -> list[UnpostedComment]:
        """Returns the comments whose next attempt is due, oldest first."""
        stored = await cast("Awaitable[dict[bytes, bytes]]", self._redis.hgetall(UNPOSTED_KEY))
        # An incompatible version posts what it has stored.
        comments = filter(None, (parse_stored(UnpostedComment, value) for value in stored.values()))
        return sorted((one for one in comments if one.next_attempt <= now), key=lambda one: one.since)


def comment_field(repo: Repo, number: int, tag: str) -> str:
    """Returns the key under which the Redis hash stores a comment."""
    return f"{repo}#{number}:{tag}".lower()


def new_comment(repo: Repo, number: int, tag: str, body: str | None) -> UnpostedComment:
    """Returns an entry for a comment. The next attempt to post it is due now."""
    now = datetime.now(UTC)
    return UnpostedComment(repo=repo, number=number, tag=JobId(tag), body=body, since=now, next_attempt=now)
