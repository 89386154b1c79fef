"""Jobs over HTTP, for an operator's own programs: begun, looked at, stopped. Whoever has the token may do all of it."""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import Field, ValidationError, field_validator

from bot.errors import QueueDown
from bot.glance import Glance
from bot.jobs import Queue, Record
from bot.terminal.names import run_name
from bot.webhooks.receiver import Receive, Scope, Send
from resolver.domain import Job, JobId, Repo, RunId
from resolver.log import is_name
from resolver.request import planning_prose
from runtime.frozen import Frozen

log = logging.getLogger(__name__)

PATH = "/jobs"
MOST_BYTES = 128 << 10  # of what is asked for
MOST_COMMAND = 60_000  # characters; a comment on GitHub has no more than 65,536
BODY_SECONDS = 10.0


class Glances(Protocol):
    """What is to be said of each run."""

    async def get(self, run: RunId) -> Glance | None:
        """None: nothing is known. Raises QueueDown."""


class Asked(Frozen):
    """A job that a program asks for."""

    repository: Repo
    number: int = Field(ge=1)
    """Of the issue or pull request."""
    command: str = Field(default="", max_length=MOST_COMMAND)
    """As in a comment after the mention."""
    id: str | None = None
    """A name for it, so that the same request twice is one job; None: it gets one."""

    @field_validator("repository", mode="before")
    @classmethod
    def _by_name(cls, name: object) -> object:
        if not isinstance(name, str) or name.count("/") != 1:
            raise ValueError("it has to be owner/name")
        return dict(zip(("owner", "name"), name.split("/"), strict=True))

    @field_validator("id")
    @classmethod
    def _plain(cls, name: str | None) -> str | None:
        if name is not None and not is_name(name):
            raise ValueError("letters, digits and ._- only, 200 at most")
        return name


class Answer(Exception):
    """What is said at once."""

    def __init__(self, status: int, said: Mapping[str, object]) -> None:
        super().__init__()
        self.status = status
        self.said = said


class JobsApi:
    """An ASGI application: POST /jobs, GET and DELETE /jobs/ID."""

    def __init__(self, queue: Queue, runs: Glances, token: str) -> None:
        self._queue = queue
        self._runs = runs
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except Answer as exc:
            answer = exc
        except QueueDown as exc:
            answer = Answer(503, {"error": str(exc)})
        body = json.dumps(answer.said).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if answer.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="patchwright"'))
        if answer.status in (401, 408, 413):
            headers.append(
                (b"connection", b"close")
            )  # more of the request may be on its way that nobody reads
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        if not self._knows(dict(scope["headers"]).get(b"authorization", b"")):
            raise Answer(401, {"error": "Send the operator's token: Authorization: Bearer TOKEN."})
        path, method = str(scope["path"]), str(scope["method"])
        if path == PATH:
            if method != "POST":
                raise Answer(405, {"error": "A job is begun here by POST."})
            return await self._begun(await _body(receive))
        name = path.removeprefix(f"{PATH}/")
        record = await self._queue.state(JobId(name)) if is_name(name) else None
        if record is None:
            raise Answer(404, {"error": "There is no such job."})
        if method == "DELETE":
            stopped = await self._queue.cancel(record.job.id)
            return Answer(202, {"id": name, "stopped": stopped})
        if method not in ("GET", "HEAD"):
            raise Answer(405, {"error": "A job is looked at by GET, and stopped by DELETE."})
        return Answer(200, _shown(record, await self._runs.get(record.job.id)))

    def _knows(self, header: bytes) -> bool:
        scheme, _, token = header.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def _begun(self, body: bytes) -> Answer:
        try:
            asked = Asked.model_validate_json(body)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise Answer(422, {"error": f"{where or 'The body'}: {first['msg']}."}) from exc
        about = f"{asked.repository.owner}-{asked.repository.name}-{asked.number}"
        name = JobId(asked.id) if asked.id else run_name(about)
        job = Job(id=name, repo=asked.repository, number=asked.number, requester=None, command=asked.command)
        if problem := _no_work(job):
            raise Answer(422, {"error": f"command: {problem}"})
        fresh = await self._queue.put(job)
        known = None if fresh else await self._queue.state(name)
        if known is not None and known.job != job:
            raise Answer(409, {"error": "Another job has this id."})
        log.info("job asked for by the api", extra={"job": name, "fresh": fresh})
        return Answer(202 if fresh else 200, {"id": name})


def _no_work(job: Job) -> str:
    """Why no run can do what this asks for; empty: one can."""
    if job.asked.verb == "stop":
        return "A job is stopped by DELETE /jobs/ID."
    if job.asked.verb == "help":
        return "There is nobody here to be helped; docs/commands.md says what can be asked for."
    return planning_prose.unclear(job.asked.unclear) if job.asked.unclear else ""


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Answer(400, {"error": "The body is incomplete."})
                parts.append(message.get("body", b""))
                if sum(map(len, parts)) > MOST_BYTES:
                    raise Answer(413, {"error": f"The body has more than {MOST_BYTES} bytes."})
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError as exc:
        raise Answer(408, {"error": "The body did not come in time."}) from exc


def _shown(record: Record, glance: Glance | None) -> dict[str, Any]:
    """A job as JSON; what is not known yet is null."""
    result = record.result.model_dump(mode="json", exclude={"verdict"}) if record.result else None
    return {
        "id": record.job.id,
        "state": record.state,
        "repository": str(record.job.repo),
        "number": record.job.number,
        "asked": record.asked.isoformat() if record.asked else None,
        "tries": record.tries,
        "result": result,
        "run": glance.model_dump(mode="json", exclude={"run", "repository", "number", "by"})
        if glance
        else None,
    }
