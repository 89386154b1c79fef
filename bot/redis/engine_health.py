"""Stores whether the workers' container engines work. Each worker reports on the engine of its own host."""

import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic import ValidationError

from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import RedisStore
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.frozen_model import FrozenModel

ENGINE_HEALTH_KEY = "patchwright:engine_health"  # hash: host -> EngineStatus
STALE_SECONDS = 180.0  # reports older than this are ignored
MAX_PROBLEM_LENGTH = 300  # maximum characters of an error message


class EngineStatus(FrozenModel):
    """The state of the container engine on one host."""

    problem: str
    """The error message of the container engine; "" if the engine works."""
    checked_at: float
    """Seconds since 1970."""


class EngineHealth(RedisStore):
    """Stores the engine reports of all workers in Redis."""

    def __init__(self, url: str, host: str = "") -> None:
        """`host` defaults to this machine's host name. Raises SettingsError if the URL is invalid."""
        super().__init__(url)
        self._host = host or socket.gethostname()

    async def report(self, problem: str = "") -> None:
        """Reports the state of this host's engine; never raises."""
        status = EngineStatus(problem=problem[:MAX_PROBLEM_LENGTH], checked_at=time.time()).model_dump_json()
        with contextlib.suppress(QueueDown):
            await cast("Any", self._redis.hset(ENGINE_HEALTH_KEY, self._host, status))

    async def fetch_statuses(self) -> dict[str, EngineStatus]:
        """Returns the recent reports, one for each host. Raises QueueDown."""
        stored = await cast("Any", self._redis.hgetall(ENGINE_HEALTH_KEY))
        statuses: dict[str, EngineStatus] = {}
        for host, value in stored.items():
            with contextlib.suppress(ValidationError):  # written by an incompatible version
                status = EngineStatus.model_validate_json(value)
                if status.checked_at > time.time() - STALE_SECONDS:
                    statuses[host.decode(errors="replace")] = status
        return statuses


def report_after_sweep(
    sweep: Callable[[], Awaitable[object]], engine_health: EngineHealth
) -> Callable[[], Awaitable[None]]:
    """Wraps `sweep`, which removes leftover sandboxes. The engine is reported as healthy if `sweep`
    succeeds.
    """

    async def sweep_and_report() -> None:
        try:
            await sweep()
        except SandboxError as exc:
            await engine_health.report(str(exc) or type(exc).__name__)
            raise
        await engine_health.report()

    return sweep_and_report
