"""Health checks of the server's components, for the dashboard."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from patchwright.bot.dashboard.dependencies import ComponentHealth, DashboardDependencies
from patchwright.bot.redis.engine_health import EngineStatus
from patchwright.bot.redis.leader_lease import PollFailure
from patchwright.bot.run_summary import RunSummary
from patchwright.resolver.rendering import filters

STALLED_QUEUE_SECONDS = 300.0  # the queue counts as stalled if its oldest job has waited this long


async def check_components(
    deps: DashboardDependencies, model_run: RunSummary | None
) -> tuple[ComponentHealth, ...]:
    """Returns the health of each component, starting with the receiver. Raises QueueDown.

    `model_run` is the newest run that shows whether the model's provider works; None if there is no such run.
    """
    (
        inbox_size,
        is_redis_healthy,
        workers,
        (jobs, oldest_seconds),
        engines,
        poll_failure,
    ) = await asyncio.gather(
        deps.inbox.size(),
        deps.inbox.is_healthy(),
        deps.heartbeats.count_workers(),
        deps.queue.measure_backlog(),
        deps.engine_health.fetch_statuses(),
        deps.leader_lease.fetch_failure(),
    )
    inbox = f"unprocessed deliveries: {inbox_size}" if is_redis_healthy else "writes fail"
    backlog = f"{jobs.get('running', 0)} running, {jobs.get('queued', 0)} queued"
    age = f", the oldest for {filters.format_duration(oldest_seconds)}" if oldest_seconds >= 1 else ""
    return (
        _receiver_health(deps.delivery_counts),
        ComponentHealth(name="Redis", is_healthy=is_redis_healthy, details=inbox),
        ComponentHealth(name="Workers", is_healthy=workers > 0, details=f"{workers} running"),
        ComponentHealth(
            name="Queue", is_healthy=oldest_seconds < STALLED_QUEUE_SECONDS, details=backlog + age
        ),
        *_engine_health(engines),
        *_model_health(model_run),
        _github_health(poll_failure),
    )


def _receiver_health(delivery_counts: Mapping[tuple[str, str], int]) -> ComponentHealth:
    """Returns the health of the webhook receiver.

    The receiver is unhealthy if it got deliveries of known events, but none with a valid signature. Requests
    without an event name come from port scanners and are ignored.
    """
    figures = f"deliveries since the server started: {sum(delivery_counts.values()):,}"
    results = {result for event, result in delivery_counts if event != "other"}
    is_healthy = results != {"invalid signature"}
    return ComponentHealth(
        name="Receiver",
        is_healthy=is_healthy,
        details=figures if is_healthy else f"{figures}, none with a valid signature",
    )


def _model_health(run: RunSummary | None) -> tuple[ComponentHealth, ...]:
    """Returns the health of the model's provider in the newest run that used it. Returns () if no run has."""
    if run is None:
        return ()
    if run.fault != "provider":
        return (ComponentHealth(name="Model", is_healthy=True, details="the last run got replies"),)
    details = f"the last run failed: {run.error or 'the provider failed or rejected a request'}"
    return (ComponentHealth(name="Model", is_healthy=False, details=details),)


def _github_health(failure: PollFailure | None) -> ComponentHealth:
    """Returns the health of GitHub, based on the results of polling, because only the poller sends requests to
    GitHub continuously.
    """
    if failure is None:
        return ComponentHealth(name="GitHub", is_healthy=True, details="no request fails")
    duration = filters.format_duration((datetime.now(UTC) - failure.since).total_seconds())
    return ComponentHealth(
        name="GitHub", is_healthy=False, details=f"all polls have failed for {duration}: {failure.reason}"
    )


def _engine_health(statuses: Mapping[str, EngineStatus]) -> tuple[ComponentHealth, ...]:
    """Returns the health of the container engines, according to the last report of each machine with a
    worker.

    Returns () if no machine has reported.
    """
    if not statuses:
        return ()
    faults = [f"{machine}: {one.problem}" for machine, one in sorted(statuses.items()) if one.problem]
    figures = "; ".join((f"{len(statuses) - len(faults)} of {len(statuses)} machines respond", *faults))
    return (ComponentHealth(name="Engine", is_healthy=not faults, details=figures),)
