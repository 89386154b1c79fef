"""Checks of Redis: reachability, version, persistence, eviction policy, and active workers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from patchwright.bot.commands.run_table import is_being_written
from patchwright.bot.doctor.runner import CheckResult, DoctorCheck, failed, is_server, ok, warning
from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.connection import find_redis_problem
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import LOCK_NAME, find_redis_server, running_redis_url
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.resolver.settings.settings import Settings

MIN_VERSION = (6, 0)


def build_checks(settings: Settings) -> list[DoctorCheck]:
    fix = (
        "Start Redis, or correct REDIS_URL."
        if settings.redis_url
        else "Install redis-server, or set REDIS_URL."
    )
    return [DoctorCheck("redis", lambda: check_redis(settings), fix)]


async def check_redis(settings: Settings) -> list[CheckResult]:
    """Checks the configured Redis. If no Redis is configured, checks the embedded Redis of a running server.

    If a server is configured, the check fails if no server or no worker is running.
    """
    embedded = await asyncio.to_thread(running_redis_url, settings.data)
    if embedded is None and await asyncio.to_thread(is_being_written, settings.data / "redis" / LOCK_NAME):
        fix = "Open the URL that patchwright serve printed, and complete the setup."
        return [warning("server", "running, but its setup in the browser is not complete", fix)]
    url = settings.redis_url or embedded
    if url is None and is_server(settings):
        detail = f"not running: no server uses the data directory {settings.data}"
        return [failed("server", detail, "Start patchwright serve.")]
    if url is None:
        return [
            ok(
                "redis",
                "no server is running; the next server will start an embedded Redis "
                f"({Path(find_redis_server()).name})",
            )
        ]
    if settings.redis_url and (problem := await find_redis_problem(url)):
        return [failed("redis", problem.rstrip("."), "Start Redis, or correct REDIS_URL.")]
    inbox, heartbeats = DeliveryInbox(url), Heartbeats(url)
    try:
        info, workers = await inbox.fetch_redis_info(), await heartbeats.count_workers()
    except QueueDown as exc:
        if settings.redis_url:
            raise  # it failed since the check above
        detail = f"the embedded Redis does not respond ({exc}): it was killed or is still starting"
        fix = "Start patchwright serve, or read redis/redis.log in the data directory."
        return [_problem(settings)("redis", detail, fix)]
    finally:
        await inbox.close()
        await heartbeats.close()
    return [
        *(_check_version(info), _check_persistence(info), _check_memory(info)),
        _check_workers(workers, settings),
    ]


def _problem(settings: Settings) -> Callable[[str, str, str], CheckResult]:
    """Returns the kind of result for a part that only a server needs."""
    return failed if is_server(settings) else warning


def _check_version(info: dict[str, object]) -> CheckResult:
    version = str(info.get("redis_version", "0"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if parts < MIN_VERSION:
        return failed("redis", f"version {version}", "Upgrade to version 6 or newer.")
    return ok("redis", f"version {version} responds")


def _check_persistence(info: dict[str, object]) -> CheckResult:
    name = "redis persistence"
    if info.get("loading"):
        return warning(name, "Redis is still loading its data", "Wait, and check again.")
    if info.get("aof_enabled"):
        write_failed = info.get("aof_last_write_status", "ok") != "ok"
        if write_failed:
            return failed(
                name, "the last write to the append-only file failed", "Free space on Redis's disk."
            )
        return ok(name, "the append-only file is enabled")
    return warning(
        name,
        "no append-only file: queued jobs are lost when Redis restarts",
        "Set appendonly yes in the Redis configuration.",
    )


def _check_memory(info: dict[str, object]) -> CheckResult:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if info.get("maxmemory") and policy != "noeviction":
        return failed(
            "redis memory",
            f"maxmemory-policy {policy} can delete queued jobs",
            "Set maxmemory-policy noeviction.",
        )
    return ok("redis memory", f"{info.get('used_memory_human', 'some')} in use, no eviction")


def _check_workers(count: int, settings: Settings) -> CheckResult:
    if count:
        return ok("workers", f"{count} running")
    fix = "Start patchwright serve, or patchwright work on any machine. A worker that just started builds images first."
    return _problem(settings)("workers", "no worker is running", fix)
