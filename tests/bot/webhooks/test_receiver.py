"""What the receiver answers, and what it has stored when it answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.embedded import embedded_redis
from bot.redis.inbox import Inbox
from bot.webhooks.receiver import MOST_BYTES, Receiver, Store
from tests.bot.deliveries import COMMENTED, LABELED, SECRET, signed


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, str, bytes]] = []

    async def put(self, guid: str, event: str, body: bytes) -> None:
        self.letters.append((guid, event, body))


def client(store: Store, *, body_seconds: float = 5) -> httpx.AsyncClient:
    app = Receiver(store, SECRET, body_seconds=body_seconds)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")  # type: ignore[arg-type]


async def post(
    store: Store, headers: dict[str, str], body: bytes | AsyncIterator[bytes], **but: Any
) -> tuple[int, dict[str, str]]:
    async with client(store, **but) as http:
        answer = await http.post("/webhook", headers=headers, content=body)
        return answer.status_code, answer.json()


async def test_a_delivery_is_stored_as_it_came_before_it_is_answered() -> None:
    store = Kept()
    headers, body = signed("issues", LABELED)
    assert await post(store, headers, body) == (202, {"status": "stored"})
    assert store.letters == [(headers["x-github-delivery"], "issues", body)]


@pytest.mark.parametrize(
    ("event", "payload", "answer"),
    [
        ("ping", {"zen": "Keep it logically awesome."}, (200, {"status": "pong"})),
        ("star", {"action": "created"}, (202, {"status": "ignored"})),
        ("push", {}, (202, {"status": "ignored"})),
    ],
)
async def test_what_can_ask_for_nothing_is_answered_well_and_not_stored(
    event: str, payload: object, answer: object
) -> None:
    store = Kept()
    assert await post(store, *signed(event, payload)) == answer
    assert store.letters == []


async def test_a_forged_delivery_is_refused_and_nothing_is_stored() -> None:
    store = Kept()
    headers, body = signed("issues", LABELED, secret="another")
    status, said = await post(store, headers, body)
    assert (status, said["status"], store.letters) == (401, "forged", [])
    _, genuine = await post(store, *signed("issues", LABELED))
    assert genuine["status"] == "stored"


@pytest.mark.parametrize(
    "mangled",
    [
        {"x-hub-signature-256": ""},
        {"x-hub-signature-256": "sha256=" + "0" * 64},
        {"x-hub-signature-256": "sha1=7d38cdd689735b008b3c702edd92eea23791c5f6"},
        {"x-hub-signature-256": "sha256=\u00e9"},
    ],
)
async def test_only_an_sha_256_signature_of_these_bytes_counts(mangled: dict[str, str]) -> None:
    store = Kept()
    headers, body = signed("issues", LABELED)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in (headers | mangled).items()]
    async with client(store) as http:
        assert (await http.post("/webhook", headers=raw, content=body)).status_code == 401
        assert (await http.post("/webhook", headers=headers, content=body + b" ")).status_code == 401
        assert (await http.post("/webhook", headers=headers, content=body)).status_code == 202
    assert len(store.letters) == 1


async def test_a_form_is_told_to_be_json() -> None:
    headers, body = signed("issues", b"payload=%7B%7D")
    status, said = await post(Kept(), headers | {"content-type": "application/x-www-form-urlencoded"}, body)
    assert (status, said["why"]) == (400, "Set the webhook's content type to application/json.")


async def test_an_empty_secret_opens_nothing() -> None:
    app = Receiver(Kept(), "")
    headers, body = signed("issues", LABELED, secret="")
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        assert (await http.post("/webhook", headers=headers, content=body)).status_code == 401


async def test_a_body_of_25_mib_is_taken_and_one_byte_more_is_not() -> None:
    largest = LABELED | {"padding": ""}
    _, body = signed("issues", largest)
    headers, body = signed("issues", body.replace(b'""', b'"' + b"x" * (MOST_BYTES - len(body)) + b'"'))
    assert len(body) == MOST_BYTES
    assert (await post(Kept(), headers, body))[0] == 202
    assert (await post(Kept(), *signed("issues", body + b" ")))[0] == 413


async def test_a_body_that_hides_its_size_is_cut_off_on_the_way() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024 * 1024
            yield b"x" * 1024 * 1024

    assert (await post(Kept(), {}, endless()))[0] == 413
    assert sent == MOST_BYTES + 1024 * 1024


async def test_many_large_bodies_at_once_do_not_fill_the_memory() -> None:
    go = asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        yield b"x" * MOST_BYTES
        await go.wait()

    async with client(Kept()) as http:
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

    assert (await post(Kept(), headers, slow(), body_seconds=0.2))[0] == 408


async def test_a_delivery_that_cannot_be_stored_is_no_success(short_tmp: Path) -> None:
    inbox = Inbox(f"unix://{short_tmp}/nobody.sock")
    status, said = await post(inbox, *signed("issues", LABELED))
    assert (status, said["status"]) == (503, "not stored")
    assert (await post(inbox, *signed("ping", {})))[0] == 200


@pytest.mark.redis
async def test_what_is_answered_survives_a_kill_of_redis(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        inbox = Inbox(url)
        async with client(inbox) as http:
            answers = await asyncio.gather(
                *(
                    http.post("/webhook", headers=headers, content=body)
                    for headers, body in [signed("issue_comment", COMMENTED)] * 100
                )
            )
        assert {answer.status_code for answer in answers} == {202}
        pid = int((await inbox.information())["process_id"])
        import os
        import signal

        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while not await inbox.healthy():
                await asyncio.sleep(0.1)
        assert await inbox.size() == 100
        await inbox.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/webhook", 405), ("GET", "/docs", 404), ("GET", "/openapi.json", 404), ("GET", "/", 404)],
)
async def test_there_is_nothing_else(method: str, path: str, status: int) -> None:
    async with client(Kept()) as http:
        assert (await http.request(method, path)).status_code == status
