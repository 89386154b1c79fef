"""Lists the repositories that are polled for missed events, and detects those that are briefly unreachable."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.cached_lists import CachedLists
from patchwright.bot.github.error_isolation import ErrorIsolation
from patchwright.bot.github.rest import MIN_TOKEN_LIFETIME, RestClient, repo_path
from patchwright.bot.github.schemas import GitHubResponse, RepositoryResponse
from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.resolver.domain import Credentials, Repo
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound

log = logging.getLogger(__name__)

READ_PERMISSIONS = {"issues": "read", "pull_requests": "read"}
MAX_LIST_AGE = timedelta(minutes=10)  # how long a list of repositories is valid


class PolledRepository(NamedTuple):
    """A repository to poll, with a token that can read it."""

    repo: Repo
    id: int
    installation_id: int | None
    token: Credentials

    @property
    def path(self) -> tuple[str, str, str]:
        return "repos", self.repo.owner, self.repo.name


class ListedInstallationResponse(GitHubResponse):
    """One entry of GitHub's list of an App's installations."""

    id: int
    suspended_at: str | None = None


class InstallationRepositoriesResponse(GitHubResponse):
    repositories: ValidEntries["InstallationRepository"]


class InstallationRepository(GitHubResponse):
    id: int
    full_name: Annotated[Repo, BeforeValidator(lambda name: Repo.parse(str(name)))]
    archived: bool = False


class Repositories:
    """Lists the repositories to poll. With a GitHub App, these are the repositories of its installations. With
    a token, these are the configured repositories.
    """

    def __init__(
        self, rest: RestClient, repositories: Sequence[Repo] = (), max_age: timedelta = MAX_LIST_AGE
    ) -> None:
        """`max_age` is the time for which a list of repositories is valid. It is at most MAX_LIST_AGE."""
        self._rest = rest
        self._configured = repositories
        self._max_age = max_age
        self._known: tuple[PolledRepository, ...] = ()
        self._listed_at: datetime | None = None
        self._installation_lists = CachedLists(rest, list[ListedInstallationResponse])
        self._repository_lists = CachedLists(rest, InstallationRepositoriesResponse)

    @property
    def is_empty(self) -> bool:
        """True if the last list had no repositories."""
        return not self._known

    async def list_current(self) -> tuple[PolledRepository, ...]:
        """Returns the repositories to poll. Lists them again if the last list is old, empty or incomplete.
        Raises ForgeError.
        """
        now = datetime.now(UTC)
        if self._listed_at is None or not self._known or now - self._listed_at > self._max_age:
            isolation, known_ids = ErrorIsolation(), {repository.id for repository in self._known}
            self._known = tuple(
                await (
                    self._list_installed(isolation) if self._rest.is_app else self._list_configured(isolation)
                )
            )
            self._listed_at = None if isolation.should_retry else now
            if {repository.id for repository in self._known} != known_ids:
                log.info("repositories listed", extra={"count": len(self._known)})
        return self._known

    def forget(self) -> None:
        self._known, self._listed_at = (), None

    async def _list_configured(self, isolation: ErrorIsolation) -> list[PolledRepository]:
        repositories = []
        for repo in self._configured:
            async with isolation.isolate_request(str(repo), self._rest):
                token = await self._rest.get_credentials(repo)
                id = next((one.id for one in self._known if one.repo == repo), None)
                if id is None:
                    id = (await self._rest.get(RepositoryResponse, repo, *repo_path(repo))).id
                repositories.append(PolledRepository(repo, id, None, token))
        return repositories

    async def _list_installed(self, isolation: ErrorIsolation) -> list[PolledRepository]:
        repositories = []
        pages = await self._installation_lists.get_pages(None, "app", "installations")
        for installation in (one for page in pages for one in page):
            if installation.suspended_at is None:
                async with isolation.isolate_request(f"installation {installation.id}", self._rest):
                    repositories += await self._list_installation(installation.id)
        return repositories

    async def _list_installation(self, installation_id: int) -> list[PolledRepository]:
        token = await self._installation_token(installation_id)
        pages = await self._repository_lists.get_pages(
            token, "installation", "repositories", key=installation_id
        )
        return [
            PolledRepository(repository.full_name, repository.id, installation_id, token)
            for page in pages
            for repository in page.repositories
            if not repository.archived
        ]

    async def _installation_token(self, installation_id: int) -> Credentials:
        """Returns a token that can read all repositories of the installation. The token stays valid for
        longer than the list of repositories.
        """
        token = next(
            (repository.token for repository in self._known if repository.installation_id == installation_id),
            None,
        )
        if token and token.expires and token.expires > datetime.now(UTC) + MIN_TOKEN_LIFETIME + MAX_LIST_AGE:
            return token
        return await self._rest.mint_token(installation_id, permissions=READ_PERMISSIONS)


async def raise_if_unreachable(rest: RestClient, repo: Repo, error: ForgeError) -> None:
    """Raises ForgeUnavailable if GitHub does not show the repository at the moment, and ForgeError if GitHub is down.

    GitHub responds as if nothing existed while a repository or an installation is briefly unreachable. `error` is
    such a response.
    """
    try:
        await rest.get(RepositoryResponse, repo, *repo_path(repo))
    except (NotFound, Forbidden):
        raise ForgeUnavailable(f"GitHub does not show {repo} at the moment: {error}") from error
