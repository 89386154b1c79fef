"""The repositories that are ours to look at."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from bot.github.answers import Answer, RepositoryAnswer
from bot.github.rest import FRESH, Rest
from bot.reconcile.apart import Apart
from resolver.domain import Credentials, Repo

log = logging.getLogger(__name__)

READING = {"issues": "read", "pull_requests": "read"}
LONGEST = timedelta(minutes=10)  # that a list of repositories is good


class Place(NamedTuple):
    """A repository that is ours to look at, and by which right."""

    repo: Repo
    id: int
    installation: int | None
    token: Credentials

    @property
    def path(self) -> tuple[str, str, str]:
        return "repos", self.repo.owner, self.repo.name


class HomeAnswer(Answer):
    """One of an App's installations."""

    id: int
    suspended_at: str | None = None


class Reachable(Answer):
    repositories: tuple["OfInstallation", ...]


class OfInstallation(Answer):
    id: int
    full_name: str
    archived: bool = False


class Places:
    """All in which the App is installed, or those that an operator names for a token."""

    def __init__(self, rest: Rest, repositories: Sequence[Repo] = (), good_for: timedelta = LONGEST) -> None:
        """`good_for`: how long a list is, LONGEST at most."""
        self._rest = rest
        self._repositories = repositories
        self._good_for = good_for
        self._places: tuple[Place, ...] = ()
        self._listed: datetime | None = None

    @property
    def is_nowhere(self) -> bool:
        """Whether there was no repository to look at."""
        return not self._places

    async def listed(self) -> tuple[Place, ...]:
        """The repositories to look at, listed again when the list is old, or empty. Raises ForgeError."""
        now = datetime.now(UTC)
        if self._listed is None or not self._places or now - self._listed > self._good_for:
            apart, before = Apart(), {place.id for place in self._places}
            self._places = tuple(await (self._installed(apart) if self._rest.is_app else self._named(apart)))
            self._listed = None if apart.again else now
            if {place.id for place in self._places} != before:
                log.info("repositories listed", extra={"count": len(self._places)})
        return self._places

    def forget(self) -> None:
        self._places, self._listed = (), None

    async def _named(self, apart: Apart) -> list[Place]:
        found = []
        for repo in self._repositories:
            async with apart.each_asked(str(repo), self._rest):
                token = await self._rest.credentials(repo)
                seen = await self._rest.get(RepositoryAnswer, repo, "repos", repo.owner, repo.name)
                found.append(Place(repo, seen.id, None, token))
        return found

    async def _installed(self, apart: Apart) -> list[Place]:
        found = []
        for home in await self._rest.get_all(HomeAnswer, None, "app", "installations"):
            if home.suspended_at is None:
                async with apart.each_asked(f"installation {home.id}", self._rest):
                    found += await self._of(home.id)
        return found

    async def _of(self, installation: int) -> list[Place]:
        token = await self._token(installation)
        pages = self._rest.pages(Reachable, token, "installation", "repositories")
        return [
            Place(Repo(owner=owner, name=name), one.id, installation, token)
            async for page in pages
            for one in page.repositories
            if not one.archived
            for owner, _, name in [one.full_name.partition("/")]
        ]

    async def _token(self, installation: int) -> Credentials:
        """One that may read all of the installation's repositories, for longer than a list of them is good."""
        known = next((place.token for place in self._places if place.installation == installation), None)
        if known and known.expires and known.expires > datetime.now(UTC) + FRESH + LONGEST:
            return known
        return await self._rest.mint(installation, permissions=READING)
