"""Processes webhook deliveries from the inbox. A delivery that is read twice leads to a single job."""

import asyncio
import functools
import logging

from pydantic import ValidationError

from patchwright.bot.errors import QueueDown
from patchwright.bot.observe.logging_setup import log_context
from patchwright.bot.redis.delivery_inbox import DeliveryInbox, StoredDelivery
from patchwright.bot.triggers.cancellation import RepositoryAccess
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.delivery import UnreadableDelivery, parse_delivery
from patchwright.bot.webhooks.payloads import DeliveryOrigin
from patchwright.bot.webhooks.triggers import DASHBOARD_EVENT, TriggerRequest
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import ForgeError

log = logging.getLogger(__name__)

ERROR_RETRY_SECONDS = 1.0  # pause after a Redis error
MAX_CONCURRENT_DELIVERIES = 64  # maximum number of deliveries that are processed at the same time
DELIVERY_TIMEOUT_SECONDS = 15.0  # time limit for one delivery; a delivery that takes longer is read again


class DeliveryProcessor:
    """Processes the deliveries of an inbox."""

    def __init__(
        self,
        inbox: DeliveryInbox,
        handler: TriggerHandler,
        consumer: str,
        access: RepositoryAccess | None = None,
    ) -> None:
        """`consumer` must be unique among the readers of the inbox.

        If `access` is None, the installation that a delivery names is not checked.
        """
        self._access = access
        self._inbox = inbox
        self._handler = handler
        self._consumer = consumer

    async def run(self) -> None:
        """Processes deliveries until canceled."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    deliveries = await self._inbox.read(self._consumer)
                except QueueDown as exc:
                    log.warning("inbox interrupted", extra={"reason": str(exc)})
                    await asyncio.sleep(ERROR_RETRY_SECONDS)
                    continue
                # The tasks run concurrently, because a command that waits for GitHub must not delay other
                # deliveries.
                for delivery in deliveries:
                    task = asyncio.create_task(self._process_and_acknowledge(delivery))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    task.add_done_callback(functools.partial(_log_failure, delivery))
                while len(tasks) >= MAX_CONCURRENT_DELIVERIES:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            while tasks:  # canceled repeatedly, because a Redis client can lose one cancellation
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=ERROR_RETRY_SECONDS)

    async def _process_and_acknowledge(self, delivery: StoredDelivery) -> None:
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_SECONDS):
                await self.process(delivery)
        except (ForgeError, TimeoutError) as exc:
            log.warning("delivery not processed", extra={"delivery": delivery.guid, "reason": str(exc)})
            if isinstance(exc, TimeoutError) or exc.retryable:
                return  # the delivery stays in the inbox and is read again
        await self._inbox.acknowledge(delivery)

    async def process(self, delivery: StoredDelivery) -> None:
        """Processes a delivery. Raises QueueDown or ForgeError if the delivery must be read again."""
        with log_context(delivery=delivery.guid):
            await self._process(delivery)

    async def _process(self, delivery: StoredDelivery) -> None:
        try:
            if delivery.event == DASHBOARD_EVENT:
                job = await self._handler.execute(TriggerRequest.model_validate_json(delivery.body))
            else:
                if await self._is_from_other_installation(delivery.body):
                    log.warning("delivery of another installation ignored")
                    return
                job = await self._handler.handle(parse_delivery(delivery.event, delivery.body))
        except (UnreadableDelivery, ValidationError) as exc:
            log.warning("delivery unreadable", extra={"reason": str(exc)})
            return
        if job:
            log.info("job queued", extra={"job": job})

    async def _is_from_other_installation(self, body: bytes) -> bool:
        """Returns True if the installation that the delivery names does not give our App access to the
        repository.

        Another App with the same webhook secret can send such a delivery. If GitHub does not respond, returns
        False. This is safe, because the handler checks the permission of every request.
        """
        if self._access is None:
            return False
        try:
            origin = DeliveryOrigin.model_validate_json(body)
            if origin.repository is None or origin.installation is None:
                return False
            repo = Repo(owner=origin.repository.owner.login, name=origin.repository.name)
            return not await self._access.is_own_installation(repo, origin.installation.id)
        except (ValidationError, ForgeError):
            return False


def _log_failure(delivery: StoredDelivery, task: asyncio.Task[None]) -> None:
    """Logs an unexpected error; the delivery stays in the inbox."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, QueueDown):
        log.warning("delivery interrupted", extra={"delivery": delivery.guid, "reason": str(error)})
        return
    # This is a bug in Patchwright. The delivery is read again until a fixed version processes it.
    log.error("delivery processing crashed", extra={"delivery": delivery.guid}, exc_info=error)
