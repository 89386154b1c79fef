"""Nothing is lost: what no delivery has told, or what a wiped Redis has forgotten, is found again at GitHub.

One worker at a time looks. What it finds becomes the very job that its delivery would have become, so that it is done
once, whichever way it comes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bot.desk import Desk
from bot.errors import Away, QueueDown, Unanswered
from bot.github.rest import Rest
from bot.pulls import closed_pulls
from bot.reconcile.apart import Apart
from bot.reconcile.looking import Happened, Looking, Us
from bot.reconcile.places import Place
from bot.reconcile.redelivery import FIRST_WAIT, Redelivery, Webhooks
from bot.redis.lookout import Lookout, Trouble
from bot.webhooks.delivery import Closed, Unlabelled
from resolver.domain import Repo
from resolver.errors import ForgeError, RateLimited

log = logging.getLogger(__name__)

NOWHERE_SECONDS = 10.0  # until a look at where we are installed now, for as long as that is nowhere
FIRST = timedelta(days=3)  # how far back a first look goes: as long as GitHub keeps deliveries
OVERLAP = timedelta(minutes=1)  # looked at twice: GitHub's lists are not written all at once
SETTLE_SECONDS = 5.0  # after Redis was wiped, for those who work to say what on
LONGEST_WAIT = 3600.0


@dataclass(frozen=True)
class Rhythm:
    """How often is looked, and at what."""

    every: float = 60.0
    """Seconds between two looks at deliveries that failed."""
    all: float = 300.0
    """Seconds between two looks at all repositories."""
    grace: float = 120.0
    """Seconds that are left to a delivery; 0 where none is expected."""
    listed: float = 600.0
    """Seconds for which a list of repositories is good, 600 at most; a delivery tells of one in which we are new."""
    settle: float = SETTLE_SECONDS
    first_wait: timedelta = FIRST_WAIT
    """From a delivery in vain to the next attempt; doubled each time."""


POLLING = Rhythm(every=30.0, all=0.0, grace=0.0, listed=60.0)
"""Where no webhook tells anything."""


@dataclass
class _Known:
    since: datetime
    closed_since: datetime
    """Of pull requests that are not open any more."""
    etag: str = ""
    closed_etag: str = ""


class Reconcile:
    """Looks for all workers of a Redis, while it is this worker's turn."""

    def __init__(
        self,
        rest: Rest,
        us: Us,
        lookout: Lookout,
        desk: Desk,
        name: str,
        *,
        repositories: Sequence[Repo] = (),
        webhook_url: str | None = None,
        rhythm: Rhythm | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        redelivers: bool = True,
    ) -> None:
        """`redelivers`: a webhook of ours is told things, so that what it missed is asked for again."""
        self._rest = rest
        self._lookout = lookout
        self._desk = desk
        self._name = name
        self._rhythm = rhythm or Rhythm()
        self._clock = clock
        self._redelivers = redelivers
        self._looking = Looking(rest, us, repositories, timedelta(seconds=self._rhythm.listed))
        self._known: dict[int, _Known] = {}
        self._webhooks = Webhooks(
            rest,
            repositories,
            webhook_url,
            lambda one: Redelivery(
                rest, one, memory=lookout, clock=clock, first_wait=self._rhythm.first_wait
            ),
        )
        self._next: datetime | None = None
        """When all repositories are looked at again; None: now."""
        self._more = False
        """Whether deliveries were left to be asked for."""
        self._trouble: Trouble | None = None
        """Why the last look showed nothing."""

    async def run(self) -> None:
        """Look again and again until cancelled."""
        holding = asyncio.create_task(self._lookout.hold(self._name))
        try:
            while True:
                pause = await self._turn()
                await asyncio.sleep(pause)
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            with contextlib.suppress(QueueDown):
                await self._lookout.leave(self._name)

    async def _turn(self) -> float:
        """One look, if it is ours to make; seconds until the next."""
        wait = self._rhythm.every
        try:
            if await self._lookout.is_mine(self._name):
                if self._trouble is not None:
                    await self._knock()
                await self.look()
                await self._note("", wait)
        except QueueDown as exc:
            log.warning("not looked", extra={"reason": str(exc)})
        except RateLimited as exc:
            left = (exc.until - datetime.now(UTC)).total_seconds()
            wait = min(max(left, wait), LONGEST_WAIT)
            await self._note(str(exc), wait)
            return wait
        except (ForgeError, Away) as exc:
            await self._note(str(exc), wait)
            return wait
        if self._more:
            return 0.0
        if not self._redelivers and self._looking.places.is_nowhere:
            return min(self._rhythm.every, NOWHERE_SECONDS)
        left = (self._next - self._clock()).total_seconds() if self._next else 0.0
        return left if 0 < left < self._rhythm.every else self._rhythm.every

    async def _note(self, reason: str, wait: float) -> None:
        """How the look went, told once, however often it goes so; `wait`: seconds until the next."""
        now, before = self._clock(), self._trouble
        self._trouble = Trouble(reason=reason, since=before.since if before else now) if reason else None
        with contextlib.suppress(QueueDown):
            await self._lookout.note(self._trouble)
        # Told last: whoever reads of it finds the same wherever else it is shown.
        if before is None and reason:
            log.warning("cannot look at github", extra={"reason": reason, "again_seconds": round(wait)})
        elif before is not None and not reason:
            gone = now - before.since
            log.info("can look at github again", extra={"away_seconds": round(gone.total_seconds())})

    async def _knock(self) -> None:
        """Raises Away when GitHub itself does not answer, and ForgeError when it does not want us."""
        try:
            await self._rest.greet()
        except Unanswered as exc:
            raise Away(str(exc)) from exc

    async def look(self) -> None:
        """Find again what was missed. Raises QueueDown, ForgeError and Away."""
        if self._redelivers:
            self._more = False
            self._more = await self._webhooks.ask_again(self._clock())
        seen = await self._lookout.seen()
        if not seen.get(""):  # Redis is new, or was wiped
            self._known, self._next = {}, None
            await asyncio.sleep(self._rhythm.settle)
        now = self._clock()
        if self._next is not None and now < self._next:
            return
        self._next, again = None, now + timedelta(seconds=self._rhythm.all)
        apart, limited = Apart(), dict[int | None, RateLimited]()
        places = await self._looking.places.listed()
        for place in places:
            if not await self._lookout.is_mine(self._name):
                return
            if place.installation in limited:
                continue
            try:
                with apart.each(str(place.repo)):
                    again = min(again, await self._look_into(place, seen.get(str(place.repo))) or again)
            except RateLimited as exc:  # each installation has a limit of its own
                log.warning("left out", extra={"place": str(place.repo), "reason": str(exc)})
                limited[place.installation] = exc
        if limited and limited.keys() == {place.installation for place in places}:
            raise min(limited.values(), key=lambda one: one.until)
        await self._lookout.see("", now)
        self._next = None if apart.again else again

    async def _look_into(self, place: Place, stored: datetime | None) -> datetime | None:
        """As `_look_at`, and at its checks."""
        try:
            again = await self._look_at(place, stored)
            checks = self._desk.checks
            if checks and await checks.look_over(place.repo, place.id, place.installation):
                await self._knock()
                again = self._clock()
        except Unanswered:
            await self._knock()
            raise
        return again

    async def _look_at(self, place: Place, stored: datetime | None) -> datetime | None:
        """When there is to be looked again, because something is left; None: nothing is."""
        now, grace, apart = self._clock(), timedelta(seconds=self._rhythm.grace), Apart()
        first = max(stored or now - FIRST, now - FIRST)
        known = self._known.setdefault(place.id, _Known(first, first))
        await self._end(await self._looking.ended(place, await self._desk.at_work(place.repo)), Apart())
        if closed := await closed_pulls(self._rest, place, known.closed_since, known.closed_etag):
            await self._end(closed.told, apart)
            if not apart.again:
                known.closed_since, known.closed_etag = closed.until, closed.etag
        seen = await self._looking.look(place, known.since, known.etag, self._desk.rules.label)
        if seen is None:
            return now if apart.again else None
        # The delivery of what is young may be on its way; without a grace nothing is.
        young = {one.at for one in seen.happened if grace and now - one.at < grace}
        met = Apart()
        for one in sorted(seen.happened, key=lambda one: one.at):
            if one.at not in young:
                with met.each(f"{place.repo}#{one.told.number}"):
                    await self._recover(one, seen.ours)
        left = met.again or seen.again
        until = known.since if young or left else max(known.since, seen.until - OVERLAP)
        known.etag = seen.etag if until == known.since and not young and not left else ""
        known.since = until
        await self._lookout.see(str(place.repo), until)
        if apart.again or left:
            return now
        return min(young) + grace if young else None

    async def _end(self, gone: Iterable[Closed | Unlabelled], apart: Apart) -> None:
        for one in gone:
            with apart.each(f"{one.repo}#{one.number}"):
                await self._desk.take(one)

    async def _recover(self, one: Happened, ours: dict[str, str]) -> None:
        """Have done what this asks for, unless it is known here, or GitHub shows that it was dealt with."""
        if fresh := await self._desk.take(one.told, ours):
            log.info("job found", extra={"job": fresh})
