"""The responses of the receiver, and what it stores before it responds."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.webhooks.receiver import MAX_BODY_BYTES, DeliveryStore, Receiver
from tests.bot.deliveries import COMMENTED, LABELED, SECRET, signed


class MemoryStore:
    """A delivery store in memory."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[str, str, bytes]] = []

    async def put(self, guid: str, event: str, body: bytes) -> None:
        self.deliveries.append((guid, event, body))


def client(store: DeliveryStore, *, body_timeout: float = 5) -> httpx.AsyncClient:
    app = Receiver(store, SECRET, body_timeout=body_timeout)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")  # type: ignore[arg-type]


async def post(
    store: DeliveryStore, headers: dict[str, str], body: bytes | AsyncIterator[bytes], **but: Any
) -> tuple[int, dict[str, str]]:
    async with client(store, **but) as http:
        answer = await http.post("/webhook", headers=headers, content=body)
        return answer.status_code, answer.json()


async def test_a_delivery_is_stored_unchanged_before_the_response() -> None:
    store = MemoryStore()
    headers, body = signed("issues", LABELED)
    assert await post(store, headers, body) == (202, {"status": "stored"})
    assert store.deliveries == [(headers["x-github-delivery"], "issues", body)]


HEADERS, BODY = signed("issues", LABELED)
SIGNATURE_ONLY = {"x-hub-signature-256": HEADERS["x-hub-signature-256"]}
FORM = {"content-type": "application/x-www-form-urlencoded"}
LONG_GUID = {"x-github-delivery": "g" * 65}


