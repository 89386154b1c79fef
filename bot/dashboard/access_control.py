"""Access control of the dashboard: people see the runs of repositories that they can read. People with write
access to a repository can also stop and retry its runs.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pydantic import ValidationError

from patchwright.bot.dashboard.github_oauth import AccessLevel, GitHubOAuth
from patchwright.bot.redis.sessions import Session
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import ForgeError, Unauthorized

CACHE_SECONDS = 300.0  # how long an access level from GitHub is cached
# how long the level "none" is cached; shorter, so that newly granted access works soon
DENIED_CACHE_SECONDS = 60.0
MAX_CACHED_LEVELS = 10_000
MAX_CHECKED_REPOSITORIES = 40  # repositories checked on GitHub for one page view
MAX_CONCURRENT_CHECKS = 8


@dataclass(frozen=True)
class _CachedLevel:
    level: AccessLevel
    expires_at: float


class AccessControl:
    """Looks up each person's access level to a repository, and caches it for a few minutes."""

    def __init__(self, oauth: GitHubOAuth | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`oauth` is None if only the operator can sign in; `clock` returns seconds."""
        self._oauth = oauth
        self._clock = clock
        self._cache: dict[tuple[int, str], _CachedLevel] = {}

    async def get_level(
        self, session: Session, repository: str, *, bypass_cache: bool = False
    ) -> AccessLevel:
        """Returns the person's access level to a repository. Reads the cache unless `bypass_cache` is set.

        Raises ForgeError, or Unauthorized if the session's GitHub token is no longer valid.
        """
        if session.user.id is None:
            return "write"
        name = repository.lower()
        cached = self._cache.get((session.user.id, name))
        if cached is not None and not bypass_cache and cached.expires_at > self._clock():
            return cached.level
        if self._oauth is None or (repo := _parse_repo(repository)) is None:
            return "none"
        level = await self._oauth.get_access_level(repo, session.token)
        if len(self._cache) >= MAX_CACHED_LEVELS:
            self._cache.clear()
        cache_seconds = DENIED_CACHE_SECONDS if level == "none" else CACHE_SECONDS
        self._cache[session.user.id, name] = _CachedLevel(level, self._clock() + cache_seconds)
        return level

    async def filter_readable(self, session: Session, repositories: Collection[str]) -> frozenset[str]:
        """Selects the repositories that the person may read.

        The access levels may be a few minutes old. One call checks at most MAX_CHECKED_REPOSITORIES
        repositories on GitHub. It starts with the repositories that were never checked. The repositories
        with the oldest expired access levels follow.

        Raises Unauthorized or ForgeError.
        """
        if session.user.id is None:
            return frozenset(repositories)
        user_id = session.user.id
        unknown = [name for name in repositories if self._cached_level(user_id, name) is None]
        unknown.sort(key=lambda name: self._expires_at(user_id, name))
        slots = asyncio.Semaphore(MAX_CONCURRENT_CHECKS)

        async def check(name: str) -> None:
            async with slots:
                await self.get_level(session, name)

        try:
            async with asyncio.TaskGroup() as group:
                for name in unknown[:MAX_CHECKED_REPOSITORIES]:
                    group.create_task(check(name))
        except (
            ExceptionGroup
            # `except*` is not used, because before Python 3.11.4 it wraps an exception that is raised in its
            # own block in an exception group.
        ) as errors:
            if errors.split(ForgeError)[1] is not None:
                raise
            if errors.subgroup(Unauthorized) is not None:
                raise Unauthorized("the session is no longer valid") from errors
            raise ForgeError("GitHub did not return repository permissions") from errors
        return frozenset(
            name for name in repositories if self._cached_level(user_id, name) not in (None, "none")
        )

    def count_unchecked(self, session: Session, repositories: Collection[str]) -> int:
        """Returns how many of these repositories have no cached access level."""
        user_id = session.user.id
        return (
            0 if user_id is None else sum(self._cached_level(user_id, name) is None for name in repositories)
        )

    def _expires_at(self, user_id: int, name: str) -> float:
        cached = self._cache.get((user_id, name.lower()))
        return cached.expires_at if cached else float("-inf")

    def _cached_level(self, user_id: int, name: str) -> AccessLevel | None:
        """Returns the cached access level, or None if it is missing or expired."""
        cached = self._cache.get((user_id, name.lower()))
        return cached.level if cached is not None and cached.expires_at > self._clock() else None


def _parse_repo(name: str) -> Repo | None:
    try:
        return Repo.parse(name)
    except ValidationError:
        return None
