"""Who is not GitHub gets nothing in over a real connection, and GitHub's own repetitions come to one job."""

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

from bot.embedded import embedded_redis
from bot.http import Server, listening, url_of
from bot.redis.inbox import Inbox
from bot.webhooks.receiver import MOST_BYTES, Receiver
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SECRET, SENDER, signed
from tests.bot.webhooks.test_payloads import a_reader, waiting

pytestmark = pytest.mark.redis

ASKED: dict[str, Any] = LABELED | {"label": {"name": "bug"}}
"""What the reader's rules begin a run by."""


@dataclass
class Door:
    """A receiver on a socket, and its inbox."""

    http: httpx.AsyncClient
    url: str
    inbox: Inbox
    redis: str
    at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(32))

    async def knock(self, headers: dict[str, str], body: bytes | AsyncIterator[bytes]) -> int | None:
        """The status; None: the door was shut while we spoke."""
        try:
            async with self.at_once:
                return (await self.http.post(self.url, headers=headers, content=body)).status_code
        except (httpx.WriteError, httpx.ReadError):
            return None

    async def knock_often(self, times: int, headers: dict[str, str], body: bytes) -> int:
        """On one connection, without waiting for an answer in between; how often it was taken in."""
        place = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers | {"host": "x"}).items())
        request = f"POST /webhook HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
        writer.write(request * times)
        said = b""
        while said.count(b'{"status": "stored"}') < times and (more := await reader.read(65_536)):
            said += more
        writer.close()
        return said.count(b"HTTP/1.1 202")


@pytest.fixture
async def door(short_tmp: Path) -> AsyncIterator[Door]:
    with listening("127.0.0.1", 0) as socket:
        async with (
            embedded_redis(short_tmp) as redis,
            httpx.AsyncClient(trust_env=False, timeout=60) as http,
        ):
            inbox = Inbox(redis)
            server = Server(Receiver(inbox, SECRET, body_seconds=1))
            serving = asyncio.create_task(server.serve(sockets=[socket]))
            yield Door(http, f"{url_of(socket)}/webhook", inbox, redis)
            server.should_exit = True
            await serving
            await inbox.close()


async def test_one_delivery_a_thousand_times_at_once_is_one_job(door: Door) -> None:
    async with a_reader(door.redis, door.inbox):
        answers = await asyncio.gather(*(door.knock_often(50, *signed("issues", ASKED)) for _ in range(20)))
    assert answers == [50] * 20
    assert len(await waiting(door.redis)) == 1


async def test_twenty_that_ask_for_something_else_are_twenty_jobs(door: Door) -> None:
    """The control of the test above: what makes them one is what they ask for, and not that they come together."""
    async with a_reader(door.redis, door.inbox):
        others = (ASKED | {"issue": ISSUE | {"number": number}} for number in range(1, 21))
        await asyncio.gather(*(door.knock(*signed("issues", one)) for one in others))
    assert len(await waiting(door.redis)) == 20


def _sha1(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()


@pytest.mark.parametrize(
    "how", ["missing", "sha-1", "sha-1 renamed", "wrong", "of another secret", "re-encoded"]
)
async def test_without_a_signature_of_these_very_bytes_nothing_is_stored(door: Door, how: str) -> None:
    headers, body = signed("issues", ASKED)
    sent, proof = body, headers["x-hub-signature-256"]
    match how:
        case "missing":
            forged = {}
        case "sha-1":
            forged = {"x-hub-signature": f"sha1={_sha1(body)}"}
        case "sha-1 renamed":
            forged = {"x-hub-signature-256": f"sha1={_sha1(body)}"}
        case "wrong":
            forged = {"x-hub-signature-256": proof[:-1] + ("0" if proof[-1] != "0" else "1")}
        case "of another secret":
            forged = {"x-hub-signature-256": signed("issues", ASKED, secret="x")[0]["x-hub-signature-256"]}
        case _:
            forged = {"x-hub-signature-256": proof}
            sent = json.dumps(json.loads(body), indent=1).encode()
    others = {name: value for name, value in headers.items() if name != "x-hub-signature-256"}
    assert await door.knock(others | forged, sent) == 401
    assert await door.inbox.size() == 0
    assert await door.knock(headers, body) == 202
    assert await door.inbox.size() == 1


async def test_what_is_too_large_too_slow_or_too_deep_keeps_nobody_from_being_heard(door: Door) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(3)
        yield b"}"

    headers, body = signed("issues", ASKED)
    slow = asyncio.create_task(door.knock(headers, slowly()))
    with_room = signed("issues", b'{"a":"' + b"x" * (MOST_BYTES - 8) + b'"}')
    deep = signed("issues", b'{"action":"labeled","issue":' + b"[" * 1_000_000)
    async with a_reader(door.redis, door.inbox):
        assert await door.knock(*deep) == 202  # it is GitHub's; whoever reads it finds that it says nothing
        assert await door.knock(*with_room) == 202
        assert await door.knock({}, b"x" * (MOST_BYTES + 1)) in (413, None)
        assert await door.knock(headers, body) == 202
    assert await slow in (408, None)
    assert [job.number for job in await waiting(door.redis)] == [7]


async def test_a_comment_that_was_edited_to_mention_us_asks_for_nothing(door: Door) -> None:
    made = COMMENTED | {"sender": SENDER}
    async with a_reader(door.redis, door.inbox):
        await door.knock(*signed("issue_comment", made | {"action": "edited"}))
    assert await waiting(door.redis) == []
    async with a_reader(door.redis, door.inbox):
        await door.knock(*signed("issue_comment", made))
    assert len(await waiting(door.redis)) == 1
