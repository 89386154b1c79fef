"""Stores webhook deliveries in Redis until they are processed.

GitHub gets a success response only after its delivery is stored. The inbox is a Redis stream with a consumer
group. If a worker dies, another worker claims the entries that the dead worker had read.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import RedisStore, can_write
from patchwright.runtime.frozen_model import FrozenModel

INBOX_KEY = "patchwright:inbox"
CONSUMER_GROUP = "workers"
# How long a read waits for new deliveries. Then the next read looks for deliveries of dead workers again.
BLOCK_MS = 2_000
CLAIM_IDLE_MS = 20_000  # another worker can claim an entry that was read this long ago and not acknowledged
READ_BATCH_SIZE = 16  # maximum number of deliveries per read
MAX_WRITE_BATCH = 64


class StoredDelivery(FrozenModel):
    """A webhook delivery as it was received. Its signature has been verified."""

    entry_id: str
    """The id of the entry in the Redis stream. GitHub's delivery id is a different id."""
    guid: str
    """GitHub's id of the delivery. If GitHub sends a delivery again, the id stays the same."""
    event: str
    body: bytes


class DeliveryInbox(RedisStore):
    """The verified deliveries that are not processed yet. Every method may raise QueueDown."""

    def __init__(self, url: str, *, claim_idle_ms: int = CLAIM_IDLE_MS) -> None:
        """Raises SettingsError if the Redis URL is invalid."""
        super().__init__(url)
        self._claim_idle_ms = claim_idle_ms
        self._pending: list[tuple[Mapping[str, bytes], asyncio.Future[None]]] = []
        self._write_task: asyncio.Task[None] | None = None

    async def put(self, guid: str, event: str, body: bytes) -> None:
        """Stores a delivery. Returns after Redis has stored it.

        Deliveries that arrive during a write are stored together by the next write. This is faster, because
        most of the time is spent on round trips to Redis.
        """
        written = asyncio.get_running_loop().create_future()
        self._pending.append(({"guid": guid.encode(), "event": event.encode(), "body": body}, written))
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write_pending())
        await written

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending[:MAX_WRITE_BATCH], self._pending[MAX_WRITE_BATCH:]
                try:
                    pipe = self._redis.pipeline(transaction=False)
                    for fields, _ in batch:
                        pipe.xadd(INBOX_KEY, cast("dict[Any, Any]", fields))
                    await pipe.execute()
                except QueueDown as exc:
                    for _, written in batch:
                        if not written.done():
                            written.set_exception(QueueDown(str(exc)))
                    continue
                for _, written in batch:
                    if not written.done():  # the request that waits for this result may have been canceled
                        written.set_result(None)
        finally:
            self._write_task = None

    async def read(self, consumer: str) -> tuple[StoredDelivery, ...]:
        """Returns the next deliveries for this consumer, oldest first.

        Deliveries that a dead worker left unprocessed come before new ones.
        """
        try:
            _, entries, *_ = await self._redis.xautoclaim(
                INBOX_KEY,
                CONSUMER_GROUP,
                consumer,
                min_idle_time=self._claim_idle_ms,
                count=READ_BATCH_SIZE,
            )
        except QueueDown as exc:
            if "NOGROUP" not in str(exc.__cause__):
                raise
            await self._redis.xgroup_create(INBOX_KEY, CONSUMER_GROUP, id="0", mkstream=True)
            entries = []
        if not entries:
            streams = await self._redis.xreadgroup(
                CONSUMER_GROUP, consumer, {INBOX_KEY: ">"}, count=READ_BATCH_SIZE, block=BLOCK_MS
            )
            entries = streams[0][1] if streams else []
        return tuple(_parse_entry(entry_id, fields) for entry_id, fields in entries)

    async def acknowledge(self, delivery: StoredDelivery) -> None:
        """Removes a processed delivery from the inbox."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.xack(INBOX_KEY, CONSUMER_GROUP, delivery.entry_id)
            pipe.xdel(INBOX_KEY, delivery.entry_id)
            await pipe.execute()

    async def size(self) -> int:
        """Returns the number of unprocessed deliveries."""
        return int(await self._redis.xlen(INBOX_KEY))

    async def fetch_redis_info(self) -> dict[str, Any]:
        """Returns the output of the Redis command INFO."""
        return dict(await self._redis.info())

    async def is_healthy(self) -> bool:
        """Returns True if a delivery could be stored now; never raises."""
        return await can_write(self._redis)


def _parse_entry(entry_id: bytes, fields: Mapping[bytes, bytes] | None) -> StoredDelivery:
    values = fields or {}  # None if the entry was deleted after it was read
    text = {name: values.get(name, b"").decode(errors="replace") for name in (b"guid", b"event")}
    return StoredDelivery(
        entry_id=entry_id.decode(), guid=text[b"guid"], event=text[b"event"], body=values.get(b"body", b"")
    )
