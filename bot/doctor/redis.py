"""Redis: whether it answers, keeps what it is told, and who works on it."""

import asyncio
from pathlib import Path

from bot.doctor.examine import Check, Finding, failed, ok, warning
from bot.embedded import redis_server, running
from bot.errors import QueueDown
from bot.redis.inbox import Inbox
from bot.redis.presence import Presence
from resolver.settings.settings import Settings

OLDEST = (6, 0)


def checks(settings: Settings) -> list[Check]:
    mend = (
        "Start it, or correct REDIS_URL." if settings.redis_url else "Install redis-server, or set REDIS_URL."
    )
    return [Check("redis", lambda: redis(settings), mend)]


async def redis(settings: Settings) -> list[Finding]:
    """The one that is named, or the server's own."""
    url = settings.redis_url or await asyncio.to_thread(running, settings.data)
    if url is None:
        return [ok("redis", f"no server runs; it will start an embedded one ({Path(redis_server()).name})")]
    inbox, presence = Inbox(url), Presence(url)
    try:
        said, workers = await inbox.information(), await presence.workers()
    except QueueDown as exc:
        if settings.redis_url:
            raise
        seen = f"the server's own does not answer ({exc}): it ended without saying so, or starts just now"
        return [
            warning("redis", seen, "Start patchwright serve, or read redis/redis.log in the data directory.")
        ]
    finally:
        await inbox.close()
        await presence.close()
    return [_itself(said), _kept(said), _room(said), _workers(workers)]


def _itself(said: dict[str, object]) -> Finding:
    version = str(said.get("redis_version", "0"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if parts < OLDEST:
        return failed("redis", f"version {version}", "Version 6 or newer is needed.")
    return ok("redis", f"version {version} answers")


def _kept(said: dict[str, object]) -> Finding:
    name = "redis keeps"
    if said.get("loading"):
        return warning(name, "it still reads its file", "Wait, and look again.")
    if said.get("aof_enabled"):
        wrong = said.get("aof_last_write_status", "ok") != "ok"
        if wrong:
            return failed(name, "its last write to the append-only file failed", "Make room on its disk.")
        return ok(name, "what it is told, in an append-only file")
    return warning(
        name,
        "no append-only file: a restart forgets what was asked for",
        "Set appendonly yes in its configuration.",
    )


def _room(said: dict[str, object]) -> Finding:
    policy = str(said.get("maxmemory_policy", "noeviction"))
    if said.get("maxmemory") and policy != "noeviction":
        return failed(
            "redis memory", f"maxmemory-policy {policy} throws jobs away", "Set maxmemory-policy noeviction."
        )
    return ok("redis memory", f"{said.get('used_memory_human', 'some')} in use, nothing is thrown away")


def _workers(count: int) -> Finding:
    if count:
        return ok("workers", f"{count} at work")
    return warning("workers", "none is at work", "Start patchwright serve, or patchwright work beside it.")
