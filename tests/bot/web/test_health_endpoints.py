"""The endpoints for monitoring, with a Redis of their own."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.leader_lease import PollFailure
from patchwright.bot.web.health_endpoints import HealthEndpoints
from patchwright.bot.web.redis_stores import RedisStores
from tests.bot.jobs import job

pytestmark = pytest.mark.redis


async def test_a_github_outage_is_reported_and_does_not_affect_readiness(url: str) -> None:
    async with RedisStores.open(url) as stores:
        await stores.leader_lease.record_failure(
            PollFailure(reason="no answer from GitHub", since=datetime.now(UTC))
        )
        here = asyncio.create_task(stores.heartbeats.keep_beating("a worker"))
        async with asyncio.timeout(60):
            while not await stores.heartbeats.count_workers():
                await asyncio.sleep(0.02)
        status, _, text = await HealthEndpoints(stores, {}).ready()
        here.cancel()
        await asyncio.gather(here, return_exceptions=True)
    assert status == 200
    assert json.loads(text) | {"version": ""} == {
        "version": "",
        "redis": True,
        "worker": True,
        "github": False,
    }


class EmptiedInbox(DeliveryInbox):
    """An inbox whose only delivery becomes a job right after the deliveries were counted."""

    queue: ArqQueue

    async def size(self) -> int:
        waiting = await super().size()
        (letter,) = await self.read("a worker")
        await self.queue.put(job("counted"))
        await self.acknowledge(letter)
        return waiting


async def test_a_delivery_processed_while_metrics_are_read_is_counted(url: str) -> None:
    async with RedisStores.open(url) as stores:
        await stores.inbox.put("1", "issues", b"{}")
        emptied = EmptiedInbox(url)
        emptied.queue = stores.queue
        _, _, text = await HealthEndpoints(replace(stores, inbox=emptied), {}).metrics()
        await emptied.close()
    assert b"patchwright_inbox_deliveries 1.0" in text
    assert b'patchwright_jobs{state="queued"} 1.0' in text
