"""How each part of the server does, for the page."""

import asyncio

from bot.errors import QueueDown
from bot.page.kit import Kit, Part
from resolver import wording

LONG_WAIT = 300.0  # seconds after which the queue is said not to move


async def parts(kit: Kit) -> tuple[Part, ...]:
    """Each part, the receiver first. Raises QueueDown only where Redis went away meanwhile."""
    total = sum(kit.deliveries.values())
    receiver = Part(name="Receiver", works=True, figures=f"{total:,} deliveries since it began")
    try:
        inbox, workers, (jobs, oldest) = await asyncio.gather(
            kit.inbox.size(), kit.presence.workers(), kit.queue.waiting()
        )
    except QueueDown as exc:
        return receiver, Part(name="Redis", works=False, figures=str(exc))
    waiting = f"{jobs.get('running', 0)} under way, {jobs.get('queued', 0)} wait"
    age = f", the next one for {wording.duration(oldest)}" if oldest >= 1 else ""
    return (
        receiver,
        Part(name="Redis", works=True, figures=f"{inbox} deliveries to be read"),
        Part(name="Workers", works=workers > 0, figures=f"{workers} at work"),
        Part(name="Queue", works=oldest < LONG_WAIT, figures=waiting + age),
        *[await told() for told in kit.parts],
    )
