"""Every payload that GitHub sends is accepted and processed, and no other payload stops a worker."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchwright.bot.errors import QueueDown
from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.thread_forge import NullForge
from patchwright.bot.triggers.delivery_processor import DeliveryProcessor
from patchwright.bot.webhooks.delivery import HANDLED_EVENTS, UnreadableDelivery, parse_delivery
from patchwright.bot.webhooks.receiver import Receiver
from patchwright.bot.webhooks.triggers import Triggers, find_request, possible_job_ids
from patchwright.resolver.authorization import Permission
from patchwright.resolver.domain import Job, Repo, User
from patchwright.resolver.errors import Forbidden, ForgeError
from tests.bot.deliveries import (
    COMMENTED,
    INLINE,
    INSTALLATION,
    ISSUE,
    LABELED,
    PULL_CLOSED,
    PULL_LABELED,
    REPOSITORIES,
    REVIEWED,
    SECRET,
    SENDER,
    signed,
)
from tests.bot.inline_queue import InlineQueue
from tests.bot.local_services import local_handler
from tests.runners.conftest import NPM, skip_without

EXAMPLES = NPM / "@octokit" / "webhooks-examples"
HANDLED_PAYLOADS = [
    ("issues", LABELED),
    ("issues", LABELED | {"action": "unlabeled"}),
    ("issues", LABELED | {"action": "closed"}),
    ("pull_request", PULL_LABELED),
    ("pull_request", PULL_CLOSED),
    ("issue_comment", COMMENTED | {"sender": SENDER}),
    ("pull_request_review", REVIEWED),
    ("pull_request_review_comment", INLINE),
    ("installation", INSTALLATION),
    ("installation_repositories", REPOSITORIES),
]
VALID_PAYLOAD: dict[str, Any] = LABELED | {"issue": ISSUE | {"number": 4711}, "label": {"name": "bug"}}
"""A delivery that requests a job, on a separate issue."""
TRIGGERS = Triggers(label="bug", mention="@agent")


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for event in json.loads((EXAMPLES / "api.github.com" / "index.json").read_text()):
        for payload in event["examples"]:
            yield event["name"], payload


@asynccontextmanager
async def processing_inbox(url: str, inbox: DeliveryInbox) -> AsyncIterator[None]:
    """Processes the inbox until it is empty; fails if the processor stopped."""
    queue = ArqQueue(url)
    handler = local_handler(queue, TRIGGERS, NullForge())
    processing = asyncio.create_task(DeliveryProcessor(inbox, handler, "one").run())
    try:
        yield
        async with asyncio.timeout(60):
            while await inbox.size():
                await asyncio.sleep(0.05)
        assert not processing.done()
    finally:
        processing.cancel()
        await asyncio.gather(processing, return_exceptions=True)
        await handler.close()
        await queue.close()


async def queued_jobs(url: str) -> list[Job]:
    queue = ArqQueue(url)
    jobs = [record.job for record in await queue.all_active_jobs()]
    await queue.close()
    return jobs


@pytest.mark.slow
@pytest.mark.redis
async def test_every_github_example_payload_is_accepted_and_processed(url: str, inbox: DeliveryInbox) -> None:
    skip_without("npm:@octokit/webhooks-examples")
    payloads = [*examples(), ("issues", VALID_PAYLOAD)]
    assert len(payloads) == 329 + 1
    with open_listener("127.0.0.1", 0) as socket:
        server = HttpServer(Receiver(inbox, SECRET))
        serving = asyncio.create_task(server.serve(sockets=[socket]))
        async with processing_inbox(url, inbox), httpx.AsyncClient(trust_env=False, timeout=30) as http:

            async def post(number: int, event: str, payload: dict[str, Any]) -> tuple[str, int]:
                headers, body = signed(event, payload)
                guid = {"x-github-delivery": f"example-{number}"}
                answer = await http.post(
                    f"{listener_url(socket)}/webhook", headers=headers | guid, content=body
                )
                return event, answer.status_code

            answers = [
                answer
                for at in range(0, len(payloads), 32)
                for answer in await asyncio.gather(
                    *(post(at + n, *item) for n, item in enumerate(payloads[at : at + 32]))
                )
            ]
        assert [item for item in answers if not 200 <= item[1] < 300] == []
        assert len(answers) == len(payloads)
        server.should_exit = True
        await serving
    assert [job.number for job in await queued_jobs(url)] == [VALID_PAYLOAD["issue"]["number"]]


@pytest.mark.parametrize("host", ["api.github.com", "ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35"])
def test_every_example_payload_of_enterprise_servers_can_be_parsed(host: str) -> None:
    skip_without("npm:@octokit/webhooks-examples")
    kinds = [
        parse_delivery(event["name"], json.dumps(payload).encode()).kind
        for event in json.loads((EXAMPLES / host / "index.json").read_text())
        if event["name"] in HANDLED_EVENTS
        for payload in event["examples"]
    ]
    assert len(set(kinds)) > 3


# --- corrupted payloads -------------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(
        ["", "fix-me", "@agent stop", "../..", "\0", "\u202e", "2026-13-45T99:99:99Z", "9" * 400]
    )
    | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def value_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the paths of all values in a payload."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from value_paths(child, (*path, key))


def altered(payload: Any, path: tuple[Any, ...], value: Any, *, deleted: bool) -> Any:
    copy = target = deepcopy(payload)
    for part in path[:-1]:
        target = target[part]
    if deleted:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return copy


@st.composite
def corrupted_payloads(draw: st.DrawFn) -> tuple[str, Any]:
    event, payload = draw(st.sampled_from(HANDLED_PAYLOADS))
    for _ in range(draw(st.integers(1, 3))):
        if not (paths := list(value_paths(payload))):
            break
        path = draw(st.sampled_from(paths))
        payload = altered(payload, path, draw(VALUES), deleted=draw(st.booleans()))
    return event, payload


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(corrupted_payloads())
async def test_a_corrupted_payload_is_parsed_or_rejected_and_nothing_else(
    given: tuple[str, Any],
) -> None:
    event, payload = given
    try:
        delivery = parse_delivery(event, json.dumps(payload).encode(errors="replace"))
    except UnreadableDelivery:
        return
    if request := find_request(delivery, TRIGGERS):
        assert request.job.id and possible_job_ids(delivery, request.job)[0] == request.job.id
    queue = InlineQueue()
    handler = local_handler(queue, TRIGGERS, NullForge())
    await handler.handle(delivery)
    await handler.handle(delivery)
    assert len(await queue.all_active_jobs()) <= 1
    await handler.close()


@pytest.mark.slow
@pytest.mark.redis
async def test_corrupted_payloads_neither_stop_nor_delay_the_processor(
    url: str, inbox: DeliveryInbox
) -> None:
    rng = random.Random(7)
    junk: list[Any] = [None, -1, "", [], {}, 1e308, "x" * 10_000, True, [[[]]], {"login": 3}]
    async with processing_inbox(url, inbox):
        for number in range(300):
            event, payload = rng.choice(HANDLED_PAYLOADS)
            path = rng.choice(list(value_paths(payload)))
            body = altered(payload, path, rng.choice(junk), deleted=rng.random() < 0.3)
            await inbox.put(f"spoiled-{number}", event, json.dumps(body).encode())
        await inbox.put("sound", "issues", json.dumps(VALID_PAYLOAD).encode())
    assert VALID_PAYLOAD["issue"]["number"] in [job.number for job in await queued_jobs(url)]


@pytest.mark.redis
@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (ZeroDivisionError("a bug"), True),
        (QueueDown("Redis does not respond"), True),
        (ForgeError("GitHub is down"), True),
        (Forbidden("no permission"), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_delivery_that_cannot_be_processed_stays_in_the_inbox_if_another_try_can_help(
    url: str, inbox: DeliveryInbox, caplog: pytest.LogCaptureFixture, error: Exception, is_kept: bool
) -> None:
    class Broken(NullForge):
        async def get_permission(self, repo: Repo, user: User) -> Permission:
            if isinstance(error, ForgeError):
                raise error
            return "write"

        async def upsert_comment(
            self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
        ) -> str:
            raise error

    def failures() -> list[logging.LogRecord]:
        warnings = (record for record in caplog.records if record.levelno >= logging.WARNING)
        return [record for record in warnings if record.name == "patchwright.bot.triggers.delivery_processor"]

    queue = ArqQueue(url)
    handler = local_handler(queue, TRIGGERS, Broken())
    processing = asyncio.create_task(DeliveryProcessor(inbox, handler, "one").run())
    stop = COMMENTED | {"sender": SENDER, "comment": COMMENTED["comment"] | {"body": "@agent stop"}}
    await inbox.put("broken", "issue_comment", json.dumps(stop).encode())
    await inbox.put("sound", "issues", json.dumps(VALID_PAYLOAD).encode())
    async with asyncio.timeout(20):
        while not (logged := failures()) or await inbox.size() > is_kept:
            await asyncio.sleep(0.05)
    assert not processing.done() and await inbox.size() == is_kept
    assert {record.__dict__["delivery"] for record in logged} == {"broken"}
    if isinstance(error, ZeroDivisionError):
        assert logged[0].exc_info and logged[0].exc_info[1] is error
    else:
        assert logged[0].__dict__["reason"] == str(error)
    assert [job.number for job in await queued_jobs(url)] == [4711]
    processing.cancel()
    await asyncio.gather(processing, return_exceptions=True)
    await handler.close()
    await queue.close()
