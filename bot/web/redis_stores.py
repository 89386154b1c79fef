"""The Redis stores that the HTTP endpoints of the server read."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.redis.shared_run_index import SharedRunIndex


@dataclass(frozen=True)
class RedisStores:
    """Connections to one Redis, each for one kind of data."""

    inbox: DeliveryInbox
    heartbeats: Heartbeats
    queue: ArqQueue
    counters: Counters
    runs: SharedRunIndex
    leader_lease: LeaderLease

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator["RedisStores"]:
        stores = cls(
            DeliveryInbox(url),
            Heartbeats(url),
            ArqQueue(url),
            Counters(url),
            SharedRunIndex(url),
            LeaderLease(url),
        )
        try:
            yield stores
        finally:
            for store in vars(stores).values():
                await store.close()
