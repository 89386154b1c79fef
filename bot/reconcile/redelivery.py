"""Deliveries that failed are asked for once more: GitHub does not send them again by itself, but keeps them for 3 days.

Source: docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pydantic import Field

from bot.github.answers import Answer
from bot.github.rest import Rest, Who, path_of
from bot.reconcile.apart import Apart
from bot.webhooks.delivery import EVENTS
from resolver.domain import Repo
from resolver.errors import ForgeError

log = logging.getLogger(__name__)

KEPT = timedelta(days=3)
LISTED = timedelta(minutes=10)  # how long a list of webhooks is good
OVERLAP = timedelta(seconds=15)  # an attempt is listed when it ends, up to 10 s after the time that it bears
MOST_ASKED = 8  # times that one delivery is asked for
FIRST_WAIT = timedelta(minutes=1)  # after an attempt in vain; doubled each time
MOST_AT_ONCE = 50  # asked for in one look: each takes a second
ACTIONS = frozenset({"labeled", "created", "submitted"})
"""What triggers are told by; these go first."""


class Attempt(Answer):
    """One time that GitHub tried to deliver something."""

    id: int
    guid: str
    delivered_at: datetime
    status_code: int
    event: str
    action: str | None = None

    @property
    def fine(self) -> bool:
        return 200 <= self.status_code < 400


class Failed(Answer):
    """A delivery that has not arrived."""

    first: Attempt
    last: datetime
    attempts: frozenset[int] = frozenset()
    asked: int = 0


class Ledger(Answer):
    """What has been read of the deliveries of a webhook."""

    failed: dict[str, Failed] = Field(default_factory=dict)
    listed: datetime | None = None
    """Up to when attempts have been read."""
    arrived: datetime | None = None
    """When something arrived last."""


class Memory(Protocol):
    """Outlives a worker. Both may raise QueueDown."""

    async def recall(self, name: str) -> bytes | None: ...

    async def remember(self, name: str, what: str) -> None: ...


class Webhook(Protocol):
    """Where deliveries are listed."""

    @property
    def who(self) -> Who: ...

    @property
    def path(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class AppWebhook:
    who: None = None
    path: tuple[str, ...] = ("app", "hook", "deliveries")


@dataclass(frozen=True)
class RepositoryWebhook:
    who: Repo
    id: int

    @property
    def path(self) -> tuple[str, ...]:
        return "repos", self.who.owner, self.who.name, "hooks", str(self.id), "deliveries"


class HookAnswer(Answer):
    id: int
    config: "HookConfig"


class HookConfig(Answer):
    url: str | None = None


class Redelivery:
    """What became of the deliveries of one webhook."""

    def __init__(
        self,
        rest: Rest,
        webhook: Webhook,
        *,
        memory: Memory | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        first_wait: timedelta = FIRST_WAIT,
    ) -> None:
        self._rest = rest
        self._webhook = webhook
        self._clock = clock
        self._first_wait = first_wait
        self._memory = memory
        self.name = "/".join(webhook.path)
        self._ledger = Ledger()

    async def ask_again(self) -> int:
        """Read what has been tried since the last time, and ask for what is due; how many.

        Raises ForgeError and QueueDown.
        """
        if self._memory is not None:
            known = await self._memory.recall(self.name)
            self._ledger = Ledger.model_validate_json(known) if known else Ledger()
        try:
            return await self._ask(await self._read())
        finally:
            if self._memory is not None:
                await self._memory.remember(self.name, self._ledger.model_dump_json())

    async def _ask(self, failed: dict[str, Failed]) -> int:
        now = self._clock()
        due = [one for one in failed.values() if self._is_due(one, now)]
        due.sort(key=lambda one: (one.first.action not in ACTIONS, one.first.delivered_at))
        for number, one in enumerate(due[:MOST_AT_ONCE]):
            if number:
                await asyncio.sleep(self._rest.between_writes)
            failed[one.first.guid] = one.model_copy(update={"asked": one.asked + 1, "last": now})
            try:
                path = (*self._webhook.path, str(one.first.id), "attempts")
                await self._rest.post(dict[str, object], self._webhook.who, *path)
            except ForgeError as exc:
                if exc.retryable:
                    raise
                log.warning("delivery not sent again", extra={"delivery": one.first.guid, "reason": str(exc)})
            else:
                log.info("delivery asked for", extra={"delivery": one.first.guid, "time": one.asked + 1})
        return len(due[:MOST_AT_ONCE])

    async def _read(self) -> dict[str, Failed]:
        """What has not arrived of the last three days, by GUID."""
        known, oldest = self._ledger, self._clock() - KEPT
        failed = {guid: one for guid, one in known.failed.items() if one.first.delivered_at > oldest}
        floor = oldest if known.listed is None else max(oldest, known.listed - OVERLAP)
        found: list[Attempt] = []
        async for page in self._rest.pages(list[Attempt], self._webhook.who, *self._webhook.path):
            found += page
            if not page or page[-1].delivered_at < floor:
                break
        for attempt in found:
            if attempt.delivered_at >= floor and attempt.event in EVENTS and not attempt.fine:
                failed[attempt.guid] = _noted(failed.get(attempt.guid), attempt)
        arrived = [attempt for attempt in found if attempt.fine]
        for attempt in arrived:
            failed.pop(attempt.guid, None)
        self._ledger = Ledger(
            failed=failed,
            listed=max((one.delivered_at for one in found), default=known.listed or floor),
            arrived=max([known.arrived or oldest, *(one.delivered_at for one in arrived)]),
        )
        return self._ledger.failed

    def _is_due(self, one: Failed, now: datetime) -> bool:
        if one.asked >= MOST_ASKED:
            return False  # what it told of is found by looking
        is_back = self._ledger.arrived is not None and self._ledger.arrived > one.last
        return is_back or now - one.last >= self._first_wait * 2**one.asked


def _noted(known: Failed | None, attempt: Attempt) -> Failed:
    if known is None:
        return Failed(first=attempt, last=attempt.delivered_at, attempts=frozenset({attempt.id}))
    attempts = known.attempts | {attempt.id}
    return Failed(
        first=known.first,
        last=max(known.last, attempt.delivered_at),
        attempts=attempts,
        asked=max(known.asked, len(attempts) - 1),
    )


class Webhooks:
    """Those of ours: the App's own, or those of repositories that call our address."""

    def __init__(
        self,
        rest: Rest,
        repositories: Sequence[Repo],
        url: str | None,
        redelivery: Callable[[Webhook], Redelivery],
    ) -> None:
        self._rest = rest
        self._repositories = repositories
        self._url = url
        self._redelivery = redelivery
        self._found: list[Redelivery] = []
        self._until: datetime | None = None
        """When they are listed again; None: now."""

    async def ask_again(self, now: datetime) -> bool:
        """As Redelivery does, for each; whether something is left.

        Raises RateLimited and QueueDown, and ForgeError when GitHub itself does not answer.
        """
        apart, left = Apart(), False
        if self._until is None or now > self._until:
            self._found = [self._redelivery(one) for one in await self.listed(apart)]
            self._until = None if apart.again else now + LISTED
        for one in self._found:
            async with apart.each_asked(one.name, self._rest):
                left |= await one.ask_again() == MOST_AT_ONCE
        return left

    async def listed(self, apart: Apart) -> list[Webhook]:
        """Raises RateLimited, and ForgeError when GitHub itself does not answer."""
        if self._rest.is_app:
            return [AppWebhook()]
        found: list[Webhook] = []
        for repo in self._repositories if self._url else ():
            # Who may not see them looks without.
            async with apart.each_asked(f"webhooks of {repo}", self._rest):
                hooks = await self._rest.get_all(HookAnswer, repo, *path_of(repo), "hooks")
                found += [RepositoryWebhook(repo, hook.id) for hook in hooks if hook.config.url == self._url]
        return found
