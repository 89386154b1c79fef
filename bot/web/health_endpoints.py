"""The endpoints for monitoring: /healthz, /readyz and /metrics."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from patchwright.bot.errors import QueueDown
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.bot.webhooks.receiver import GetEndpoint
from patchwright.runtime import VERSION


@dataclass(frozen=True)
class HealthEndpoints:
    """Reports the state of a server. Each method returns a status code, a content type and a body."""

    stores: RedisStores
    deliveries: Mapping[tuple[str, str], int]
    """The number of deliveries since this process started, by event and result."""

    def by_path(self) -> dict[str, GetEndpoint]:
        return {"/healthz": self.alive, "/readyz": self.ready, "/metrics": self.metrics}

    async def alive(self) -> tuple[int, str, bytes]:
        return _json_response(200, {"version": VERSION})

    async def ready(self) -> tuple[int, str, bytes]:
        workers, github_failure = 0, None
        with contextlib.suppress(QueueDown):
            workers = await self.stores.heartbeats.count_workers()
            github_failure = await self.stores.leader_lease.fetch_failure()
        checks = {"redis": await self.stores.inbox.is_healthy(), "worker": workers > 0}
        # An outage of GitHub does not affect readiness, because restarting or isolating this server would not
        # help.
        details = {"github": github_failure is None}
        return _json_response(200 if all(checks.values()) else 503, {"version": VERSION, **checks, **details})

    async def metrics(self) -> tuple[int, str, bytes]:
        from patchwright.bot.observe.metrics import CONTENT_TYPE, MetricsSnapshot, render_metrics

        try:
            # The inbox is read before the jobs. Otherwise, a delivery that becomes a job between the two
            # reads would not be counted.
            inbox_size = await self.stores.inbox.size()
            jobs, oldest_job_seconds = await self.stores.queue.measure_backlog()
            snapshot = MetricsSnapshot(
                deliveries=self.deliveries,
                counts=await self.stores.counters.fetch_counts(),
                inbox_size=inbox_size,
                jobs=jobs,
                oldest_job_seconds=oldest_job_seconds,
                workers=await self.stores.heartbeats.count_workers(),
            )
        except QueueDown as exc:
            return 503, "text/plain; charset=utf-8", f"{exc}\n".encode()
        return 200, CONTENT_TYPE, render_metrics(snapshot)


def _json_response(status: int, content: Mapping[str, object]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(content).encode()
