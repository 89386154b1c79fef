"""Deliveries that failed are asked for once more: GitHub does not send them again by itself, but keeps them for 3 days.

Source: docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bot.answers import Answer
from bot.receiver import EVENTS
from bot.rest import Rest, Who
from resolver.domain import Repo
from resolver.errors import Forbidden, ForgeError, NotFound

log = logging.getLogger(__name__)

KEPT = timedelta(days=3)
OVERLAP = timedelta(seconds=30)  # an attempt is listed when it ends, up to 10 s after the time that it bears
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


@dataclass
class _Failed:
    first: Attempt
    last: datetime
    attempts: set[int] = field(default_factory=set)
    asked: int = 0


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


async def webhooks(rest: Rest, repositories: Sequence[Repo], url: str | None) -> list[Webhook]:
    """The App's own, or those of the repositories that call this address. Raises ForgeError."""
    if rest.is_app:
        return [AppWebhook()]
    found: list[Webhook] = []
    for repo in repositories if url else ():
        try:
            hooks = await rest.get_all(HookAnswer, repo, "repos", repo.owner, repo.name, "hooks")
        except (Forbidden, NotFound) as exc:
            log.warning("webhooks not shown", extra={"repo": str(repo), "reason": str(exc)})
            continue
        found += [RepositoryWebhook(repo, hook.id) for hook in hooks if hook.config.url == url]
    return found


class Redelivery:
    """What became of the deliveries of one webhook."""

    def __init__(
        self,
        rest: Rest,
        webhook: Webhook,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        first_wait: timedelta = FIRST_WAIT,
    ) -> None:
        self._rest = rest
        self._webhook = webhook
        self._clock = clock
        self._first_wait = first_wait
        self._failed: dict[str, _Failed] = {}
        self._listed: datetime | None = None
        """Up to when attempts have been read."""
        self._arrived: datetime | None = None
        """When something arrived last."""

    async def ask_again(self) -> int:
        """Read what has been tried since the last time, and ask for what is due; how many. Raises ForgeError."""
        await self._read()
        now = self._clock()
        due = [one for one in self._failed.values() if self._is_due(one, now)]
        due.sort(key=lambda one: (one.first.action not in ACTIONS, one.first.delivered_at))
        for number, one in enumerate(due[:MOST_AT_ONCE]):
            if number:
                await asyncio.sleep(self._rest.between_writes)
            one.asked, one.last = one.asked + 1, now
            try:
                path = (*self._webhook.path, str(one.first.id), "attempts")
                await self._rest.post(dict[str, object], self._webhook.who, *path)
            except ForgeError as exc:
                if exc.retryable:
                    raise
                log.warning("delivery not sent again", extra={"delivery": one.first.guid, "reason": str(exc)})
            else:
                log.info("delivery asked for", extra={"delivery": one.first.guid, "time": one.asked})
        return len(due[:MOST_AT_ONCE])

    async def _read(self) -> None:
        oldest = self._clock() - KEPT
        self._failed = {guid: one for guid, one in self._failed.items() if one.first.delivered_at > oldest}
        floor = oldest if self._listed is None else max(oldest, self._listed - OVERLAP)
        found: list[Attempt] = []
        async for page in self._rest.pages(list[Attempt], self._webhook.who, *self._webhook.path):
            found += page
            if not page or page[-1].delivered_at < floor:
                break
        for attempt in found:
            if attempt.delivered_at >= floor and attempt.event in EVENTS:
                self._note(attempt)
        arrived = [attempt for attempt in found if attempt.fine]
        for attempt in arrived:
            self._failed.pop(attempt.guid, None)
        self._arrived = max([self._arrived or oldest, *(one.delivered_at for one in arrived)])
        self._listed = max((one.delivered_at for one in found), default=self._listed or floor)

    def _note(self, attempt: Attempt) -> None:
        if attempt.fine:
            return
        known = self._failed.setdefault(attempt.guid, _Failed(attempt, attempt.delivered_at))
        known.attempts.add(attempt.id)
        known.asked = max(known.asked, len(known.attempts) - 1)
        known.last = max(known.last, attempt.delivered_at)

    def _is_due(self, one: _Failed, now: datetime) -> bool:
        if one.asked >= MOST_ASKED:
            return False  # what it told of is found by looking
        is_back = self._arrived is not None and self._arrived > one.last
        return is_back or now - one.last >= self._first_wait * 2**one.asked
