"""How each part of the server does, for the page."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from bot.page.kit import Kit, Part
from bot.redis.engines import Told
from bot.redis.lookout import Trouble
from resolver.words import wording

LONG_WAIT = 300.0  # seconds after which the queue is said not to move


async def parts(kit: Kit) -> tuple[Part, ...]:
    """Each part, the receiver first. Raises QueueDown."""
    inbox, stores, workers, (jobs, oldest), engines, trouble = await asyncio.gather(
        kit.inbox.size(),
        kit.inbox.healthy(),
        kit.presence.workers(),
        kit.queue.waiting(),
        kit.engines.told(),
        kit.lookout.trouble(),
    )
    kept = f"deliveries to be read: {inbox}" if stores else "nothing can be stored there"
    waiting = f"{jobs.get('running', 0)} under way, {jobs.get('queued', 0)} wait"
    age = f", the next one for {wording.duration(oldest)}" if oldest >= 1 else ""
    return (
        _receiver(kit.deliveries),
        Part(name="Redis", works=stores, figures=kept),
        Part(name="Workers", works=workers > 0, figures=f"{workers} at work"),
        Part(name="Queue", works=oldest < LONG_WAIT, figures=waiting + age),
        *_engine(engines),
        _github(trouble),
    )


def _receiver(deliveries: Mapping[tuple[str, str], int]) -> Part:
    """Of GitHub's events: whoever looks for open doors names none."""
    figures = f"deliveries since it began: {sum(deliveries.values()):,}"
    became = {what for event, what in deliveries if event != "other"}
    works = became != {"forged"}
    return Part(
        name="Receiver",
        works=works,
        figures=figures if works else f"{figures}, none of them signed with our webhook secret",
    )


def _github(trouble: Trouble | None) -> Part:
    """As whoever looks there for what no delivery tells has found it last."""
    if trouble is None:
        return Part(name="GitHub", works=True, figures="no look there fails")
    away = wording.duration((datetime.now(UTC) - trouble.since).total_seconds())
    return Part(name="GitHub", works=False, figures=f"no look there has worked for {away}: {trouble.reason}")


def _engine(told: Mapping[str, Told]) -> tuple[Part, ...]:
    """As the workers' machines have found it last; nothing where none has told."""
    if not told:
        return ()
    faults = [f"{machine}: {one.problem}" for machine, one in sorted(told.items()) if one.problem]
    figures = "; ".join((f"{len(told) - len(faults)} of {len(told)} machines answer", *faults))
    return (Part(name="Engine", works=not faults, figures=figures),)
