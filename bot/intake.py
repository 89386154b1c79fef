"""What a delivery leads to: read, and turned into a job. It may be read twice, and leads to one job all the same."""

import asyncio
import logging

from bot.errors import QueueDown
from bot.jobs import Queue
from bot.redis.inbox import Inbox, Letter
from bot.triggers import Triggers, job_for, names_of
from bot.webhook import Unreadable, read

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # after Redis did not answer


class Intake:
    """Deals with the deliveries of an inbox, one after the other."""

    def __init__(self, inbox: Inbox, queue: Queue, rules: Triggers, name: str) -> None:
        """`name`: this reader's own, among all that read the inbox."""
        self._inbox = inbox
        self._queue = queue
        self._rules = rules
        self._name = name

    async def run(self) -> None:
        """Deal with deliveries until cancelled."""
        while True:
            try:
                for letter in await self._inbox.take(self._name):
                    await self.deal_with(letter)
                    await self._inbox.done(letter)
            except QueueDown as exc:
                log.warning("the inbox is interrupted", extra={"reason": str(exc)})
                await asyncio.sleep(PAUSE_SECONDS)

    async def deal_with(self, letter: Letter) -> None:
        """Do what the delivery asks for, if it asks for something. Raises QueueDown: it must be read again."""
        try:
            delivery = read(letter.event, letter.body)
        except Unreadable as exc:
            log.warning("delivery unreadable", extra={"delivery": letter.guid, "reason": str(exc)})
            return
        if (job := job_for(delivery, self._rules)) is None:
            return
        for name in names_of(delivery, job)[1:]:
            if await self._queue.state(name) is not None:  # found before its delivery came
                return
        fresh = await self._queue.put(job)
        log.info("job queued" if fresh else "job known", extra={"delivery": letter.guid, "job": job.id})
