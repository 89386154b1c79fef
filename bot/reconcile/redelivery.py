"""Asks GitHub to send failed webhook deliveries again. GitHub keeps deliveries for 3 days, but does not send
failed ones again by itself.

Source: docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pydantic import Field

from patchwright.bot.github.error_isolation import ErrorIsolation
from patchwright.bot.github.rest import Principal, RestClient, repo_path
from patchwright.bot.github.schemas import GitHubResponse
from patchwright.bot.webhooks.delivery import HANDLED_EVENTS
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import ForgeError

log = logging.getLogger(__name__)

DELIVERY_RETENTION = timedelta(days=3)
MAX_LIST_AGE = timedelta(minutes=10)  # how long a list of webhooks is valid
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


class StateStore(Protocol):
    """Stores values that remain when a worker ends. Both methods may raise QueueDown."""

    async def load(self, name: str) -> bytes | None: ...

    async def save(self, name: str, value: str) -> None: ...


class Webhook(Protocol):
    """A webhook of the App or of a repository. `path` is the API path of its delivery attempts."""

    @property
    def owner(self) -> Principal: ...

    @property
    def path(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class AppWebhook:
    owner: None = None
    path: tuple[str, ...] = ("app", "hook", "deliveries")


@dataclass(frozen=True)
class RepositoryWebhook:
    owner: Repo
    id: int

    @property
    def path(self) -> tuple[str, ...]:
        return "repos", self.owner.owner, self.owner.name, "hooks", str(self.id), "deliveries"


class WebhookResponse(GitHubResponse):
    id: int
    config: "WebhookConfig"


class WebhookConfig(GitHubResponse):
    url: str | None = None


class Redelivery:
    """Asks GitHub to send the failed deliveries of one webhook again."""

    def __init__(
        self,
        rest: RestClient,
        webhook: Webhook,
        *,
        state: StateStore | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        first_wait: timedelta = FIRST_WAIT,
    ) -> None:
        self._rest = rest
        self._webhook = webhook
        self._clock = clock
        self._first_wait = first_wait
        self._state = state
        self.name = "/".join(webhook.path)
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
                path = (*self._webhook.path, str(delivery.first_attempt.id), "attempts")
                await self._rest.post(dict[str, object], self._webhook.owner, *path)
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
        async for page in self._rest.iter_pages(
            list[DeliveryAttempt], self._webhook.owner, *self._webhook.path
        ):
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


class OwnWebhooks:
    """Patchwright's own webhooks. With an App, this is the App's webhook. With a token, these are the
    repositories' webhooks with the configured URL.
    """

    def __init__(
        self,
        rest: RestClient,
        repositories: Sequence[Repo],
        url: str | None,
        redelivery: Callable[[Webhook], Redelivery],
    ) -> None:
        self._rest = rest
        self._repositories = repositories
        self._url = url
        self._redelivery = redelivery
        self._redeliveries: list[Redelivery] = []
        self._list_expires_at: datetime | None = None
        """The time at which the webhooks must be listed again; None means now."""

    async def redeliver(self, now: datetime) -> bool:
        """Asks GitHub to send the failed deliveries of every webhook again. Returns True if some of them may
        be left for the next call.

        Raises RateLimited and QueueDown, and ForgeError if GitHub itself is down.
        """
        isolation, has_more = ErrorIsolation(), False
        if self._list_expires_at is None or now > self._list_expires_at:
            self._redeliveries = [
                self._redelivery(webhook) for webhook in await self.list_webhooks(isolation)
            ]
            self._list_expires_at = None if isolation.should_retry else now + MAX_LIST_AGE
        for redelivery in self._redeliveries:
            async with isolation.isolate_request(redelivery.name, self._rest):
                has_more |= await redelivery.redeliver() == MAX_PER_ROUND
        return has_more

    async def list_webhooks(self, isolation: ErrorIsolation) -> list[Webhook]:
        """Lists the webhooks. Raises RateLimited, and ForgeError if GitHub itself is down."""
        if self._rest.is_app:
            return [AppWebhook()]
        webhooks: list[Webhook] = []
        for repo in self._repositories if self._url else ():
            # If the token may not list webhooks, missed events are found only by polling.
            async with isolation.isolate_request(f"webhooks of {repo}", self._rest):
                hooks = await self._rest.get_all(WebhookResponse, repo, *repo_path(repo), "hooks")
                webhooks += [
                    RepositoryWebhook(repo, hook.id) for hook in hooks if hook.config.url == self._url
                ]
        return webhooks
