"""The result of a thread's deliveries depends on what happened, not on their order or repetition."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchwright.bot.jobs import JobQueue, Stopped
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.thread_forge import NullForge
from patchwright.bot.webhooks.delivery import Delivery, parse_delivery
from patchwright.bot.webhooks.triggers import Triggers, find_job
from patchwright.resolver.authorization import Permission
from patchwright.resolver.domain import Job, Repo, User
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SENDER
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, RecordingHandler, running_worker
from tests.bot.local_services import local_handler

What = Literal["label", "unlabel", "work", "retry", "stop", "close", "reopen", "edit"]
WORDS: dict[What, str] = {"work": "@agent fix it", "retry": "@agent retry", "stop": "@agent stop"}
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class ThreadEvent(NamedTuple):
    """An event in the thread and its time."""

    what: What
    at: datetime

    @property
    def asks(self) -> bool:
        return self.what in ("label", "work", "retry")

    def ends(self, other: "ThreadEvent") -> bool:
        """Returns True if this event cancels what `other` requested."""
        if other.at > self.at:
            return False
        return self.what in ("stop", "close") or (self.what == "unlabel" and other.what == "label")

    def delivery(self) -> Delivery:
        stamp = self.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        issue = ISSUE | {"updated_at": stamp}
        if self.what in WORDS:
            number = round((self.at - NOON).total_seconds()) + 1
            comment = COMMENTED["comment"] | {"id": number, "body": WORDS[self.what], "created_at": stamp}
            payload = COMMENTED | {"sender": SENDER, "comment": comment, "issue": issue}
            return parse_delivery("issue_comment", json.dumps(payload).encode())
        actions = {"label": "labeled", "unlabel": "unlabeled", "close": "closed", "reopen": "reopened"}
        payload = LABELED | {
            "action": actions.get(self.what, "edited"),
            "issue": issue | {"closed_at": stamp},
        }
        return parse_delivery("issues", json.dumps(payload).encode())

    @property
    def job(self) -> Job:
        job = find_job(self.delivery(), Triggers())
        assert job is not None
        return job


def thread(whats: Sequence[What]) -> tuple[ThreadEvent, ...]:
    """Returns these events in order, five seconds apart."""
    return tuple(ThreadEvent(what, NOON + timedelta(seconds=5 * at)) for at, what in enumerate(whats))


class Writer(NullForge):
    """A forge on which everybody may write; stores comments by tag."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[str]] = {}

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        return "write"

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        self.bodies.setdefault(tag, []).append(body)
        return ""


async def deliver(queue: JobQueue, order: Sequence[ThreadEvent]) -> Writer:
    forge = Writer()
    handler = local_handler(queue, Triggers(), forge)
    for one in order:
        await handler.handle(one.delivery())
    await handler.close()
    return forge


async def is_right(queue: JobQueue, thread_events: Sequence[ThreadEvent]) -> None:
    """Asserts that every request is completed, queued or canceled as the events alone demand."""
    for request in (one for one in thread_events if one.asks):
        record = await queue.get_record(request.job.id)
        wanted = not any(one.ends(request) for one in thread_events)
        if wanted:
            assert record is not None and not isinstance(record.result, Stopped), request
        else:
            assert record is None or isinstance(record.result, Stopped), request


KINDS: list[What] = ["label", "unlabel", "work", "retry", "stop", "close", "reopen", "edit"]


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[tuple[ThreadEvent, ...], tuple[ThreadEvent, ...]]:
    """Draws events and an order of deliveries, with each event delivered up to three times."""
    thread_events = thread(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8)))
    copies = [one for one in thread_events for _ in range(draw(st.integers(1, 3)))]
    return thread_events, tuple(draw(st.permutations(copies)))


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(shuffled())
async def test_order_and_repetition_of_deliveries_do_not_matter(
    given: tuple[tuple[ThreadEvent, ...], tuple[ThreadEvent, ...]],
) -> None:
    thread_events, order = given
    queue = InlineQueue()
    forge = await deliver(queue, order)
    await is_right(queue, thread_events)
    assert len(queue.known) <= len({one for one in thread_events if one.asks or one.what == "stop"})
    for texts in forge.bodies.values():
        assert len(set(texts)) == 1  # A repeated notice is the same comment.


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(shuffled())
async def test_every_job_runs_once_and_has_one_result(
    given: tuple[tuple[ThreadEvent, ...], tuple[ThreadEvent, ...]],
) -> None:
    """While jobs run: a job that ended before its cancellation is completed, but only once."""
    thread_events, order = given
    queue, handler = InlineQueue(), RecordingHandler()
    handler.go.set()
    async with running_worker(queue, handler):
        await deliver(queue, order)
        async with asyncio.timeout(20):
            while await queue.all_active_jobs():
                await asyncio.sleep(0.001)
        ends = {id: await queue.get_record(id) for id in queue.known}
        await deliver(queue, order)
        assert {id: await queue.get_record(id) for id in queue.known} == ends
    assert set(handler.started.values()) <= {1}
    for request in (one for one in thread_events if one.asks):
        if not any(one.ends(request) for one in thread_events):
            record = ends[request.job.id]
            assert record is not None and record.result == DONE


@pytest.mark.redis
async def test_redis_gives_the_same_results_with_concurrent_workers(short_tmp: Path) -> None:
    whats: tuple[What, ...] = (
        "label",
        "unlabel",
        "label",
        "work",
        "close",
        "reopen",
        "retry",
        "work",
        "stop",
        "label",
        "work",
    )
    thread_events = thread(whats)
    async with run_embedded_redis(short_tmp) as url:
        queue = ArqQueue(url)
        handler = local_handler(queue, Triggers(), Writer())
        copies = [one for one in thread_events for _ in range(10)]
        copies.sort(key=lambda one: hash((one.what, one.at.second * 7919 % 31)))
        await asyncio.gather(*(handler.handle(one.delivery()) for one in copies))
        await is_right(queue, thread_events)
        assert len(await queue.all_active_jobs()) == 2
        await handler.close()
        await queue.close()
