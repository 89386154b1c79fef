"""Jobs over HTTP: who may, what is answered, and that the same request twice is one job."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from bot.api import MOST_BYTES, JobsApi
from bot.errors import QueueDown
from bot.glance import Glance, of_job
from bot.jobs import Record
from bot.webhooks.receiver import Receiver
from resolver.domain import JobId, RunId
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, Handlers, settled, working

TOKEN = "an operator's own token"
KNOWN = {"authorization": f"Bearer {TOKEN}"}
ASKED = {"repository": "acme/sample", "number": 7, "command": "fix it"}


class Glances:
    async def get(self, run: RunId) -> Glance | None:
        return None


def client(queue: Any, runs: Any = None) -> httpx.AsyncClient:
    receiver = Receiver(None, "secret")  # type: ignore[arg-type]
    receiver.apps = {"/jobs": JobsApi(queue, runs or Glances(), TOKEN)}
    transport = httpx.ASGITransport(receiver)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://test", headers=KNOWN)


@pytest.fixture
async def queue() -> InlineQueue:
    return InlineQueue()


@pytest.fixture
async def http(queue: InlineQueue) -> AsyncIterator[httpx.AsyncClient]:
    async with client(queue) as made:
        yield made


async def test_a_job_is_begun_looked_at_and_ends(queue: InlineQueue) -> None:
    handlers = Handlers()
    job = JobId("acme-7")

    class Seen(Glances):
        async def get(self, run: RunId) -> Glance | None:
            record = await queue.state(job)
            assert record is not None
            return of_job(record.job, datetime.now(UTC)).model_copy(update={"steps": 3})

    async with client(queue, Seen()) as http, working(queue, handlers):
        begun = await http.post("/jobs", json=ASKED | {"id": job})
        assert (begun.status_code, begun.json()) == (202, {"id": job})
        await settled(queue, job, "running")
        seen = (await http.get(f"/jobs/{job}")).json()
        assert (seen["state"], seen["tries"], seen["result"], seen["run"]["steps"]) == ("running", 1, None, 3)
        assert (seen["repository"], seen["number"]) == ("acme/sample", 7)
        handlers.go.set()
        await settled(queue, job)
        ended = (await http.get(f"/jobs/{job}")).json()
    assert (ended["state"], ended["result"]) == (
        "ended",
        {"kind": "refused", "explanation": DONE.explanation},
    )
    record = await queue.state(job)
    assert record is not None and (record.job.requester, record.job.command) == (None, "fix it")


async def test_the_same_request_twice_is_one_job_and_another_one_is_refused_its_name(
    http: httpx.AsyncClient, queue: InlineQueue
) -> None:
    answers = [await http.post("/jobs", json=ASKED | {"id": "mine"}) for _ in range(2)]
    assert [(one.status_code, one.json()) for one in answers] == [
        (202, {"id": "mine"}),
        (200, {"id": "mine"}),
    ]
    other = await http.post("/jobs", json=ASKED | {"id": "mine", "number": 8})
    assert (other.status_code, other.json()) == (409, {"error": "Another job has this id."})
    named = [(await http.post("/jobs", json=ASKED)).json()["id"] for _ in range(2)]
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
async def test_a_missing_or_wrong_token_is_turned_away_and_learns_nothing(
    http: httpx.AsyncClient, queue: InlineQueue, header: str | None, method: str, path: str
) -> None:
    await http.post("/jobs", json=ASKED | {"id": "known"})
    del http.headers["authorization"]
    headers = {} if header is None else {"authorization": header.encode()}
    answer = await http.request(method, path, json=ASKED, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="patchwright"')
    assert answer.json() == {"error": "Send the operator's token: Authorization: Bearer TOKEN."}
    assert queue.known == {"known"}


async def test_a_job_that_waits_or_runs_can_be_stopped(http: httpx.AsyncClient, queue: InlineQueue) -> None:
    await http.post("/jobs", json=ASKED | {"id": "mine"})
    assert (await http.delete("/jobs/mine")).json() == {"id": "mine", "stopped": True}
    assert (await http.get("/jobs/mine")).json()["result"]["kind"] == "cancelled"
    assert (await http.delete("/jobs/mine")).json() == {"id": "mine", "stopped": False}


@pytest.mark.parametrize("path", ["/jobs/none", "/jobs/", "/jobs/a/b", "/jobs/..%2f..", "/jobs/" + "a" * 999])
async def test_what_is_unknown_is_not_there(http: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "DELETE"):
        answer = await http.request(method, path)
        assert (answer.status_code, answer.json()) == (404, {"error": "There is no such job."})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "The body: Invalid JSON"),
        (b"[1]", "The body: "),
        (b'{"number": 7}', "repository: Field required"),
        (b'{"repository": "acme", "number": 7}', "repository: Value error, it has to be owner/name"),
        (b'{"repository": "../x", "number": 7}', "repository"),
        (b'{"repository": "a/b", "number": 0}', "number: "),
        (b'{"repository": "a/b", "number": 7, "id": "../x"}', "id: Value error, letters, digits"),
        (b'{"repository": "a/b", "number": 7, "model": "x"}', "model: Extra inputs"),
        (b"[" * 100_000, "The body: "),
    ],
)
async def test_what_cannot_be_asked_for_is_said_in_a_sentence(
    http: httpx.AsyncClient, queue: InlineQueue, body: bytes, words: str
) -> None:
    answer = await http.post("/jobs", content=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(words)
    assert queue.known == frozenset()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("stop", "command: A job is stopped by DELETE /jobs/ID."),
        ("Stop, please!", "command: A job is stopped by DELETE /jobs/ID."),
        ("help", "command: There is nobody here to be helped; docs/commands.md says what can be asked for."),
        (
            "retyr",
            "command: `retyr` is no command of mine. Did you mean `retry`? If it is something to be done, "
            "say it in a few words more.",
        ),
        (
            "budget=lots mend it",
            "command: `budget=lots` is no number of dollars: write for example `budget=1.50`.",
        ),
    ],
)
async def test_a_command_that_begins_no_work_begins_no_run(
    http: httpx.AsyncClient, queue: InlineQueue, command: str, words: str
) -> None:
    answer = await http.post("/jobs", json=ASKED | {"command": command})
    assert (answer.status_code, answer.json()) == (422, {"error": words})
    assert queue.known == frozenset()
    assert (await http.post("/jobs", json=ASKED | {"command": "stop using tabs"})).status_code == 202


async def test_a_body_that_is_too_large_or_a_wrong_verb_is_refused(http: httpx.AsyncClient) -> None:
    assert (await http.post("/jobs", content=b" " * (MOST_BYTES + 1))).status_code == 413
    assert (await http.get("/jobs")).status_code == 405
    await http.post("/jobs", json=ASKED | {"id": "mine"})
    assert (await http.put("/jobs/mine")).status_code == 405


async def test_a_request_for_no_path_at_all_is_answered() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    receiver = Receiver(None, "secret")  # type: ignore[arg-type]
    receiver.apps = {"/jobs": JobsApi(InlineQueue(), Glances(), TOKEN)}
    await receiver({"type": "http", "path": "*", "method": "OPTIONS", "headers": []}, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 404


async def test_a_redis_that_is_away_is_said() -> None:
    class Away(InlineQueue):
        async def state(self, job: JobId) -> Record | None:
            raise QueueDown("Redis does not answer: ConnectionError")

    async with client(Away()) as http:
        answer = await http.get("/jobs/mine")
    assert (answer.status_code, answer.json()) == (503, {"error": "Redis does not answer: ConnectionError"})


async def test_without_a_token_there_are_no_such_addresses() -> None:
    transport = httpx.ASGITransport(Receiver(None, "secret"))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=KNOWN) as http:
        assert (await http.get("/jobs/mine")).status_code == 404
