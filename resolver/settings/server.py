"""What only a server is told: how it hears of work, whose work it takes, and how much of it."""

import re
from decimal import Decimal
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, field_validator

from runtime.frozen import Frozen


class ServerSettings(Frozen):
    """The operator's settings for `serve` and `work`."""

    webhook_secret: SecretStr | None = None
    """What GitHub signs its deliveries with; needed by `serve`, unless it polls."""
    webhook_url: str | None = None
    """The address of that webhook, where it is a repository's own and you use a token: what failed to arrive there is
    asked for again. An App's own webhook needs none."""
    poll: bool = False
    """Look at GitHub every 30 s, so that no webhook is needed."""
    repositories: tuple[str, ...] = ()
    """With a token: the repositories, `owner/name`, at which is looked for what no delivery told. An App looks where
    it is installed."""
    redis_url: str | None = None
    """A Redis of yours. None: embedded, with its data below `data`."""
    public_url: str | None = None
    """Where people reach the server, such as `https://patchwright.example.com`: comments, pull requests and check runs
    link to the page of their run there. With `poll`, an address that only this machine reaches is linked nowhere."""
    workflow_url: str | None = None
    """The workflow run to link to in its place. None: set by the Action."""

    approval_days: float = Field(default=14, gt=0)
    """Days that a plan waits for its `go`."""
    only_repositories: tuple[str, ...] = ()
    """The repositories that a server works for, `owner/name` or `owner/*`; others are refused: an App can be installed
    by others, who would spend your model's money. Empty: all."""
    user_runs_per_day: int = Field(default=50, ge=1)
    """Runs that one person may ask a server for in a day (UTC); beyond it the answer says so."""
    repository_runs_per_day: int = Field(default=100, ge=1)
    """Runs that may be asked for in one repository in a day."""
    usd_per_day: Decimal = Field(default=Decimal("50.00"), gt=0)
    """Dollars that all runs of a server may cost in a day; none is begun once that much is spent. A run counts when a
    try of it ends, on that day; so those that run at once may go beyond it, each by its `max_usd` at most."""
    operator_token: SecretStr | None = Field(default=None, min_length=16)
    """A secret of 16 characters or more that opens a server's pages and its API of jobs, for all repositories."""
    oauth_client_id: str | None = None
    """The GitHub App's own, by which people log in to the page; takes `public_url`, below which `/login/callback` is
    the App's callback URL."""
    oauth_client_secret: SecretStr | None = None
    """The secret that goes with it."""
    ci_repairs: int = Field(default=2, ge=0, le=10)
    """How often in a row a server repairs what checks find on a pull request of ours; 0: never."""
    hold_ci: Literal["untrusted", "always", "never"] = "untrusted"
    """When our commits keep CI from starting until a writer says `@agent run-ci`. `untrusted`: the agent read what
    outsiders wrote."""
    jobs_at_once: int = Field(default=2, ge=1, le=64)
    """Runs that one worker does at a time, each in a sandbox of its own."""

    archive: str | None = None
    """Where the logs of runs are kept for good: `s3://bucket/runs`, `file:///srv/runs` or what else fsspec knows.
    None: the disk of the worker that did them."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """How `serve` and `work` log: `json` is one object a line; `auto`: as text to a terminal, else as JSON."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on they log; libraries from warning on, at the least."""
    configuration: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """What these settings are called in the figures: workers of one Redis may have different ones, and are counted
    apart."""

    between_writes: float = Field(default=1.0, ge=0, le=60)
    """Seconds between two writes to GitHub of one installation or token, all workers together; 0 only for a GitHub of
    your own without rate limits."""

    def page_of(self, run: str) -> str | None:
        """Where people look at this run; None: nowhere, or only on the machine where the server is.

        What is written on a GitHub that cannot reach us must not lead its readers to their own machine.
        """
        if self.workflow_url or self.public_url is None or (self.poll and is_loopback(self.public_url)):
            return self.workflow_url
        return f"{self.public_url}/runs/{quote(run, safe='')}"

    @field_validator("public_url", "workflow_url")
    @classmethod
    def _leads_there(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/?#@()<>]+(/[^\s?#()<>]*)?", url):
            raise ValueError(f"{url} is not a plain URL such as https://patchwright.example.com")
        return url.rstrip("/") if url else None

    free_memory_mb: int = Field(default=512, ge=0)
    """MiB of memory that this machine must have left, else no sandbox is started and the job is tried again."""
    free_disk_mb: int = Field(default=1024, ge=0)
    """MiB that the Docker engine's disk must have left, else the same. An engine on another machine is not asked."""


def is_loopback(url: str) -> bool:
    """Whether nobody but this machine gets there."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
