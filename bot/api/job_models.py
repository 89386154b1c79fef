"""The bodies of the requests and responses of `/jobs`."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from patchwright.bot.faults import Fault
from patchwright.bot.jobs import Answered, Cancellation, Failed, GitHubWait, JobRecord, JobResult, Stopped
from patchwright.bot.run_summary import PullOutcome, RunState, RunSummary
from patchwright.resolver.domain import InputRequired, JobId, Published, Rejected, Repo, Reported
from patchwright.resolver.run_log import is_valid_run_id
from patchwright.runtime.frozen_model import FrozenModel

MAX_COMMAND_CHARS = 60_000  # maximum characters of a command; GitHub allows 65,536 in a comment
JOB_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$"
REPOSITORY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,38}/[A-Za-z0-9._-]{1,100}$"


class ApiModel(FrozenModel):
    """Base class of bodies. The descriptions of their fields are part of the OpenAPI description."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def _parse_repository(name: object) -> object:
    if not isinstance(name, str) or name.count("/") != 1:
        raise ValueError("must be owner/name")
    return dict(zip(("owner", "name"), name.split("/"), strict=True))


RepositoryName = Annotated[
    Repo,
    BeforeValidator(_parse_repository),
    WithJsonSchema({"type": "string", "pattern": REPOSITORY_PATTERN, "examples": ["acme/sample"]}),
]
"""A repository in the form owner/name."""


class JobRequest(ApiModel):
    """The body of POST /jobs."""

    repository: RepositoryName
    """The repository, as owner/name."""
    number: int = Field(ge=1, le=2**53 - 1, strict=True)
    """The number of the issue or pull request."""
    command: str = Field(default="", max_length=MAX_COMMAND_CHARS)
    """The command, written as in a comment but without the mention of the bot."""
    agent: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """The name of the agent that does the work. By default, the settings choose it."""
    id: Annotated[str, WithJsonSchema({"type": "string", "pattern": JOB_ID_PATTERN})] | None = None
    """The idempotency key: a second request with the same key creates no second job. If the key is null, the server
    creates one.
    """

    @field_validator("id")
    @classmethod
    def _check_id(cls, name: str | None) -> str | None:
        if name is not None and not is_valid_run_id(name):
            raise ValueError("must have at most 200 letters, digits and ._-")
        return name


class JobCreated(ApiModel):
    """The response to POST /jobs."""

    id: JobId
    """The id of the job and of its run."""


class JobStopped(JobCreated):
    """The response to DELETE /jobs/ID."""

    stopped: bool
    """False if the job was already completed."""


class PublishedJob(ApiModel):
    """The result of a job that opened or changed a pull request."""

    kind: Literal["published"] = "published"
    url: str
    number: int
    branch: str
    draft: bool
    ci_state: Literal["starts", "held", "silent"]
    """Whether CI runs on the pull request's commit."""


class ReportedJob(ApiModel):
    """The result of a job that opened or changed no pull request. A comment explains the reason."""

    kind: Literal["reported"] = "reported"
    url: str
    branch: str | None
    """The branch with the work, if there was any."""
    reason: str


ResultBody = Annotated[
    PublishedJob | ReportedJob | Rejected | InputRequired | Failed | Stopped | Answered,
    Field(discriminator="kind"),
]


class RunBody(ApiModel):
    """What a job's run has used and reached so far."""

    state: RunState
    fault: Fault | None
    """The cause of the failure, if the run failed."""
    title: str
    verdict: str
    """The kind of the verdict; empty if there is none."""
    cost_usd: float
    """The known cost in dollars."""
    is_cost_known: bool
    """False if the cost is incomplete, because the price of a model is unknown."""
    tokens: int
    seconds: float
    """Working time."""
    steps: int
    started_at: float
    """Seconds since 1970."""
    pull_request: int
    """The number of the pull request that the run opened; 0 if it opened none."""
    url: str
    """The URL of the pull request or of the comment with the result."""
    pull_outcome: PullOutcome | None
    """How the pull request ended; null while it is open."""
    github_wait: GitHubWait | None
    cancellation: Cancellation | None
    """Why the run was stopped, and by whom; null if nobody stopped it."""
    saved_branch: str
    """The branch with the work of a run that ended without a result; empty if there is none."""
    resumed_run: str | None
    """The earlier run that this job resumed."""
    resumed_by: str | None
    """The latest job that resumed this run."""


class JobBody(JobCreated):
    """The response to GET /jobs/ID. Unknown values are null."""

    state: Literal["queued", "running", "completed"]
    repository: str
    """The repository, as owner/name."""
    number: int
    """The number of the issue or pull request."""
    requested_at: datetime | None
    tries: int
    github_wait: GitHubWait | None
    """Set while the job waits for the end of an outage of GitHub."""
    result: ResultBody | None
    """The result; null until the job is completed."""
    run: RunBody | None
    """The job's run; null if it has not started."""


def build_job_body(record: JobRecord, summary: RunSummary | None) -> JobBody:
    """Returns what GET /jobs/ID shows of a job."""
    is_waiting = record.state == "queued"
    return JobBody(
        id=record.job.id,
        state=record.state,
        repository=str(record.job.repo),
        number=record.job.number,
        requested_at=record.requested_at,
        tries=record.tries,
        github_wait=record.github_wait if is_waiting else None,
        result=_result_body(record.result) if record.result else None,
        run=RunBody.model_validate(summary.model_dump(include=set(RunBody.model_fields)))
        if summary
        else None,
    )


def _result_body(result: JobResult) -> ResultBody:
    """Returns a result without its verdict, which contains test outputs and may be large."""
    match result:
        case Published():
            return PublishedJob(**result.model_dump(exclude={"verdict"}))
        case Reported():
            return ReportedJob(**result.model_dump(exclude={"verdict"}))
        case _:
            return result
