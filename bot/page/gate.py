"""Who may see and do what: those who may read a repository see its runs, those who may write stop and retry them."""

import asyncio
import time
from collections.abc import Collection
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

    def __init__(self, people: People | None) -> None:
        """None: there is the operator alone."""
        self._people = people
        self._known: dict[tuple[int, str], _Known] = {}

    async def level(self, session: Session, repository: str, *, fresh: bool = False) -> Level:
        """What this person may do there. `fresh`: ask, whatever is known.

        Raises Unauthorized when their log-in is good no more, and ForgeError.
        """
        if session.person.id is None:
            return "write"
        name = repository.lower()
        known = self._known.get((session.person.id, name))
        if known is not None and not fresh and known.until > time.monotonic():
            return known.level
        if self._people is None or (repo := _repo(repository)) is None:
            return "none"
        level = await self._people.level(repo, session.token)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        lasts = REFUSED_SECONDS if level == "none" else KNOWN_SECONDS
        self._known[session.person.id, name] = _Known(level, time.monotonic() + lasts)
        return level

    async def readable(self, session: Session, repositories: Collection[str]) -> frozenset[str]:
        """Which of these they may read; of those that are not known yet, the first 40 are asked about.

        Raises Unauthorized and ForgeError.
        """
        if session.person.id is None:
            return frozenset(repositories)
        person, now = session.person.id, time.monotonic()
        unknown = [name for name in repositories if not self._is_known(person, name, now)]
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
        return frozenset(name for name in repositories if self._reads(person, name))

    def left(self, session: Session, repositories: Collection[str]) -> int:
        """How many of these were not asked about yet."""
        now, person = time.monotonic(), session.person.id
        return 0 if person is None else sum(not self._is_known(person, name, now) for name in repositories)

    def _is_known(self, person: int, name: str, now: float) -> bool:
        known = self._known.get((person, name.lower()))
        return known is not None and known.until > now

    def _reads(self, person: int, name: str) -> bool:
        known = self._known.get((person, name.lower()))
        return known is not None and known.level != "none"


def _repo(name: str) -> Repo | None:
    owner, _, rest = name.partition("/")
    try:
        return Repo(owner=owner, name=rest)
    except ValidationError:
        return None
