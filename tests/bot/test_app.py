"""What the receiver answers, and what it has done when it answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.app import MOST_BYTES, application, serve
from bot.embedded import embedded_redis
from bot.jobs import InlineQueue, Queue
from bot.queue import ArqQueue
from bot.triggers import Triggers
from resolver.errors import SettingsError
from resolver.settings import Settings
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SECRET, SENDER, signed
from tests.bot.jobs import Handlers, settled, working


def client(queue: Queue, *, works: bool = True, body_seconds: float = 5) -> httpx.AsyncClient:
    app = application(queue, Triggers(), SECRET, lambda: works, body_seconds=body_seconds)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def post(
    queue: Queue, headers: dict[str, str], body: bytes | AsyncIterator[bytes], **but: Any
) -> tuple[int, dict[str, str]]:
    async with client(queue, **but) as http:
        answer = await http.post("/webhook", headers=headers, content=body)
        return answer.status_code, answer.json()


@pytest.fixture
async def queue(short_tmp: Path) -> AsyncIterator[ArqQueue]:
    async with embedded_redis(short_tmp) as url:
        queue = ArqQueue(url, sole=True)
        yield queue
        await queue.close()


@pytest.mark.redis
async def test_a_label_is_stored_before_it_is_answered_and_a_redelivery_is_the_same_job(
    queue: ArqQueue,
) -> None:
    status, said = await post(queue, *signed("issues", LABELED))
    assert (status, said["status"]) == (202, "queued")
    record = await settled(queue, said["job"], "queued")
    assert (str(record.job.repo), record.job.number, record.job.installation) == ("acme/sample", 7, 31)
    assert await post(queue, *signed("issues", LABELED)) == (202, {"status": "known", "job": said["job"]})


@pytest.mark.redis
async def test_one_delivery_a_hundred_times_at_once_is_one_job(queue: ArqQueue) -> None:
    handler = Handlers()
    handler.go.set()
    headers, body = signed("issues", LABELED)
    async with working(queue, handler), client(queue) as http:
        answers = await asyncio.gather(
            *(http.post("/webhook", headers=headers, content=body) for _ in range(100))
        )
        await settled(queue, answers[0].json()["job"])
        await asyncio.sleep(0.6)
    assert {answer.status_code for answer in answers} == {202}
    assert sorted(answer.json()["status"] for answer in answers) == ["known"] * 99 + ["queued"]
    assert list(handler.begun.values()) == [1]


async def test_a_mention_on_a_pull_request_is_a_job_and_will_be_answered() -> None:
    status, said = await post(InlineQueue(), *signed("issue_comment", COMMENTED | {"sender": SENDER}))
    assert (status, said["status"]) == (202, "queued")


@pytest.mark.parametrize(
    ("event", "payload", "answer"),
    [
        ("ping", {"zen": "Keep it logically awesome."}, (200, {"status": "pong"})),
        ("issues", LABELED | {"label": {"name": "bug"}}, (202, {"status": "ignored"})),
        ("issues", LABELED | {"action": "opened"}, (202, {"status": "ignored"})),
        ("issue_comment", COMMENTED, (202, {"status": "ignored"})),
        ("workflow_run", {"action": "completed"}, (202, {"status": "ignored"})),
    ],
)
async def test_what_asks_for_nothing_is_answered_well(event: str, payload: object, answer: object) -> None:
    assert await post(InlineQueue(), *signed(event, payload)) == answer


async def test_a_forged_delivery_is_refused_and_nothing_is_stored() -> None:
    queue = InlineQueue()
    headers, body = signed("issues", LABELED, secret="another")
    status, said = await post(queue, headers, body)
    assert (status, said["status"]) == (401, "forged")
    _, genuine = await post(queue, *signed("issues", LABELED))
    assert genuine["status"] == "queued"


async def test_a_delivery_that_makes_no_sense_is_a_bad_request() -> None:
    assert await post(InlineQueue(), *signed("issues", LABELED | {"issue": ISSUE | {"number": "7"}})) == (
        400,
        {"status": "unreadable", "why": "issue.number: Input should be a valid integer"},
    )
    status, _ = await post(InlineQueue(), *signed("issues", b"[" * 1_000_000))
    assert status == 400


async def test_a_body_of_25_mib_is_taken_and_one_byte_more_is_not() -> None:
    largest = LABELED | {"padding": ""}
    _, body = signed("issues", largest)
    headers, body = signed("issues", body.replace(b'""', b'"' + b"x" * (MOST_BYTES - len(body)) + b'"'))
    assert len(body) == MOST_BYTES
    assert (await post(InlineQueue(), headers, body))[0] == 202
    assert (await post(InlineQueue(), *signed("issues", body + b" ")))[0] == 413


async def test_a_body_that_hides_its_size_is_cut_off_on_the_way() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024 * 1024
            yield b"x" * 1024 * 1024

    assert (await post(InlineQueue(), {}, endless()))[0] == 413
    assert sent == MOST_BYTES + 1024 * 1024


async def test_many_large_bodies_at_once_do_not_fill_the_memory() -> None:
    go = asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        yield b"x" * MOST_BYTES
        await go.wait()

    async with client(InlineQueue()) as http:
        early = [asyncio.create_task(http.post("/webhook", content=held())) for _ in range(8)]
        await asyncio.sleep(0.5)
        late = await http.post("/webhook", content=b"x")
        go.set()
        assert (late.status_code, late.json()["status"]) == (503, "busy")
        assert {(await task).status_code for task in early} == {401}
        assert (await http.post("/webhook", content=b"x")).status_code == 401


async def test_a_sender_that_dawdles_is_cut_off() -> None:
    headers, body = signed("issues", LABELED)

    async def slow() -> AsyncIterator[bytes]:
        yield body[:10]
        await asyncio.sleep(30)
        yield body[10:]

    assert (await post(InlineQueue(), headers, slow(), body_seconds=0.2))[0] == 408


async def test_a_job_that_cannot_be_stored_is_no_success(short_tmp: Path) -> None:
    queue = ArqQueue(f"unix://{short_tmp}/nobody.sock")
    status, said = await post(queue, *signed("issues", LABELED))
    assert (status, said["status"]) == (503, "not stored")
    assert (await post(queue, *signed("ping", {})))[0] == 200


async def test_health_is_that_of_redis_and_the_worker(short_tmp: Path) -> None:
    for queue, works, status in (
        (InlineQueue(), True, 200),
        (InlineQueue(), False, 503),
        (ArqQueue(f"unix://{short_tmp}/nobody.sock"), True, 503),
    ):
        async with client(queue, works=works) as http:
            answer = await http.get("/healthz")
        said = answer.json()
        assert (answer.status_code, said.pop("version") != "") == (status, True)
        assert said == {"redis": isinstance(queue, InlineQueue), "worker": works}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/webhook", 405), ("GET", "/docs", 404), ("GET", "/openapi.json", 404), ("GET", "/", 404)],
)
async def test_there_is_nothing_else(method: str, path: str, status: int) -> None:
    async with client(InlineQueue()) as http:
        assert (await http.request(method, path)).status_code == status


async def never(*_: object) -> Any:
    raise AssertionError("nothing was asked")


async def test_a_server_without_a_secret_does_not_start(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match="PATCHWRIGHT_WEBHOOK_SECRET is not set"):
        await serve(Settings(data=short_tmp), never, never, host="127.0.0.1", port=0)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("203.0.113.1", 0), ("no such host", 0)])
async def test_an_address_that_is_not_ours_names_the_options(short_tmp: Path, host: str, port: int) -> None:
    settings = Settings(data=short_tmp, webhook_secret=SECRET)
    with pytest.raises(SettingsError, match="see --host and --port"):
        await serve(settings, never, never, host=host, port=port)
