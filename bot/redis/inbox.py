"""Deliveries on Redis, from the moment they are answered until they are dealt with: none is lost in between.

A stream that any number of workers read; what a dead one has taken is taken over by another.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bot.errors import QueueDown
from bot.redis.client import answers, redis_client, redis_errors
from runtime.frozen import Frozen

STREAM = "patchwright:inbox"
GROUP = "workers"
WAIT_MS = 2_000  # that a reader waits for a letter before it looks for those of dead readers
DEAD_MS = 20_000  # after which a letter that was taken and not dealt with is taken over
AT_ONCE = 16  # letters that a reader takes
MOST_IN_A_BATCH = 64


class Letter(Frozen):
    """A delivery whose signature was checked, as it came."""

    id: str
    """Of its place in the inbox; not GitHub's."""
    guid: str
    """GitHub's identity of the delivery: the same when it is delivered again."""
    event: str
    body: bytes


class Inbox:
    """Where signed deliveries wait. Every method may raise QueueDown."""

    def __init__(self, url: str, *, dead_ms: int = DEAD_MS) -> None:
        """Raises SettingsError for what is no URL of a Redis."""
        self._redis: Redis = redis_client(url)
        self._dead_ms = dead_ms
        self._waiting: list[tuple[Mapping[str, bytes], asyncio.Future[None]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def put(self, guid: str, event: str, body: bytes) -> None:
        """Store the delivery; it is safe when this returns.

        Those that come while others are being stored go together: one journey for each is what would cost.
        """
        stored = asyncio.get_running_loop().create_future()
        self._waiting.append(({"guid": guid.encode(), "event": event.encode(), "body": body}, stored))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        await stored

    async def _store(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_IN_A_BATCH], self._waiting[MOST_IN_A_BATCH:]
                try:
                    with redis_errors():
                        pipe = self._redis.pipeline(transaction=False)
                        for fields, _ in batch:
                            pipe.xadd(STREAM, cast("dict[Any, Any]", fields))
                        await pipe.execute()
                except QueueDown as exc:
                    for _, stored in batch:
                        if not stored.done():
                            stored.set_exception(QueueDown(str(exc)))
                    continue
                for _, stored in batch:
                    if not stored.done():  # whoever waited for it may have gone
                        stored.set_result(None)
        finally:
            self._storing = None

    async def take(self, reader: str) -> tuple[Letter, ...]:
        """The next letters, oldest first, for this reader; those of dead readers before new ones."""
        with redis_errors():
            try:
                _, found, *_ = await self._redis.xautoclaim(
                    STREAM, GROUP, reader, min_idle_time=self._dead_ms, count=AT_ONCE
                )
            except ResponseError as exc:
                if "NOGROUP" not in str(exc):
                    raise
                await self._redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
                found = []
            if not found:
                read = await self._redis.xreadgroup(
                    GROUP, reader, {STREAM: ">"}, count=AT_ONCE, block=WAIT_MS
                )
                found = read[0][1] if read else []
        return tuple(_letter(id, fields) for id, fields in found)

    async def done(self, letter: Letter) -> None:
        """It was dealt with: forget it."""
        with redis_errors():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.xack(STREAM, GROUP, letter.id)
                pipe.xdel(STREAM, letter.id)
                await pipe.execute()

    async def size(self) -> int:
        """Letters that wait."""
        with redis_errors():
            return int(await self._redis.xlen(STREAM))

    async def information(self) -> dict[str, Any]:
        """What Redis says of itself (the command INFO)."""
        with redis_errors():
            return dict(await self._redis.info())

    async def healthy(self) -> bool:
        """Whether a delivery could be stored now; never raises."""
        return await answers(self._redis)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def _letter(id: bytes, fields: Mapping[bytes, bytes] | None) -> Letter:
    known = fields or {}  # None: it was deleted after it was taken
    text = {name: known.get(name, b"").decode(errors="replace") for name in (b"guid", b"event")}
    return Letter(id=id.decode(), guid=text[b"guid"], event=text[b"event"], body=known.get(b"body", b""))
