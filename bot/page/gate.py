"""Who may see and do what: those who may read a repository see its runs, those who may write stop and retry them."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pydantic import ValidationError

from bot.page.people import Level, People
from bot.redis.sessions import Session
from resolver.domain import Repo
from resolver.errors import ForgeError, Unauthorized

KNOWN_SECONDS = 300.0  # that what GitHub said of a person and a repository is believed
REFUSED_SECONDS = 60.0  # that a refusal is: access that was just given is not to be waited for long
MOST_KNOWN = 10_000
MOST_ASKED = 40  # repositories that are asked about for one view
AT_ONCE = 8


@dataclass(frozen=True)
class _Known:
    level: Level
    until: float


class Gate:
    """What is known of people's access, for minutes."""

    def __init__(self, people: People | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`people` None: there is the operator alone. `clock` tells seconds."""
        self._people = people
        self._clock = clock
        self._known: dict[tuple[int, str], _Known] = {}

    async def level(self, session: Session, repository: str, *, fresh: bool = False) -> Level:
        """What this person may do there. `fresh`: ask, whatever is known.

        Raises Unauthorized when their log-in is good no more, and ForgeError.
        """
        if session.person.id is None:
            return "write"
        name = repository.lower()
        known = self._known.get((session.person.id, name))
        if known is not None and not fresh and known.until > self._clock():
            return known.level
        if self._people is None or (repo := _repo(repository)) is None:
            return "none"
        level = await self._people.level(repo, session.token)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        lasts = REFUSED_SECONDS if level == "none" else KNOWN_SECONDS
        self._known[session.person.id, name] = _Known(level, self._clock() + lasts)
        return level

    async def readable(self, session: Session, repositories: Collection[str]) -> frozenset[str]:
        """Which of these they may read, by what GitHub said just now or minutes ago.

        Forty are asked about at most: those that were never asked about, then those where that is the longest ago.

        Raises Unauthorized and ForgeError.
        """
        if session.person.id is None:
            return frozenset(repositories)
        person = session.person.id
        unknown = [name for name in repositories if self._known_level(person, name) is None]
        unknown.sort(key=lambda name: self._until(person, name))
        waiting = asyncio.Semaphore(AT_ONCE)

        async def ask(name: str) -> None:
            async with waiting:
                await self.level(session, name)

        try:
            async with asyncio.TaskGroup() as group:
                for name in unknown[:MOST_ASKED]:
                    group.create_task(ask(name))
        except* Unauthorized as several:
            raise Unauthorized("the log-in is good no more") from several
        except* ForgeError as several:
            raise ForgeError("GitHub does not say who may read what") from several
        return frozenset(
            name for name in repositories if self._known_level(person, name) not in (None, "none")
        )

    def left(self, session: Session, repositories: Collection[str]) -> int:
        """How many of these were not asked about yet."""
        person = session.person.id
        return 0 if person is None else sum(self._known_level(person, name) is None for name in repositories)

    def _until(self, person: int, name: str) -> float:
        known = self._known.get((person, name.lower()))
        return known.until if known else float("-inf")

    def _known_level(self, person: int, name: str) -> Level | None:
        """What GitHub said of it not too long ago; None: it has to be asked."""
        known = self._known.get((person, name.lower()))
        return known.level if known is not None and known.until > self._clock() else None


def _repo(name: str) -> Repo | None:
    owner, _, rest = name.partition("/")
    try:
        return Repo(owner=owner, name=rest)
    except ValidationError:
        return None
