"""The routes of `/jobs`: create, read and stop jobs."""

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Response, Security

from patchwright.bot.api.authentication import Deps, require_scopes
from patchwright.bot.api.job_models import JobBody, JobCreated, JobRequest, JobStopped, build_job_body
from patchwright.bot.api.openapi import problems
from patchwright.bot.api.problem_details import invalid_field
from patchwright.bot.jobs import JobRecord
from patchwright.bot.redis.api_keys import ApiKey
from patchwright.bot.terminal.run_ids import create_run_id
from patchwright.resolver.domain import Job, JobId
from patchwright.resolver.request import plan_texts
from patchwright.resolver.run_log import is_valid_run_id

log = logging.getLogger(__name__)

router = APIRouter(prefix="/jobs", tags=["jobs"])

Reader = Annotated[ApiKey, Security(require_scopes, scopes=["jobs:read"])]
Writer = Annotated[ApiKey, Security(require_scopes, scopes=["jobs:write"])]


async def find_job(
    deps: Deps, id: Annotated[str, Path(description="The id of the job.", examples=["nightly-7"])]
) -> JobRecord:
    """Returns the job of the path. Raises HTTPException if there is no such job."""
    record = await deps.queue.get_record(JobId(id)) if is_valid_run_id(id) else None
    if record is None:
        raise HTTPException(404, "Job not found.")
    return record


FoundJob = Annotated[JobRecord, Depends(find_job)]


@router.post(
    "",
    status_code=202,
    responses={
        200: {"model": JobCreated, "description": "The same request was sent before."},
        **problems(400, 408, 409, 413, 415, 422),
    },
)
async def create_job(request: JobRequest, key: Writer, deps: Deps, response: Response) -> JobCreated:
    """Creates a job, which resolves an issue or works on a pull request.

    Patchwright does not check GitHub's permissions for this request: a key is valid for every repository of the
    server.
    """
    prefix = f"{request.repository.owner}-{request.repository.name}-{request.number}"
    job_id = JobId(request.id) if request.id else create_run_id(prefix)
    command = f"agent={request.agent} {request.command}".strip() if request.agent else request.command
    job = Job(id=job_id, repo=request.repository, number=request.number, requester=None, command=command)
    if problem := _unsupported_command(job):
        raise invalid_field("command", problem)
    is_new = await deps.queue.put(job)
    existing = None if is_new else await deps.queue.get_record(job_id)
    if existing is not None and existing.job != job:
        raise HTTPException(409, "Another job already uses this id.")
    log.info("job created by api", extra={"job": job_id, "is_new": is_new, "api_key": key.name})
    response.status_code = 202 if is_new else 200
    return JobCreated(id=job_id)


@router.head("/{id}", include_in_schema=False)
@router.get("/{id}", responses=problems(404))
async def read_job(_: Reader, record: FoundJob, deps: Deps) -> JobBody:
    """Returns the state of a job, its result, and what its run has used."""
    return build_job_body(record, await deps.runs.get(record.job.id))


@router.delete("/{id}", status_code=202, responses=problems(404))
async def stop_job(key: Writer, record: FoundJob, deps: Deps) -> JobStopped:
    """Stops a job that is queued or running. A running job saves its work first."""
    stopped = await deps.queue.cancel(record.job.id)
    log.info("job stopped by api", extra={"job": record.job.id, "stopped": stopped, "api_key": key.name})
    return JobStopped(id=record.job.id, stopped=stopped)


def _unsupported_command(job: Job) -> str:
    """Returns why the job's command cannot be executed as a run, or "" if it can."""
    if job.request.verb == "stop":
        return "To stop a job, send DELETE /jobs/ID."
    if not job.request.command.starts_run:
        return f"The {job.request.verb} command is not available here. See docs/commands.md."
    return plan_texts.render_invalid_command(job.request.error) if job.request.error else ""