@pytest.mark.parametrize(
    ("headers", "status", "counted", "logged_guid"),
    [
        pytest.param(HEADERS, 202, ("issues", "stored"), None, id="stored"),
        pytest.param(
            SIGNATURE_ONLY | {"x-github-event": "issues"},
            202,
            ("issues", "stored"),
            None,
            id="no content type",
        ),
        pytest.param(SIGNATURE_ONLY, 202, ("other", "ignored"), None, id="no event"),
        pytest.param(HEADERS | {"x-github-event": "ping"}, 200, ("ping", "pong"), None, id="ping"),
        pytest.param(HEADERS | {"x-github-event": "a\nstar"}, 202, ("other", "ignored"), None, id="unknown"),
        pytest.param({}, 401, ("other", "invalid signature"), "", id="no headers"),
        pytest.param(HEADERS | FORM | LONG_GUID, 400, ("issues", "unreadable"), "g" * 64, id="form"),
        pytest.param(
            HEADERS | {"content-length": str(MAX_BODY_BYTES + 1)},
            413,
            ("issues", "too large"),
            HEADERS["x-github-delivery"],
            id="too large",
        ),
    ],
)
async def test_every_delivery_is_counted_and_a_rejected_one_is_logged(
    headers: dict[str, str],
    status: int,
    counted: tuple[str, str],
    logged_guid: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Receiver(MemoryStore(), SECRET)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:  # type: ignore[arg-type]
        answers = [await http.post("/webhook", headers=headers, content=BODY) for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, answer.json()["status"]) == (status, counted[1])
        assert int(answer.headers["content-length"]) == len(answer.content)
        # A body that was not read must not be taken for the next request on the same connection.
        assert answer.headers.get("connection") == ("close" if status == 413 else None)
    assert app.delivery_counts == {counted: 2}
    logged = [(record.getMessage(), record.__dict__["delivery"]) for record in caplog.records]
    assert logged == ([] if logged_guid is None else [(f"delivery {counted[1]}", logged_guid)] * 2)


async def test_a_delivery_whose_sender_disconnects_is_not_stored() -> None:
    store, sent = MemoryStore(), list[Any]()
    messages = iter([{"type": "http.request", "body": BODY, "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    scope = {"type": "http", "method": "POST", "path": "/webhook", "headers": headers}
    await Receiver(store, SECRET)(scope, receive, send)
    assert [sent[0]["status"], json.loads(sent[1]["body"])] == [
        400, {"status": "incomplete", "why": "The body is incomplete."}
    ]  # fmt: skip
    assert store.deliveries == []


@pytest.mark.parametrize(
    ("event", "payload", "answer"),
    [
        ("ping", {"zen": "Keep it logically awesome."}, (200, {"status": "pong"})),
        ("star", {"action": "created"}, (202, {"status": "ignored"})),
        ("push", {}, (202, {"status": "ignored"})),
    ],
)
async def test_unhandled_events_are_accepted_but_not_stored(
    event: str, payload: object, answer: object
) -> None:
    store = MemoryStore()
    assert await post(store, *signed(event, payload)) == answer
    assert store.deliveries == []


async def test_a_delivery_with_an_invalid_signature_is_rejected_and_not_stored() -> None:
    store = MemoryStore()
    headers, body = signed("issues", LABELED, secret="another")
    reason = "The delivery has no valid x-hub-signature-256 header."
    assert await post(store, headers, body) == (401, {"status": "invalid signature", "why": reason})
    assert store.deliveries == []
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
async def test_only_a_sha_256_signature_of_these_bytes_is_valid(mangled: dict[str, str]) -> None:
    store = MemoryStore()
    headers, body = signed("issues", LABELED)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in (headers | mangled).items()]
    async with client(store) as http:
        assert (await http.post("/webhook", headers=raw, content=body)).status_code == 401
        assert (await http.post("/webhook", headers=headers, content=body + b" ")).status_code == 401
        assert (await http.post("/webhook", headers=headers, content=body)).status_code == 202
    assert len(store.deliveries) == 1


async def test_a_form_encoded_delivery_gets_a_hint_to_use_json() -> None:
    headers, body = signed("issues", b"payload=%7B%7D")
    status, answer = await post(
        MemoryStore(), headers | {"content-type": "application/x-www-form-urlencoded"}, body
    )
    assert (status, answer["why"]) == (400, "Set the webhook's content type to application/json.")


async def test_an_empty_secret_accepts_no_delivery() -> None:
    app = Receiver(MemoryStore(), "")
    headers, body = signed("issues", LABELED, secret="")
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        assert (await http.post("/webhook", headers=headers, content=body)).status_code == 401


async def test_a_body_of_25_mib_is_accepted_and_one_byte_more_is_not() -> None:
    largest = LABELED | {"padding": ""}
    _, body = signed("issues", largest)
    headers, body = signed("issues", body.replace(b'""', b'"' + b"x" * (MAX_BODY_BYTES - len(body)) + b'"'))
    assert len(body) == MAX_BODY_BYTES
    assert (await post(MemoryStore(), headers, body))[0] == 202
    assert (await post(MemoryStore(), *signed("issues", body + b" ")))[0] == 413


async def test_a_body_that_is_announced_as_too_large_is_not_read() -> None:
    async def unread() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    for length in (str(MAX_BODY_BYTES + 1), "1" * 5_000):
        headers = {"content-length": length}
        status, answer = await post(MemoryStore(), headers, unread())
        assert (status, answer) == (
            413, {"status": "too large", "why": f"The body has more than {MAX_BODY_BYTES} bytes."}
        )  # fmt: skip


async def test_a_body_without_a_length_is_cut_off_at_the_limit() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024 * 1024
            yield b"x" * 1024 * 1024

    assert (await post(MemoryStore(), {}, endless()))[0] == 413
    assert sent == MAX_BODY_BYTES + 1024 * 1024


@pytest.mark.slow
async def test_many_large_bodies_at_once_do_not_exhaust_memory() -> None:
    go = asyncio.Event()

    async def paused_body() -> AsyncIterator[bytes]:
        yield b"x" * MAX_BODY_BYTES
        await go.wait()

    async with client(MemoryStore()) as http:
        early = [asyncio.create_task(http.post("/webhook", content=paused_body())) for _ in range(8)]
        await asyncio.sleep(0.5)
        late = [await http.post("/webhook", content=b"x") for _ in range(2)]
        go.set()
        why = "Too many deliveries are being received."
        for answer in late:
            assert (answer.status_code, answer.json()) == (503, {"status": "busy", "why": why})
            assert answer.headers["connection"] == "close"
        assert {(await task).status_code for task in early} == {401}
        assert (await http.post("/webhook", content=b"x")).status_code == 401


async def test_a_slow_sender_is_cut_off() -> None:
    headers, body = signed("issues", LABELED)

    async def slow() -> AsyncIterator[bytes]:
        yield body[:10]
        await asyncio.sleep(30)
        yield body[10:]

    answer = await post(MemoryStore(), headers, slow(), body_timeout=0.2)
    assert answer == (408, {"status": "timeout", "why": "The body did not arrive in time."})
    async with client(MemoryStore(), body_timeout=0.2) as http:
        # The rest of the body would be read as the next request.
        assert (await http.post("/webhook", content=slow())).headers["connection"] == "close"


async def test_a_delivery_that_cannot_be_stored_is_not_accepted(short_tmp: Path) -> None:
    inbox = DeliveryInbox(f"unix://{short_tmp}/nobody.sock")
    answer = await post(inbox, *signed("issues", LABELED))
    assert answer == (503, {"status": "not stored", "why": "Redis does not respond."})
    assert (await post(inbox, *signed("ping", {})))[0] == 200


@pytest.mark.redis
async def test_accepted_deliveries_survive_a_crash_of_redis(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        inbox = DeliveryInbox(url)
        async with client(inbox) as http:
            answers = await asyncio.gather(
                *(
                    http.post("/webhook", headers=headers, content=body)
                    for headers, body in [signed("issue_comment", COMMENTED)] * 100
                )
            )
        assert {answer.status_code for answer in answers} == {202}
        pid = int((await inbox.fetch_redis_info())["process_id"])
        import os
        import signal

        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while not await inbox.is_healthy():
                await asyncio.sleep(0.1)
        assert await inbox.size() == 100
        await inbox.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/webhook", 405), ("GET", "/docs", 404), ("GET", "/openapi.json", 404), ("GET", "/", 404)],
)
async def test_other_paths_and_methods_are_rejected(method: str, path: str, status: int) -> None:
    async with client(MemoryStore()) as http:
        answer = await http.request(method, path)
    assert (answer.status_code, answer.headers["connection"]) == (status, "close")
    assert answer.headers["content-type"] == "text/plain"
    assert answer.text == {404: "Not found.\n", 405: "Method not allowed.\n"}[status]


async def test_endpoints_answer_get_and_head_only() -> None:
    app = Receiver(MemoryStore(), SECRET)

    async def healthy() -> tuple[int, str, bytes]:
        return 200, "text/plain", b"ok"

    app.endpoints = {"/healthz": healthy}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:  # type: ignore[arg-type]
        assert [(await http.request(method, "/healthz")).status_code for method in ("GET", "HEAD")] == [
            200,
            200,
        ]
        answer = await http.post("/healthz")
    assert (answer.status_code, answer.text) == (405, "Method not allowed.\n")
    assert (answer.headers["content-type"], answer.headers["connection"]) == ("text/plain", "close")


@pytest.mark.parametrize("base_path", ["", "/bot"])
async def test_other_applications_get_the_request_below_the_base_path(base_path: str) -> None:
    seen: list[tuple[str, str, bytes]] = []

    def application(name: str) -> Any:
        async def respond(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["type"] == "http.request"
            seen.append((name, scope["path"], scope["raw_path"]))
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

        return respond

    app = Receiver(MemoryStore(), SECRET, base_path=base_path)
    app.mounted_apps, app.fallback_app = {"/jobs": application("jobs")}, application("other")
    headers, body = signed("issues", LABELED)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:  # type: ignore[arg-type]
        for path in ("/jobs/1", "/runs", "/"):
            assert (await http.get(f"{base_path}{path}")).status_code == 204
        assert (await http.post(f"{base_path}/webhook", headers=headers, content=body)).status_code == 202
    assert seen == [("jobs", "/jobs/1", b"/jobs/1"), ("other", "/runs", b"/runs"), ("other", "/", b"/")]


async def test_a_header_that_is_not_ascii_is_stored_in_a_readable_form() -> None:
    store = MemoryStore()
    headers, body = signed("issues", LABELED)
    raw = [(name.encode(), value.encode()) for name, value in (headers | {"x-github-delivery": "gü"}).items()]
    async with client(store) as http:
        assert (await http.post("/webhook", headers=raw, content=body)).status_code == 202
        del raw[[name for name, _ in raw].index(b"x-github-delivery")]
        assert (await http.post("/webhook", headers=raw, content=body)).status_code == 202
    assert [guid for guid, _, _ in store.deliveries] == ["g\ufffd\ufffd", ""]
