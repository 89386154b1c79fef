"""The process that works: it deals with deliveries and does jobs, beside any number of others like it."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bot.child import READY
from bot.ci.watch import CiWatch, Eyes
from bot.desk import Desk, Mute, Speaker
from bot.errors import QueueDown
from bot.jobs import Again, Cancelled, Handler, Result, stop_heard
from bot.lifecycle import Grants, Lifecycle, Pulls
from bot.observe.logs import about
from bot.queued import Waiting, when_free
from bot.redis.holds import SharedHolds
from bot.redis.inbox import Inbox
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.signals import signals
from bot.webhooks.intake import Intake
from bot.webhooks.triggers import Triggers
from bot.worker import Apologize, Resolve, Worker
from resolver.cost import named
from resolver.domain import Job, JobId, Spent
from resolver.errors import SettingsError
from resolver.settings.settings import Settings

log = logging.getLogger(__name__)

Ended = Callable[[JobId, Result], Awaitable[Spent | None]]
"""Hears what a job came to, and may hear it again; says what it cost, if that is known."""
Watch = Callable[[Desk, str], Coroutine[Any, Any, None]]
"""Brings to a desk what no delivery told, in the name of this worker, until it is cancelled."""

END_SECONDS = 30.0  # for what runs to be put away; the server gives a worker 40


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
    prepare: Callable[[], Awaitable[object]] | None = None,
    ended: Ended | None = None,
    watch: Watch | None = None,
    speaker: Speaker | None = None,
    pulls: Pulls | None = None,
    grants: Grants | None = None,
    eyes: Eyes | None = None,
    sole: bool = False,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Take what is asked for from Redis and do it, until SIGTERM or SIGINT; which it was.

    `prepare` makes ready what jobs need; until then they wait, and their threads are told so. `watch` runs beside, and
    finds what no delivery told. `speaker` answers commands; None: nobody does. `pulls` and `grants`: see
    bot/lifecycle.py. `eyes`: see bot/ci/watch.py; None: nobody looks at checks. `sole`: nobody else works on this
    Redis. What runs at the end goes back into the queue, and on elsewhere or at the next start. Raises SettingsError,
    and what `prepare` raises.
    """
    url = check(settings)
    rules = Triggers(label=settings.label, mention=settings.mention, app_id=settings.app_id)
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    queue, inbox = ArqQueue(url, sole=sole, at_once=settings.jobs_at_once), Inbox(url)
    lifecycle = Lifecycle(queue, rules.label, speaker or Mute(), pulls, grants)
    holds = SharedHolds(url)
    presence = Presence(url)
    waiting = Waiting(queue, holds, speaker or Mute(), rules.mention, workers=presence.workers)
    checks = CiWatch(queue, eyes, settings.branch_prefix) if eyes and settings.ci_repairs else None
    desk = Desk(queue, rules, speaker or Mute(), lifecycle, waiting, checks)

    async def take() -> None:
        if prepare is not None:
            await prepare()
        announce(f"{READY} as {name}")
        handler = _telling(Worker(when_free(resolve, holds), apologize).run, ended)
        async with asyncio.TaskGroup() as group:
            group.create_task(presence.keep(name))
            group.create_task(queue.work(handler, waiting.tell_left))

    with signals(announce, END_SECONDS) as told:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.create_task(take()),
            asyncio.create_task(Intake(inbox, desk, name).run()),
        ]
        if watch is not None:
            tasks.append(asyncio.create_task(watch(desk, name)))
        try:
            await asyncio.wait([*tasks, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # Once: a second word would cut short what a job does at its end, and its containers would be left.
            await asyncio.wait(tasks, timeout=END_SECONDS)
            for store in (desk, queue, inbox, presence, holds):
                await store.close()
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()  # a fault of ours: let it be seen
    return told.result()


def _telling(handler: Handler, ended: Ended | None) -> Handler:
    async def told(job: Job, tries: int) -> Result | Again:
        facts = {"repo": str(job.repo), "number": job.number}
        with about(job=job.id):
            log.info("job begun", extra={**facts, "try": tries})
            try:
                result = await handler(job, tries)
            except asyncio.CancelledError:
                if stop := stop_heard():
                    # In a task of its own: what waits in a cancelled one may be cancelled once more.
                    await asyncio.wait((asyncio.create_task(end(job, Cancelled(why=stop.why), facts)),))
                else:
                    log.info("job put away", extra=facts)
                raise
            if isinstance(result, Again):
                log.info("job put back", extra={**facts, "again_seconds": round(result.seconds)})
            else:
                await end(job, result, facts)
            return result

    async def end(job: Job, result: Result, facts: dict[str, object]) -> None:
        spent = None
        if ended is not None:
            with contextlib.suppress(QueueDown):  # a figure is lost, and nothing else
                spent = await ended(job.id, result)
        log.info("job ended", extra={**facts, **_came_to(result), **_cost(spent)})

    return told


def _came_to(result: Result) -> dict[str, object]:
    """What of a result its line has; other people's words, such as a reason, are for its thread."""
    found: dict[str, object] = {"outcome": result.kind}
    if verdict := getattr(result, "verdict", None):
        found["verdict"] = verdict.kind
    if url := getattr(result, "url", None):
        found["url"] = url
    if isinstance(result, Cancelled):
        found["why"] = result.why
    return found


def _cost(spent: Spent | None) -> dict[str, object]:
    if spent is None:
        return {}
    cost: dict[str, object] = {**named("cost_usd", spent.cost)} or {"cost_usd": None}
    return {**cost, "seconds": round(spent.seconds, 1)}
