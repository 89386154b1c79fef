"""The process that works: it deals with deliveries and does jobs, beside any number of others like it."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

from bot.intake import Intake
from bot.redis.inbox import Inbox
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.signals import signals
from bot.triggers import Triggers
from bot.worker import Apologize, Resolve, Worker
from resolver.errors import SettingsError
from resolver.settings import Settings

READY = "patchwright works"
"""Begins the line that says that jobs are taken."""


def check(settings: Settings) -> str:
    """The URL of the Redis to work for. Raises SettingsError when there is none."""
    if settings.redis_url is None:
        raise SettingsError(
            "REDIS_URL is not set: name the Redis of the server that this worker works for. "
            "On one machine `patchwright serve` alone does everything."
        )
    return settings.redis_url


async def work(
    settings: Settings,
    resolve: Resolve,
    apologize: Apologize,
    *,
    sole: bool = False,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Take what is asked for from Redis and do it, until SIGTERM or SIGINT; which it was.

    `sole`: nobody else works on this Redis. What runs at the end goes back into the queue, and on elsewhere or at
    the next start. Raises SettingsError.
    """
    url = check(settings)
    rules = Triggers(label=settings.label, mention=settings.mention, app_id=settings.app_id)
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    queue, inbox = ArqQueue(url, sole=sole), Inbox(url)
    presence = Presence(url)
    with signals() as told:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.create_task(queue.work(Worker(resolve, apologize).run)),
            asyncio.create_task(Intake(inbox, queue, rules, name).run()),
            asyncio.create_task(presence.keep(name)),
        ]
        try:
            announce(f"{READY} as {name}")
            await asyncio.wait([*tasks, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for store in (queue, inbox, presence):
                await store.close()
    if faults := [end for end in ended if isinstance(end, Exception)]:
        raise faults[0]  # a fault of ours: let it be seen
    return told.result()
