"""An HTTP API that creates, reads and cancels jobs. Clients need the operator's token."""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import Field, ValidationError, field_validator

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import JobQueue, JobRecord
from patchwright.bot.run_summary import RunSummary
from patchwright.bot.terminal.run_ids import create_run_id
from patchwright.bot.webhooks.receiver import Receive, Scope, Send
from patchwright.resolver.domain import Job, JobId, Repo, RunId
from patchwright.resolver.request import plan_texts
from patchwright.resolver.run_log import is_valid_run_id
from patchwright.runtime.frozen_model import FrozenModel

log = logging.getLogger(__name__)

JOBS_PATH = "/jobs"
MAX_BODY_BYTES = 128 << 10  # Maximum size of a request body.
MAX_COMMAND_CHARS = 60_000  # maximum characters of a command; GitHub allows 65,536 in a comment
BODY_TIMEOUT_SECONDS = 10.0


class RunSummaries(Protocol):
    """Looks up the summaries of runs."""

    async def get(self, run: RunId) -> RunSummary | None:
        """Returns the summary of a run, or None if the run is unknown. Raises QueueDown."""


class JobRequest(FrozenModel):
    """The body of POST /jobs."""

    repository: Repo
    number: int = Field(ge=1)
    """The number of the issue or pull request."""
    command: str = Field(default="", max_length=MAX_COMMAND_CHARS)
    """The command, written as in a comment but without the mention of the bot."""
    id: str | None = None
    """The idempotency key: a second request with the same key creates no second job. If the key is None, the
    server creates one.
    """

    @field_validator("repository", mode="before")
    @classmethod
    def _parse_repository(cls, name: object) -> object:
        if not isinstance(name, str) or name.count("/") != 1:
            raise ValueError("must be owner/name")
        return dict(zip(("owner", "name"), name.split("/"), strict=True))

    @field_validator("id")
    @classmethod
    def _check_id(cls, name: str | None) -> str | None:
        if name is not None and not is_valid_run_id(name):
            raise ValueError("must have at most 200 letters, digits and ._-")
        return name


class ApiResponse(Exception):
    """An HTTP response. Handlers raise it to end the request with this response."""

    def __init__(self, status: int, body: Mapping[str, object]) -> None:
        super().__init__()
        self.status = status
        self.body = body


class JobsApi:
    """ASGI application for POST /jobs, GET /jobs/ID and DELETE /jobs/ID."""

    def __init__(self, queue: JobQueue, runs: RunSummaries, token: str) -> None:
        self._queue = queue
        self._runs = runs
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._handle(scope, receive)
        except ApiResponse as exc:
            response = exc
        except QueueDown as exc:
            response = ApiResponse(503, {"error": str(exc)})
        body = json.dumps(response.body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if response.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="patchwright"'))
        if response.status in (401, 408, 413):
            headers.append(
                (b"connection", b"close")
            )  # The connection is closed, because the client may still be sending the rest of the body.
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _handle(self, scope: Scope, receive: Receive) -> ApiResponse:
        if not self._is_authorized(dict(scope["headers"]).get(b"authorization", b"")):
            raise ApiResponse(401, {"error": "Send the operator's token: Authorization: Bearer TOKEN."})
        path, method = str(scope["path"]), str(scope["method"])
        if path == JOBS_PATH:
            if method != "POST":
                raise ApiResponse(405, {"error": "Method not allowed. Use POST to create a job."})
            return await self._create_job(await _read_body(receive))
        job_id = path.removeprefix(f"{JOBS_PATH}/")
        record = await self._queue.get_record(JobId(job_id)) if is_valid_run_id(job_id) else None
        if record is None:
            raise ApiResponse(404, {"error": "Job not found."})
        if method == "DELETE":
            stopped = await self._queue.cancel(record.job.id)
            return ApiResponse(202, {"id": job_id, "stopped": stopped})
        if method not in ("GET", "HEAD"):
            raise ApiResponse(
                405, {"error": "Method not allowed. Use GET to read a job and DELETE to stop it."}
            )
        return ApiResponse(200, _job_json(record, await self._runs.get(record.job.id)))

    def _is_authorized(self, header: bytes) -> bool:
        scheme, _, token = header.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def _create_job(self, body: bytes) -> ApiResponse:
        try:
            request = JobRequest.model_validate_json(body)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise ApiResponse(422, {"error": f"{field or 'The body'}: {first['msg']}."}) from exc
        prefix = f"{request.repository.owner}-{request.repository.name}-{request.number}"
        job_id = JobId(request.id) if request.id else create_run_id(prefix)
        job = Job(
            id=job_id, repo=request.repository, number=request.number, requester=None, command=request.command
        )
        if problem := _unsupported_command(job):
            raise ApiResponse(422, {"error": f"command: {problem}"})
        is_new = await self._queue.put(job)
        existing = None if is_new else await self._queue.get_record(job_id)
        if existing is not None and existing.job != job:
            raise ApiResponse(409, {"error": "Another job already uses this id."})
        log.info("job created by api", extra={"job": job_id, "is_new": is_new})
        return ApiResponse(202 if is_new else 200, {"id": job_id})


def _unsupported_command(job: Job) -> str:
    """Returns why the job's command cannot be executed as a run, or "" if it can."""
    if job.request.verb == "stop":
        return "To stop a job, send DELETE /jobs/ID."
    if not job.request.command.starts_run:
        return f"The {job.request.verb} command is not available here. See docs/commands.md."
    return plan_texts.render_invalid_command(job.request.error) if job.request.error else ""


async def _read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ApiResponse(400, {"error": "The request body is incomplete."})
                parts.append(message.get("body", b""))
                if sum(map(len, parts)) > MAX_BODY_BYTES:
                    raise ApiResponse(
                        413, {"error": f"The request body has more than {MAX_BODY_BYTES} bytes."}
                    )
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError as exc:
        raise ApiResponse(408, {"error": "The request body did not arrive in time."}) from exc


def _job_json(record: JobRecord, summary: RunSummary | None) -> dict[str, Any]:
    """Returns a job as JSON. Unknown values are null."""
    result = record.result.model_dump(mode="json", exclude={"verdict"}) if record.result else None
    return {
        "id": record.job.id,
        "state": record.state,
        "repository": str(record.job.repo),
        "number": record.job.number,
        "requested_at": record.requested_at.isoformat() if record.requested_at else None,
        "tries": record.tries,
        "github_wait": record.github_wait.model_dump(mode="json")
        if record.state == "queued" and record.github_wait
        else None,
        "result": result,
        "run": summary.model_dump(mode="json", exclude={"run", "repository", "number", "requester"})
        if summary
        else None,
    }
