"""Over a real connection, attackers store nothing, and repeated deliveries become one job."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.webhooks.receiver import MAX_BODY_BYTES, Receiver
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SECRET, SENDER, signed
from tests.bot.webhooks.test_payloads import processing_inbox, queued_jobs

pytestmark = pytest.mark.redis

TRIGGERING_PAYLOAD: dict[str, Any] = LABELED | {"label": {"name": "bug"}}
"""A delivery with the label that starts a run in these tests."""


@dataclass
class ReceiverClient:
    """A receiver on a socket, with its inbox."""

    http: httpx.AsyncClient
    url: str
    inbox: DeliveryInbox
    redis: str
    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(32))

    async def post(self, headers: dict[str, str], body: bytes | AsyncIterator[bytes]) -> int | None:
        """Returns the status, or None if the connection was closed during the request."""
        try:
            async with self.limit:
                return (await self.http.post(self.url, headers=headers, content=body)).status_code
        except (httpx.WriteError, httpx.ReadError):
            return None

    async def post_pipelined(self, times: int, headers: dict[str, str], body: bytes) -> int:
        """Sends requests on one connection without waiting for responses, and returns how many were accepted."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers | {"host": "x"}).items())
        request = f"POST /webhook HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
        writer.write(request * times)
        received = b""
        while received.count(b'{"status": "stored"}') < times and (more := await reader.read(65_536)):
            received += more
        writer.close()
        return received.count(b"HTTP/1.1 202")


@pytest.fixture
async def client(short_tmp: Path) -> AsyncIterator[ReceiverClient]:
    with open_listener("127.0.0.1", 0) as socket:
        async with (
            run_embedded_redis(short_tmp) as redis,
            httpx.AsyncClient(trust_env=False, timeout=60) as http,
        ):
            inbox = DeliveryInbox(redis)
            server = HttpServer(Receiver(inbox, SECRET, body_timeout=1))
            serving = asyncio.create_task(server.serve(sockets=[socket]))
            yield ReceiverClient(http, f"{listener_url(socket)}/webhook", inbox, redis)
            server.should_exit = True
            await serving
            await inbox.close()


@pytest.mark.slow
async def test_one_delivery_a_thousand_times_at_once_is_one_job(client: ReceiverClient) -> None:
    async with processing_inbox(client.redis, client.inbox):
        answers = await asyncio.gather(
            *(client.post_pipelined(50, *signed("issues", TRIGGERING_PAYLOAD)) for _ in range(20))
        )
    assert answers == [50] * 20
    assert len(await queued_jobs(client.redis)) == 1


async def test_twenty_deliveries_for_different_issues_are_twenty_jobs(client: ReceiverClient) -> None:
    """The control of the test above: the number of jobs depends on the issues, not on the concurrency."""
    async with processing_inbox(client.redis, client.inbox):
        payloads = (TRIGGERING_PAYLOAD | {"issue": ISSUE | {"number": number}} for number in range(1, 21))
        await asyncio.gather(*(client.post(*signed("issues", one)) for one in payloads))
    assert len(await queued_jobs(client.redis)) == 20


def _sha1(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()


@pytest.mark.parametrize(
    "variant", ["missing", "sha-1", "sha-1 renamed", "wrong", "of another secret", "re-encoded"]
)
async def test_without_a_signature_of_these_bytes_nothing_is_stored(
    client: ReceiverClient, variant: str
) -> None:
    headers, body = signed("issues", TRIGGERING_PAYLOAD)
    sent, signature = body, headers["x-hub-signature-256"]
    match variant:
        case "missing":
            invalid = {}
        case "sha-1":
            invalid = {"x-hub-signature": f"sha1={_sha1(body)}"}
        case "sha-1 renamed":
            invalid = {"x-hub-signature-256": f"sha1={_sha1(body)}"}
        case "wrong":
            invalid = {"x-hub-signature-256": signature[:-1] + ("0" if signature[-1] != "0" else "1")}
        case "of another secret":
            invalid = {
                "x-hub-signature-256": signed("issues", TRIGGERING_PAYLOAD, secret="x")[0][
                    "x-hub-signature-256"
                ]
            }
        case _:
            invalid = {"x-hub-signature-256": signature}
            sent = json.dumps(json.loads(body), indent=1).encode()
    other_headers = {name: value for name, value in headers.items() if name != "x-hub-signature-256"}
    assert await client.post(other_headers | invalid, sent) == 401
    assert await client.inbox.size() == 0
    assert await client.post(headers, body) == 202
    assert await client.inbox.size() == 1


@pytest.mark.slow
async def test_oversized_slow_or_deeply_nested_deliveries_do_not_block_others(client: ReceiverClient) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(3)
        yield b"}"

    headers, body = signed("issues", TRIGGERING_PAYLOAD)
    slow = asyncio.create_task(client.post(headers, slowly()))
    largest = signed("issues", b'{"a":"' + b"x" * (MAX_BODY_BYTES - 8) + b'"}')
    deep = signed("issues", b'{"action":"labeled","issue":' + b"[" * 1_000_000)
    async with processing_inbox(client.redis, client.inbox):
        # its signature is valid; the processor finds that it is malformed
        assert await client.post(*deep) == 202
        assert await client.post(*largest) == 202
        assert await client.post({}, b"x" * (MAX_BODY_BYTES + 1)) in (413, None)
        assert await client.post(headers, body) == 202
    assert await slow in (408, None)
    assert [job.number for job in await queued_jobs(client.redis)] == [7]


async def test_a_comment_edited_to_mention_the_bot_starts_nothing(client: ReceiverClient) -> None:
    comment = COMMENTED | {"sender": SENDER}
    async with processing_inbox(client.redis, client.inbox):
        await client.post(*signed("issue_comment", comment | {"action": "edited"}))
    assert await queued_jobs(client.redis) == []
    async with processing_inbox(client.redis, client.inbox):
        await client.post(*signed("issue_comment", comment))
    assert len(await queued_jobs(client.redis)) == 1
