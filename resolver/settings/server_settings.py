"""Settings for servers only: event sources, allowed repositories and daily limits. They are part of the
operator's `Settings`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, field_validator

from patchwright.runtime.frozen_model import FrozenModel

KEY_FILE_PREFIX = "file:"
MIN_KEY_LENGTH = 32
"""The minimum number of characters of `credentials_key`. `openssl rand -base64 32` prints 44 characters."""
_INPUT_NAMES = (
    "app-id private-key model model-api-key model-base-url label mention image sandbox-features allowed-hosts max-usd "
    "max-steps timeout"
).split()
INPUTS: Mapping[str, str] = {"GITHUB_TOKEN": "github-token"} | {
    f"PATCHWRIGHT_{name.replace('-', '_').upper()}": name for name in _INPUT_NAMES
}
"""The action's inputs: each key is an environment variable, and its value is the input that sets the variable."""


class ServerSettings(FrozenModel):
    """The operator's settings for the commands `serve` and `work`."""

    webhook_secret: SecretStr | None = None
    """The secret with which GitHub signs webhook deliveries. `serve` requires it if `poll` is off."""
    credentials_key: SecretStr | None = None
    """A secret of at least 32 characters that encrypts the credentials from the browser setup, or `file:PATH` for a
    file that contains it. If the file does not exist, it is created. By default, Patchwright uses `DATA.key` next to
    the data directory `DATA`, or the system's keyring.
    """
    poll: bool = False
    """Whether the server polls GitHub every 30 seconds, so that no webhook is needed."""
    redis_url: str | None = None
    """URL of your own Redis. By default, Patchwright uses an embedded Redis that stores its data in `data`.
    """
    public_url: str | None = None
    """Public URL of the server, such as `https://patchwright.example.com`. Comments, pull requests and check
    runs link to the dashboard at this URL. If `poll` is on, they do not link to a loopback URL such as
    `http://127.0.0.1:8000`.
    """
    workflow_url: str | None = None
    """URL of a GitHub Actions workflow run. Comments and pull requests link to this URL instead of the
    dashboard. The GitHub Action sets it.
    """
    allowed_repositories: tuple[str, ...] = ()
    """Repositories that the server works for, as `owner/name` or `owner/*`. Requests from other repositories
    are rejected. Set this if other people can install your GitHub App, because you pay for their runs. By
    default, the server works for all repositories. If you use a token, the server polls each `owner/name` in this list
    for missed events. With a GitHub App, the server polls the repositories in which the App is installed.
    """
    runs_per_day: int = Field(default=50, ge=1)
    """Maximum number of runs per day (UTC) that one person can start, and that can be started in one repository."""
    usd_per_day: Decimal = Field(default=Decimal("50.00"), gt=0)
    """Maximum cost in dollars of all runs per day (UTC). When the total reaches this limit, no run starts for
    the rest of the day. The cost of an attempt is added to the total when the attempt ends. Runs that are
    already active can exceed the limit, each by at most its `max_usd`.
    """
    operator_token: SecretStr | None = Field(default=None, min_length=16)
    """A secret of at least 16 characters that gives access to the dashboard and the jobs API for all
    repositories.
    """
    oauth_client_id: str | None = None
    """Client ID of the GitHub App. It lets people sign in to the dashboard. It requires `public_url`, and the
    App's callback URL must be `public_url` followed by `/login/callback`.
    """
    oauth_client_secret: SecretStr | None = None
    """Client secret of the GitHub App."""
    max_ci_repairs: int = Field(default=2, ge=0, le=10)
    """Maximum number of times in a row that the server repairs failing checks on one of its pull requests. 0
    turns these repairs off.
    """
    hold_ci: Literal["untrusted", "always", "never"] = "untrusted"
    """Which commits start no CI until someone with write access comments `@agent run-ci`. With `untrusted`,
    these are the commits of runs in which the agent read external content or text by people without write
    access.
    """
    max_concurrent_jobs: int = Field(default=2, ge=1, le=64)
    """Maximum number of runs that one worker processes at the same time, each in its own sandbox."""

    archive: str | None = None
    """URL of the permanent storage for run logs, such as `s3://bucket/runs` or `file:///srv/runs`. You can
    use any fsspec URL. By default, Patchwright uses the worker's local disk.
    """
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of the messages that `serve` and `work` log. Messages of libraries are logged only from `warning`
    on.
    """
    metrics_label: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """Name of this worker's group. The metrics carry it as the label `metrics_label`. If groups of workers with
    different settings share a Redis, choose a different name for each group. The metrics then count each group
    separately.
    """

    @property
    def named_repositories(self) -> tuple[str, ...]:
        """The allowed repositories whose full names are given, as `owner/name`."""
        return tuple(name for name in self.allowed_repositories if "*" not in name)

    @field_validator("credentials_key")
    @classmethod
    def _validate_key(cls, key: SecretStr | None) -> SecretStr | None:
        text = key.get_secret_value() if key else KEY_FILE_PREFIX
        if len(text) < MIN_KEY_LENGTH and not text.startswith(KEY_FILE_PREFIX):
            raise ValueError(f"it must have at least {MIN_KEY_LENGTH} characters")
        return key

    @field_validator("allowed_repositories")
    @classmethod
    def _validate_repositories(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[\w.*-]+/[\w.*-]+", name):
                raise ValueError(f"{name} is not a repository such as owner/name or owner/*")
        return names

    def run_url(self, run: str) -> str | None:
        """Returns the URL of a run, or None if no URL is configured.

        Also returns None if the server polls GitHub and has a loopback URL: a link with such a URL in a comment
        would lead readers to their own machine.
        """
        if self.workflow_url or self.public_url is None or (self.poll and is_loopback(self.public_url)):
            return self.workflow_url
        return f"{self.public_url}/runs/{quote(run, safe='')}"

    @field_validator("public_url", "workflow_url")
    @classmethod
    def _validate_plain_url(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/?#@()<>]+(/[^\s?#()<>]*)?", url):
            raise ValueError(f"{url} is not a plain URL such as https://patchwright.example.com")
        return url.rstrip("/") if url else None


def derive_api_url(server_url: str) -> str:
    """Returns the URL of the REST API of the GitHub instance at this URL, as GitHub documents.

    Source: docs.github.com/enterprise-server/rest/overview/resources-in-the-rest-api (`/api/v3`),
    docs.github.com/enterprise-cloud@latest/admin/data-residency (`api.NAME.ghe.com`)
    """
    url = server_url.rstrip("/")
    scheme, _, host = url.partition("://")
    is_cloud = host == "github.com" or host.endswith(".ghe.com")
    return f"{scheme}://api.{host}" if is_cloud else f"{url}/api/v3"


def is_loopback(url: str) -> bool:
    """Returns True if the URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


REJECTED_KEY_ADVICE = (
    "check PATCHWRIGHT_MODEL_API_KEY, or, if no key is set or saved, the provider's own variable."
)


def name_inputs(text: str) -> str:
    """Replaces the names of environment variables with the names of the action's inputs that set them."""
    return re.sub(
        r"\b[A-Z]+_[A-Z_]+\b",
        lambda match: f"input `{INPUTS[match[0]]}`" if match[0] in INPUTS else match[0],
        text.replace(REJECTED_KEY_ADVICE, "check the secret that the PATCHWRIGHT_MODEL_API_KEY passes."),
    )
