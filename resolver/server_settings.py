"""What only a server is told: how it hears of work, whose work it takes, and how much of it."""

import re
from decimal import Decimal
from typing import Literal
from urllib.parse import quote

from pydantic import Field, SecretStr, field_validator

from runtime.frozen import Frozen


class ServerSettings(Frozen):
    """The operator's settings for `serve` and `work`."""

    webhook_secret: SecretStr | None = None
    webhook_url: str | None = None
    """Its address, where it is a repository's own: with a token, what has failed to arrive there is asked for again."""
    poll: bool = False
    """Look at GitHub every 30 s: no webhook is needed."""
    repositories: tuple[str, ...] = ()
    """Where a token looks, as owner/name; an App knows where it is installed. In the environment: with commas."""
    redis_url: str | None = None
    """None: an embedded Redis that keeps its data below `data`."""
    public_url: str | None = None
    """Where people reach the server's pages; what is written on the forge links to a run's page there."""
    workflow_url: str | None = None
    """Of the workflow run that this is, if it is one: it takes the place of a run's page."""

    approval_days: float = Field(default=14, gt=0)
    """Days that a plan waits for its go; the code it was made for may be another by then."""
    only_repositories: tuple[str, ...] = ()
    """The repositories that are worked for, `owner/name` or `owner/*`; others are refused. Empty: all that may ask."""
    user_runs_per_day: int = Field(default=50, ge=1)
    """Runs that one person may ask for in a day (UTC)."""
    repository_runs_per_day: int = Field(default=100, ge=1)
    """Runs that may be asked for in one repository in a day."""
    usd_per_day: Decimal = Field(default=Decimal("50.00"), gt=0)
    """Dollars that all runs may cost in a day: none is begun beyond it."""
    operator_token: SecretStr | None = Field(default=None, min_length=16)
    """Opens the server's pages and its API of jobs to whoever has it, all repositories. None: nobody has one."""
    oauth_client_id: str | None = None
    """Of the GitHub App: people log in to the page with GitHub. None: nobody does."""
    oauth_client_secret: SecretStr | None = None
    ci_repairs: int = Field(default=2, ge=0, le=10)
    """How often in a row what checks find on a pull request of ours is repaired; 0: never."""
    hold_ci: Literal["untrusted", "always", "never"] = "untrusted"
    """When our commits say `[skip ci]` until a writer says `run-ci`. untrusted: the agent read what outsiders wrote."""
    jobs_at_once: int = Field(default=2, ge=1, le=64)
    """Runs that one worker does at a time; each has a sandbox of its own."""

    archive: str | None = None
    """Where the logs of runs are kept for good: a URL that fsspec knows, such as s3://bucket/runs or file:///srv/runs.
    None: on the disk of the worker that did them."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """How `serve` and `work` log. auto: as text to a terminal, else as JSON, one object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on they log; libraries from warning on, at the least."""
    configuration: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """What these settings are called where figures of several are told apart: two workers of one Redis may differ."""

    between_writes: float = Field(default=1.0, ge=0, le=60)
    """Seconds between two writes to GitHub of an installation or token, all workers together. 0: only where GitHub
    is a server of your own that sets no limits."""

    def page_of(self, run: str) -> str | None:
        """Where people look at this run; None: nowhere."""
        own = f"{self.public_url}/runs/{quote(run, safe='')}" if self.public_url else None
        return self.workflow_url or own

    @field_validator("public_url", "workflow_url")
    @classmethod
    def _leads_there(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/?#@()<>]+(/[^\s?#()<>]*)?", url):
            raise ValueError(f"{url} is not a plain URL such as https://patchwright.example.com")
        return url.rstrip("/") if url else None

    free_memory_mb: int = Field(default=512, ge=0)
    """MiB of memory that this machine must have left, else no sandbox is started; the job is tried again."""
    free_disk_mb: int = Field(default=1024, ge=0)
    """The same for the disk of the Docker engine."""

    @field_validator("repositories", "only_repositories", mode="before")
    @classmethod
    def _by_commas(cls, names: object) -> object:
        return tuple(names.replace(",", " ").split()) if isinstance(names, str) else names
