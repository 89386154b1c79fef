"""Asks GitHub to send failed webhook deliveries again. GitHub keeps deliveries for 3 days, but does not send
failed ones again by itself.

Source: docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pydantic import Field

from patchwright.bot.github.rest import RestClient
from patchwright.bot.github.schemas import GitHubResponse
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.webhooks.delivery import HANDLED_EVENTS
from patchwright.resolver.errors import ForgeError

log = logging.getLogger(__name__)

DELIVERIES_PATH = ("app", "hook", "deliveries")
DELIVERY_RETENTION = timedelta(days=3)
# GitHub lists an attempt when it has ended, up to 10 s after the attempt's timestamp
OVERLAP = timedelta(seconds=15)
MAX_REDELIVERIES = 8  # maximum number of times that one delivery is sent again
FIRST_WAIT = timedelta(minutes=1)  # time between a failed attempt and its redelivery; doubled each time
MAX_PER_ROUND = 50  # maximum number of redeliveries requested in a row; each request takes about a second
TRIGGER_ACTIONS = frozenset({"labeled", "created", "submitted"})
"""The actions of events that can start a run. Redeliveries of these events are requested first."""


class DeliveryAttempt(GitHubResponse):
    """One attempt by GitHub to send a delivery."""

    id: int
    guid: str
    delivered_at: datetime
    status_code: int
    event: str
    action: str | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 400


class FailedDelivery(GitHubResponse):
    """A delivery whose attempts have all failed so far."""

    first_attempt: DeliveryAttempt
    last_attempt_at: datetime
    attempt_ids: frozenset[int] = frozenset()
    redelivery_count: int = 0


class DeliveryHistory(GitHubResponse):
    """The failed deliveries of one webhook, and how much of GitHub's list of delivery attempts has been read."""

    failed: dict[str, FailedDelivery] = Field(default_factory=dict)
    read_until: datetime | None = None
    """The time up to which GitHub's list of delivery attempts has been read."""
    last_success_at: datetime | None = None
    """The time of the last successful delivery."""


class Redelivery:
    """Asks GitHub to send the failed deliveries of the App's webhook again."""

    name = "/".join(DELIVERIES_PATH)

    def __init__(
        self,
        rest: RestClient,
        *,
        state: LeaderLease | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        first_wait: timedelta = FIRST_WAIT,
    ) -> None:
        self._rest = rest
        self._clock = clock
        self._first_wait = first_wait
        self._state = state
        self._history = DeliveryHistory()

    async def redeliver(self) -> int:
        """Reads new delivery attempts, and requests the redeliveries that are due. Returns the number of
        requested redeliveries.

        Raises ForgeError and QueueDown.
        """
        if self._state is not None:
            stored = await self._state.load(self.name)
            self._history = DeliveryHistory.model_validate_json(stored) if stored else DeliveryHistory()
        try:
            return await self._request_due(await self._read_failed())
        finally:
            if self._state is not None:
                await self._state.save(self.name, self._history.model_dump_json())

    async def _request_due(self, failed: dict[str, FailedDelivery]) -> int:
        now = self._clock()
        due = [delivery for delivery in failed.values() if self._is_due(delivery, now)]
        due.sort(
            key=lambda delivery: (
                delivery.first_attempt.action not in TRIGGER_ACTIONS,
                delivery.first_attempt.delivered_at,
            )
        )
        for number, delivery in enumerate(due[:MAX_PER_ROUND]):
            if number:
                await asyncio.sleep(self._rest.write_interval)
            failed[delivery.first_attempt.guid] = delivery.model_copy(
                update={"redelivery_count": delivery.redelivery_count + 1, "last_attempt_at": now}
            )
            try:
                path = (*DELIVERIES_PATH, str(delivery.first_attempt.id), "attempts")
                await self._rest.post(dict[str, object], None, *path)
            except ForgeError as exc:
                if exc.retryable:
                    raise
                log.warning(
                    "redelivery request failed",
                    extra={"delivery": delivery.first_attempt.guid, "reason": str(exc)},
                )
            else:
                log.info(
                    "redelivery requested",
                    extra={"delivery": delivery.first_attempt.guid, "attempt": delivery.redelivery_count + 1},
                )
        return len(due[:MAX_PER_ROUND])

    async def _read_failed(self) -> dict[str, FailedDelivery]:
        """Returns a mapping from GUIDs to the failed deliveries of the last three days."""
        history, oldest = self._history, self._clock() - DELIVERY_RETENTION
        failed = {
            guid: delivery
            for guid, delivery in history.failed.items()
            if delivery.first_attempt.delivered_at > oldest
        }
        floor = oldest if history.read_until is None else max(oldest, history.read_until - OVERLAP)
        attempts: list[DeliveryAttempt] = []
        async for page in self._rest.iter_pages(list[DeliveryAttempt], None, *DELIVERIES_PATH):
            attempts += page
            if not page or page[-1].delivered_at < floor:
                break
        for attempt in attempts:
            if attempt.delivered_at >= floor and attempt.event in HANDLED_EVENTS and not attempt.is_success:
                failed[attempt.guid] = _add_attempt(failed.get(attempt.guid), attempt)
        arrived = [attempt for attempt in attempts if attempt.is_success]
        for attempt in arrived:
            failed.pop(attempt.guid, None)
        self._history = DeliveryHistory(
            failed=failed,
            read_until=max(
                (attempt.delivered_at for attempt in attempts), default=history.read_until or floor
            ),
            last_success_at=max(
                [history.last_success_at or oldest, *(attempt.delivered_at for attempt in arrived)]
            ),
        )
        return self._history.failed

    def _is_due(self, delivery: FailedDelivery, now: datetime) -> bool:
        if delivery.redelivery_count >= MAX_REDELIVERIES:
            return False  # polling will find the event of this delivery
        is_back = (
            self._history.last_success_at is not None
            and self._history.last_success_at > delivery.last_attempt_at
        )
        return is_back or now - delivery.last_attempt_at >= self._first_wait * 2**delivery.redelivery_count


def _add_attempt(known: FailedDelivery | None, attempt: DeliveryAttempt) -> FailedDelivery:
    if known is None:
        return FailedDelivery(
            first_attempt=attempt, last_attempt_at=attempt.delivered_at, attempt_ids=frozenset({attempt.id})
        )
    attempts = known.attempt_ids | {attempt.id}
    return FailedDelivery(
        first_attempt=known.first_attempt,
        last_attempt_at=max(known.last_attempt_at, attempt.delivered_at),
        attempt_ids=attempts,
        redelivery_count=max(known.redelivery_count, len(attempts) - 1),
    )
