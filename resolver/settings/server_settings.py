"""Settings for servers only: event sources, allowed repositories and daily limits. Part of `Settings`."""

import re
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, field_validator

from patchwright.runtime.frozen_model import FrozenModel


class ServerSettings(FrozenModel):
    """The operator's settings for `serve` and `work`."""

    webhook_secret: SecretStr | None = None
    """The secret that GitHub uses to sign webhook deliveries. `serve` needs it unless it polls."""
    credentials_key: SecretStr | None = Field(default=None, min_length=32)
    """A secret of at least 32 characters that encrypts the credentials from the browser setup. None: the key is
    in a file.
    """
    credentials_key_file: Path | None = None
    """A file with the key that encrypts the credentials from the browser setup; it is created if it does not
    exist. None: `DATA.key` next to the data directory `DATA`, or the system's keyring.
    """
    webhook_url: str | None = None
    """URL of the repository webhook if you use a token: Patchwright requests failed deliveries to this URL
    again. A GitHub App's webhook does not need this.
    """
    poll: bool = False
    """Polls GitHub every 30 seconds, so that no webhook is needed."""
    polled_repositories: tuple[str, ...] = ()
    """With a token: the repositories (`owner/name`) to poll for missed events. A GitHub App polls the
    repositories where it is installed.
    """
    redis_url: str | None = None
    """URL of your own Redis. None: an embedded Redis that stores its data in `data`."""
    public_url: str | None = None
    """Public URL of the server, such as `https://patchwright.example.com`. Comments, pull requests and check
    runs link to the dashboard there. With `poll`, a loopback URL is not linked.
    """
    workflow_url: str | None = None
    """URL of the workflow run to link to, instead of the dashboard. None: set by the GitHub Action."""

    plan_expiry_days: float = Field(default=14, gt=0)
    """Days until a plan expires if nobody approves it with `go`."""
    allowed_repositories: tuple[str, ...] = ()
    """Repositories that the server works for, as `owner/name` or `owner/*`; requests from others are
    rejected. Set it if others can install your GitHub App, because their runs cost your money. Empty: all.
    """
    user_runs_per_day: int = Field(default=50, ge=1)
    """Maximum number of runs that one person can start per day (UTC)."""
    repository_runs_per_day: int = Field(default=100, ge=1)
    """Maximum number of runs that can be started in one repository per day (UTC)."""
    usd_per_day: Decimal = Field(default=Decimal("50.00"), gt=0)
    """Maximum cost in dollars of all runs per day; no run starts after it is reached. A run's cost is added
    when an attempt ends, to the total of that day. Concurrent runs can exceed the limit, each by at most its
    `max_usd`.
    """
    operator_token: SecretStr | None = Field(default=None, min_length=16)
    """A secret of at least 16 characters that gives access to the dashboard and the jobs API for all
    repositories.
    """
    oauth_client_id: str | None = None
    """Client ID of the GitHub App, for signing in to the dashboard. Requires `public_url`; the App's callback
    URL is `/login/callback` below it.
    """
    oauth_client_secret: SecretStr | None = None
    """Client secret of the GitHub App."""
    max_ci_repairs: int = Field(default=2, ge=0, le=10)
    """How many times in a row the server repairs failing checks on one of its pull requests; 0: never."""
    hold_ci: Literal["untrusted", "always", "never"] = "untrusted"
    """When commits skip CI until someone with write access comments `@agent run-ci`. `untrusted`: if the
    agent read external content, or text by people without write access.
    """
    max_concurrent_jobs: int = Field(default=2, ge=1, le=64)
    """Number of runs that one worker processes at the same time, each in its own sandbox."""

    archive: str | None = None
    """Permanent storage for run logs: `s3://bucket/runs`, `file:///srv/runs` or any other fsspec URL. None:
    the worker's local disk.
    """
    log_format: Literal["auto", "text", "json"] = "auto"
    """Log format of `serve` and `work`. `json` writes one object per line; `auto` writes text to a terminal
    and JSON otherwise.
    """
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum log level. Libraries log at `warning` or above."""
    metrics_label: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """Label for these settings in metrics. Workers that share a Redis but have different settings need
    different labels to be counted separately.
    """

    github_write_interval: float = Field(default=1.0, ge=0, le=60)
    """Seconds between two writes to GitHub for one installation or token, across all workers. Set it to 0
    only for your own GitHub server without rate limits.
    """

    def run_url(self, run: str) -> str | None:
        """Returns the URL of a run; None if there is none, or if only the server's own machine can open it.

        A loopback URL in a comment would lead readers to their own machine.
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

    min_free_memory_mb: int = Field(default=512, ge=0)
    """MiB of memory that must be free on this machine. Otherwise, no sandbox starts and the job is retried.
    """
    min_free_disk_mb: int = Field(default=1024, ge=0)
    """MiB of disk space that must be free on the Docker engine's disk. Otherwise, no sandbox starts and the
    job is retried. An engine on another machine is not checked.
    """


def is_loopback(url: str) -> bool:
    """Returns True if the URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
