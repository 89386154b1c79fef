"""What comes of a thread's deliveries depends on what happened there, and not on when, or how often, it was told."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.desk import Desk, Mute
from bot.embedded import embedded_redis
from bot.jobs import Cancelled, Queue
from bot.redis.queue import ArqQueue
from bot.webhooks.delivery import Delivery, read
from bot.webhooks.triggers import Triggers, job_for
from resolver.domain import Job, Repo, User
from resolver.forge import Permission
from tests.bot.deliveries import COMMENTED, ISSUE, LABELED, SENDER
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import DONE, Handlers, working

What = Literal["label", "unlabel", "work", "retry", "stop", "close", "reopen", "edit"]
WORDS: dict[What, str] = {"work": "@agent mend it", "retry": "@agent retry", "stop": "@agent stop"}
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Happened(NamedTuple):
    """Something in the thread, and when."""

    what: What
    at: datetime

    @property
    def asks(self) -> bool:
        return self.what in ("label", "work", "retry")

    def ends(self, other: "Happened") -> bool:
        """Whether what `other` asked for is not wanted any more since this."""
        if other.at > self.at:
            return False
        return self.what in ("stop", "close") or (self.what == "unlabel" and other.what == "label")

    def told(self) -> Delivery:
        stamp = self.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        issue = ISSUE | {"updated_at": stamp}
        if self.what in WORDS:
            number = round((self.at - NOON).total_seconds()) + 1
            comment = COMMENTED["comment"] | {"id": number, "body": WORDS[self.what], "created_at": stamp}
            payload = COMMENTED | {"sender": SENDER, "comment": comment, "issue": issue}
            return read("issue_comment", json.dumps(payload).encode())
        actions = {"label": "labeled", "unlabel": "unlabeled", "close": "closed", "reopen": "reopened"}
        payload = LABELED | {
            "action": actions.get(self.what, "edited"),
            "issue": issue | {"closed_at": stamp},
        }
        return read("issues", json.dumps(payload).encode())

    @property
    def job(self) -> Job:
        job = job_for(self.told(), Triggers())
        assert job is not None
        return job


def thread(whats: Sequence[What]) -> tuple[Happened, ...]:
    """They happened in this order, five seconds apart."""
    return tuple(Happened(what, NOON + timedelta(seconds=5 * at)) for at, what in enumerate(whats))


class Writer(Mute):
    """A forge on which everybody may write; keeps what is said there, by its tag."""

    def __init__(self) -> None:
        self.said: dict[str, list[str]] = {}

    async def permission(self, repo: Repo, user: User) -> Permission:
        return "write"

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        self.said.setdefault(tag, []).append(body)
        return ""


async def deliver(queue: Queue, order: Sequence[Happened]) -> Writer:
    forge = Writer()
    desk = Desk(queue, Triggers(), forge)
    for one in order:
        await desk.take(one.told())
    await desk.close()
    return forge


async def is_right(queue: Queue, happened: Sequence[Happened]) -> None:
    """Each thing that was asked for is done, or waits, or is not wanted any more: by what happened alone."""
    for asked in (one for one in happened if one.asks):
        record = await queue.state(asked.job.id)
        wanted = not any(one.ends(asked) for one in happened)
        if wanted:
            assert record is not None and not isinstance(record.result, Cancelled), asked
        else:
            assert record is None or isinstance(record.result, Cancelled), asked


KINDS: list[What] = ["label", "unlabel", "work", "retry", "stop", "close", "reopen", "edit"]


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[tuple[Happened, ...], tuple[Happened, ...]]:
    """What happened, and the order in which it is told: anything up to three times, and something at any time."""
    happened = thread(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8)))
    copies = [one for one in happened for _ in range(draw(st.integers(1, 3)))]
    return happened, tuple(draw(st.permutations(copies)))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(shuffled())
async def test_the_order_of_deliveries_and_their_number_change_nothing(
    given: tuple[tuple[Happened, ...], tuple[Happened, ...]],
) -> None:
    happened, order = given
    queue = InlineQueue()
    forge = await deliver(queue, order)
    await is_right(queue, happened)
    assert len(queue.known) <= len({one for one in happened if one.asks or one.what == "stop"})
    for texts in forge.said.values():
        assert len(set(texts)) == 1  # said again, it is the same comment


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(shuffled())
async def test_what_is_done_is_done_once_and_has_one_end(
    given: tuple[tuple[Happened, ...], tuple[Happened, ...]],
) -> None:
    """While jobs are done: one that ended before it was stopped is done, all the same only once."""
    happened, order = given
    queue, handler = InlineQueue(), Handlers()
    handler.go.set()
    async with working(queue, handler):
        await deliver(queue, order)
        async with asyncio.timeout(20):
            while await queue.everywhere():
                await asyncio.sleep(0.001)
        ends = {id: await queue.state(id) for id in queue.known}
        await deliver(queue, order)
        assert {id: await queue.state(id) for id in queue.known} == ends
    assert set(handler.begun.values()) <= {1}
    for asked in (one for one in happened if one.asks):
        if not any(one.ends(asked) for one in happened):
            record = ends[asked.job.id]
            assert record is not None and record.result == DONE


@pytest.mark.redis
async def test_it_is_the_same_on_redis_with_many_at_once(short_tmp: Path) -> None:
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
    happened = thread(whats)
    async with embedded_redis(short_tmp) as url:
        queue = ArqQueue(url)
        desk = Desk(queue, Triggers(), Writer())
        copies = [one for one in happened for _ in range(10)]
        copies.sort(key=lambda one: hash((one.what, one.at.second * 7919 % 31)))
        await asyncio.gather(*(desk.take(one.told()) for one in copies))
        await is_right(queue, happened)
        assert len(await queue.everywhere()) == 2
        await desk.close()
        await queue.close()
