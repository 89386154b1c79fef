"""Credentials for GitHub, and limits for requests to GitHub."""

from dataclasses import dataclass

from pydantic import SecretStr


@dataclass(frozen=True)
class TokenAuth:
    """A personal access token, or the token of a workflow run."""

    token: SecretStr


@dataclass(frozen=True)
class AppAuth:
    """The credentials of a GitHub App. They are used to create a token for each repository."""

    app_id: str
    private_key: SecretStr
    """In PEM format."""
    workflows: bool = False
    """True if tokens include the permission to change workflows, provided that it is granted."""


@dataclass(frozen=True)
class RequestPolicy:
    """Rate and retry limits. Source: docs.github.com, best practices for using the REST API."""

    write_interval: float = 1.0
    """Minimum time between two writes, in seconds."""
    initial_backoff: float = 0.5
    """Seconds before the second attempt; doubled for each further one, with jitter."""
    max_rate_limit_wait: float = 60.0
    """Maximum time to wait for a rate limit, in seconds. If the wait would be longer, RateLimited is raised."""
    timeout: float = 30.0
    """Seconds without any data from GitHub after which a request fails."""
