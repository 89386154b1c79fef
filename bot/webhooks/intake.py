"""What a delivery leads to: read, and done. It may be read twice, and leads to one job all the same."""

import asyncio
import functools
import logging

from pydantic import ValidationError

from bot.desk import Desk
from bot.errors import QueueDown
from bot.observe.logs import about
from bot.pressed import EVENT as BUTTON
from bot.pressed import Pressed
from bot.redis.inbox import Inbox, Letter
from bot.webhooks.delivery import Unreadable, read
from resolver.errors import ForgeError

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # after Redis did not answer
MOST_AT_ONCE = 64  # deliveries that are dealt with side by side
DEAL_SECONDS = 15.0  # for one delivery; it is read again later


class Intake:
    """Deals with the deliveries of an inbox."""

    def __init__(self, inbox: Inbox, desk: Desk, name: str) -> None:
        """`name`: this reader's own, among all that read the inbox."""
        self._inbox = inbox
        self._desk = desk
        self._name = name

    async def run(self) -> None:
        """Deal with deliveries until cancelled."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    letters = await self._inbox.take(self._name)
                except QueueDown as exc:
                    log.warning("the inbox is interrupted", extra={"reason": str(exc)})
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                # Side by side: a command waits for the forge, and nobody else is to wait with it.
                for letter in letters:
                    task = asyncio.create_task(self._finish(letter))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    task.add_done_callback(functools.partial(_tell, letter))
                while len(under_way) >= MOST_AT_ONCE:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        finally:
            while under_way:  # again and again: what a client of Redis is told once, it may not hear
                for task in under_way:
                    task.cancel()
                await asyncio.wait(under_way, timeout=PAUSE_SECONDS)

    async def _finish(self, letter: Letter) -> None:
        try:
            async with asyncio.timeout(DEAL_SECONDS):
                await self.deal_with(letter)
        except (ForgeError, TimeoutError) as exc:
            log.warning("delivery not dealt with", extra={"delivery": letter.guid, "reason": str(exc)})
            if isinstance(exc, TimeoutError) or exc.retryable:
                return  # it stays, and is read again
        await self._inbox.done(letter)

    async def deal_with(self, letter: Letter) -> None:
        """Do what the delivery asks for, if it asks for something. Raises QueueDown or ForgeError: read it again."""
        with about(delivery=letter.guid):
            await self._deal_with(letter)

    async def _deal_with(self, letter: Letter) -> None:
        try:
            if letter.event == BUTTON:
                fresh = await self._desk.press(Pressed.model_validate_json(letter.body))
            else:
                fresh = await self._desk.take(read(letter.event, letter.body))
        except (Unreadable, ValidationError) as exc:
            log.warning("delivery unreadable", extra={"delivery": letter.guid, "reason": str(exc)})
            return
        if fresh:
            log.info("job queued", extra={"delivery": letter.guid, "job": fresh})


def _tell(letter: Letter, task: asyncio.Task[None]) -> None:
    """Log what has gone wrong; the letter stays."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, QueueDown):
        log.warning("delivery interrupted", extra={"delivery": letter.guid, "reason": str(error)})
        return
    # A fault of ours, for a version of us without it; nobody waits for that.
    log.error("delivery broke its reader", extra={"delivery": letter.guid}, exc_info=error)
