"""The HTTP API for jobs: authorization, responses, and idempotent requests."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from patchwright.bot.api.api_middleware import INVALID_KEY, MAX_BODY_BYTES, MISSING_KEY
from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import JobRecord
from patchwright.bot.run_summary import RunSummary, summarize_job
from patchwright.resolver.domain import JobId, RunId
from tests.bot.api.clients import TOKEN, NoSummaries, api_client, api_receiver
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, RecordingHandler, running_worker, wait_for_state

JSON = {"content-type": "application/json"}
REQUEST = {"repository": "acme/sample", "number": 7, "command": "fix it"}


def problem(status: int, title: str, detail: str) -> dict[str, Any]:
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, "errors": []}


@pytest.fixture
async def queue() -> InlineQueue:
    return InlineQueue()


@pytest.fixture
async def http(queue: InlineQueue) -> AsyncIterator[httpx.AsyncClient]:
    async with api_client(queue) as made:
        yield made


async def test_a_job_is_created_read_and_completes(queue: InlineQueue) -> None:
    handlers = RecordingHandler()
    job = JobId("acme-7")

    class CountingSummaries(NoSummaries):
        async def get(self, run: RunId) -> RunSummary | None:
            record = await queue.get_record(job)
            assert record is not None
            return summarize_job(record.job, datetime.now(UTC)).model_copy(update={"steps": 3})

    async with api_client(queue, CountingSummaries()) as http, running_worker(queue, handlers):
        response = await http.post("/jobs", json=REQUEST | {"id": job})
        assert (response.status_code, response.json()) == (202, {"id": job})
        await wait_for_state(queue, job, "running")
        data = (await http.get(f"/jobs/{job}")).json()
        assert (data["state"], data["tries"], data["result"], data["run"]["steps"]) == ("running", 1, None, 3)
        assert (data["repository"], data["number"]) == ("acme/sample", 7)
        handlers.go.set()
        await wait_for_state(queue, job)
        ended = (await http.get(f"/jobs/{job}")).json()
    assert (ended["state"], ended["result"]) == (
        "completed",
        {"kind": "rejected", "explanation": DONE.explanation},
    )
    record = await queue.get_record(job)
    assert record is not None and (record.job.requester, record.job.command) == (None, "fix it")


async def test_the_agent_of_a_request_becomes_an_option_of_its_command(
    http: httpx.AsyncClient, queue: InlineQueue
) -> None:
    answer = await http.post("/jobs", json=REQUEST | {"agent": "typo-fixer"})
    record = await queue.get_record(answer.json()["id"])
    assert record is not None and record.job.command == "agent=typo-fixer fix it"
    assert record.job.request.options.agent == "typo-fixer"
    refused = await http.post("/jobs", json=REQUEST | {"agent": "x budget=900"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "agent")


async def test_a_repeated_request_is_one_job_and_its_id_cannot_be_reused(
    http: httpx.AsyncClient, queue: InlineQueue
) -> None:
    answers = [await http.post("/jobs", json=REQUEST | {"id": "mine"}) for _ in range(2)]
    assert [(one.status_code, one.json()) for one in answers] == [
        (202, {"id": "mine"}),
        (200, {"id": "mine"}),
    ]
    other = await http.post("/jobs", json=REQUEST | {"id": "mine", "number": 8})
    assert (other.status_code, other.json()["detail"]) == (409, "Another job already uses this id.")
    named = [(await http.post("/jobs", json=REQUEST)).json()["id"] for _ in range(2)]
    assert len({"mine", *named}) == 3 == len(queue.known)
    assert all(name.startswith("acme-sample-7-") for name in named)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        "Bearer \u00e9",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/jobs"), ("GET", "/jobs/known"), ("GET", "/jobs/none")]
)
async def test_a_missing_or_wrong_token_is_unauthorized_and_reveals_nothing(
    http: httpx.AsyncClient, queue: InlineQueue, header: str | None, method: str, path: str
) -> None:
    await http.post("/jobs", json=REQUEST | {"id": "known"})
    del http.headers["authorization"]
    headers = {} if header is None else {"authorization": header.encode()}
    answer = await http.request(method, path, json=REQUEST, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="patchwright"')
    has_key = (header or "").removeprefix("Bearer").strip() and "Basic" not in str(header)
    assert answer.json() == problem(401, "Unauthorized", INVALID_KEY if has_key else MISSING_KEY)
    assert queue.known == {"known"}


async def test_a_queued_or_running_job_can_be_stopped(http: httpx.AsyncClient, queue: InlineQueue) -> None:
    await http.post("/jobs", json=REQUEST | {"id": "mine"})
    assert (await http.delete("/jobs/mine")).json() == {"id": "mine", "stopped": True}
    assert (await http.get("/jobs/mine")).json()["result"]["kind"] == "stopped"
    assert (await http.delete("/jobs/mine")).json() == {"id": "mine", "stopped": False}


NO_JOB = "Job not found."
NO_PATH = "There is nothing at this path. GET /openapi.json lists all paths."


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/jobs/none", NO_JOB),
        ("/jobs/" + "a" * 999, NO_JOB),
        ("/jobs/a%00", NO_JOB),
        ("/jobs/", NO_PATH),
        ("/jobs/a/b", NO_PATH),
        ("/jobs/..%2f..", NO_PATH),
    ],
)
async def test_an_unknown_job_is_not_found(http: httpx.AsyncClient, path: str, detail: str) -> None:
    for method in ("GET", "DELETE"):
        answer = await http.request(method, path)
        assert (answer.status_code, answer.json()) == (404, problem(404, "Not Found", detail))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "The body: Field required"),
        (b"{", "The body: JSON decode error"),
        (b"[1]", "The body: "),
        (b'{"number": 7}', "repository: Field required"),
        (b'{"repository": "acme", "number": 7}', "repository: Value error, must be owner/name"),
        (b'{"repository": "a/b", "number": "7"}', "number: "),
        (b'{"repository": "a/b", "number": NaN}', "number: "),
        (b'{"repository": "a/b", "number": 7, "command": "\\ud800"}', "command: "),
        (b'{"repository": "a/b", "number": 7, "\\ud800": 1}', "The body: Input should be a valid string"),
        (b'{"repository": "../x", "number": 7}', "repository.owner: "),
        (b'{"repository": "a/b", "number": 0}', "number: "),
        (b'{"repository": "a/b", "number": 7, "id": "../x"}', "id: Value error, must have at most"),
        (b'{"repository": "a/b", "number": 7, "model": "x"}', "model: Extra inputs"),
    ],
)
async def test_an_invalid_request_is_explained_in_a_sentence(
    http: httpx.AsyncClient, queue: InlineQueue, body: bytes, words: str
) -> None:
    answer = await http.post("/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    data = answer.json()
    assert data["detail"].startswith(words)
    assert words.startswith(data["errors"][0]["field"] or "The body")
    assert queue.known == frozenset()


async def test_every_invalid_field_is_listed(http: httpx.AsyncClient) -> None:
    answer = await http.post("/jobs", json={"repository": "acme", "number": 0})
    assert [error["field"] for error in answer.json()["errors"]] == ["repository", "number"]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"repository": "\xff"}'])
async def test_a_body_that_no_parser_accepts_is_reported(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["detail"]) == (400, "The body is not valid JSON.")


async def test_a_body_that_is_not_declared_as_json_is_reported(http: httpx.AsyncClient) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    for headers in ({}, form):
        answer = await http.post("/jobs", content=json.dumps(REQUEST), headers=headers)
        assert answer.status_code == 415
        assert "Content-Type: application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("stop", "command: To stop a job, send DELETE /jobs/ID."),
        ("Stop, please!", "command: To stop a job, send DELETE /jobs/ID."),
        ("help", "command: The help command is not available here. See docs/commands.md."),
        (
            "retyr",
            "command: `retyr` is not a command. Did you mean `retry`? If you meant a request, describe it in "
            "a few more words.",
        ),
        (
            "budget=lots fix it",
            "command: `budget=lots` is not a dollar amount. Write, for example, `budget=1.50`.",
        ),
    ],
)
async def test_a_command_without_work_starts_no_run(
    http: httpx.AsyncClient, queue: InlineQueue, command: str, words: str
) -> None:
    answer = await http.post("/jobs", json=REQUEST | {"command": command})
    assert (answer.status_code, answer.json()["detail"]) == (422, words)
    assert [error["field"] for error in answer.json()["errors"]] == ["command"]
    assert queue.known == frozenset()
    assert (await http.post("/jobs", json=REQUEST | {"command": "stop using tabs"})).status_code == 202


async def test_a_large_body_or_a_wrong_method_is_rejected(http: httpx.AsyncClient) -> None:
    large = await http.post("/jobs", content=b" " * (MAX_BODY_BYTES + 1), headers=JSON)
    assert (large.status_code, large.headers["connection"]) == (413, "close")
    wrong = await http.get("/jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    await http.post("/jobs", json=REQUEST | {"id": "mine"})
    wrong = await http.put("/jobs/mine")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, DELETE")


async def test_a_request_without_a_path_gets_a_response() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    receiver = api_receiver(InlineQueue())
    await receiver({"type": "http", "path": "*", "method": "OPTIONS", "headers": []}, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 404


async def test_an_unavailable_redis_is_reported() -> None:
    class Unavailable(InlineQueue):
        async def get_record(self, job: JobId) -> JobRecord | None:
            raise QueueDown("Redis does not respond: ConnectionError")

    async with api_client(Unavailable()) as http:
        answer = await http.get("/jobs/mine")
    detail = "Redis does not respond: ConnectionError"
    assert (answer.status_code, answer.json()) == (503, problem(503, "Service Unavailable", detail))
