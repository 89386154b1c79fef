"""Where GitHub is, the credentials for it, and limits for requests to it."""

from dataclasses import dataclass

from pydantic import SecretStr

from patchwright.resolver.settings.server_settings import derive_api_url
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.frozen_model import FrozenModel


class GitHubServer(FrozenModel):
    """The URLs of a GitHub instance, named like in the settings."""

    github_server_url: str
    """URL without a slash at the end."""

    @property
    def github_api_url(self) -> str:
        return derive_api_url(self.github_server_url)

    @property
    def graphql_url(self) -> str:
        """URL of the GraphQL API. A GitHub Enterprise Server has `/api/v3` and `/api/graphql`."""
        return f"{self.github_api_url.removesuffix('/v3')}/graphql"


def configured_server(settings: Settings) -> GitHubServer:
    return GitHubServer(github_server_url=settings.github_server_url.rstrip("/"))


@dataclass(frozen=True)
class TokenAuth:
    """A personal access token, or the token of a workflow run."""

    token: SecretStr


@dataclass(frozen=True)
class AppAuth:
    """The credentials of a GitHub App. The client uses these credentials to create a token for each repository."""

    app_id: str
    private_key: SecretStr
    """In PEM format."""
    workflows: bool = False
    """True if installation tokens should include the permission to change workflows. Installations that have
    not granted this permission get tokens without it.
    """


WRITE_INTERVAL = 1.0  # seconds, as GitHub recommends


@dataclass(frozen=True)
class RequestPolicy:
    """Limits for the rate and the retries of requests. Source: docs.github.com, best practices for using the
    REST API.
    """

    write_interval: float = WRITE_INTERVAL
    """Minimum time between two writes to GitHub, in seconds."""
    initial_backoff: float = 0.5
    """Seconds between the first and the second attempt of a request. The wait doubles with each further
    attempt, and varies randomly.
    """
    max_rate_limit_wait: float = 60.0
    """Maximum number of seconds that a request waits for the end of a rate limit. If the wait would be longer,
    the request raises RateLimited.
    """
    timeout: float = 30.0
    """A request fails if GitHub sends no data for this many seconds."""
