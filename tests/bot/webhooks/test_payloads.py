"""Whatever GitHub sends, and whatever it may send some day, is answered well, read, and ends no worker."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.desk import Desk, Mute
from bot.http import Server, listening, url_of
from bot.redis.inbox import Inbox
from bot.redis.queue import ArqQueue
from bot.webhooks.delivery import EVENTS, Unreadable, read
from bot.webhooks.intake import Intake
from bot.webhooks.receiver import Receiver
from bot.webhooks.triggers import Triggers, names_of, wish_for
from resolver.domain import Job, Repo, User
from resolver.forge import Permission
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
from tests.runners.conftest import NPM, skip_without

EXAMPLES = NPM / "@octokit" / "webhooks-examples"
OURS = [
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
SOUND: dict[str, Any] = LABELED | {"issue": ISSUE | {"number": 4711}, "label": {"name": "bug"}}
"""One that asks for something, on an issue of its own."""
RULES = Triggers(label="bug", mention="@agent")


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for event in json.loads((EXAMPLES / "api.github.com" / "index.json").read_text()):
        for payload in event["examples"]:
            yield event["name"], payload


@asynccontextmanager
async def a_reader(url: str, inbox: Inbox) -> AsyncIterator[None]:
    """Somebody who deals with what is in the inbox; fails when that ended them."""
    queue = ArqQueue(url)
    desk = Desk(queue, RULES, Mute())
    intake = asyncio.create_task(Intake(inbox, desk, "one").run())
    try:
        yield
        async with asyncio.timeout(60):
            while await inbox.size():
                await asyncio.sleep(0.05)
        assert not intake.done()
    finally:
        intake.cancel()
        await asyncio.gather(intake, return_exceptions=True)
        await desk.close()
        await queue.close()


async def waiting(url: str) -> list[Job]:
    queue = ArqQueue(url)
    jobs = [one.job for one in await queue.everywhere()]
    await queue.close()
    return jobs


@pytest.mark.redis
async def test_every_example_of_githubs_is_answered_well_and_dealt_with(url: str, inbox: Inbox) -> None:
    skip_without("npm:@octokit/webhooks-examples")
    everything = [*examples(), ("issues", SOUND)]
    assert len(everything) == 329 + 1
    with listening("127.0.0.1", 0) as socket:
        server = Server(Receiver(inbox, SECRET))
        serving = asyncio.create_task(server.serve(sockets=[socket]))
        async with a_reader(url, inbox), httpx.AsyncClient(trust_env=False, timeout=30) as http:

            async def post(number: int, event: str, payload: dict[str, Any]) -> tuple[str, int]:
                headers, body = signed(event, payload)
                guid = {"x-github-delivery": f"example-{number}"}
                answer = await http.post(f"{url_of(socket)}/webhook", headers=headers | guid, content=body)
                return event, answer.status_code

            answers = [
                answer
                for at in range(0, len(everything), 32)
                for answer in await asyncio.gather(
                    *(post(at + n, *one) for n, one in enumerate(everything[at : at + 32]))
                )
            ]
        assert [one for one in answers if not 200 <= one[1] < 300] == []
        assert len(answers) == len(everything)
        server.should_exit = True
        await serving
    assert [job.number for job in await waiting(url)] == [SOUND["issue"]["number"]]


@pytest.mark.parametrize("host", ["api.github.com", "ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35"])
def test_every_example_is_in_a_form_that_is_known_of_enterprise_servers_too(host: str) -> None:
    skip_without("npm:@octokit/webhooks-examples")
    read_as = [
        read(event["name"], json.dumps(payload).encode()).kind
        for event in json.loads((EXAMPLES / host / "index.json").read_text())
        if event["name"] in EVENTS
        for payload in event["examples"]
    ]
    assert len(set(read_as)) > 3


# --- what nobody has sent yet -------------------------------------------------------------------------------

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


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """To everything that is in it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*way, key)
        yield from ways(one, (*way, key))


def changed(payload: Any, way: tuple[Any, ...], value: Any, *, gone: bool) -> Any:
    made = at = deepcopy(payload)
    for part in way[:-1]:
        at = at[part]
    if gone:
        del at[way[-1]]
    else:
        at[way[-1]] = value
    return made


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[str, Any]:
    event, payload = draw(st.sampled_from(OURS))
    for _ in range(draw(st.integers(1, 3))):
        if not (known := list(ways(payload))):
            break
        way = draw(st.sampled_from(known))
        payload = changed(payload, way, draw(VALUES), gone=draw(st.booleans()))
    return event, payload


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(spoiled())
async def test_a_payload_that_is_spoiled_anywhere_is_read_or_refused_and_never_more(
    given: tuple[str, Any],
) -> None:
    event, payload = given
    try:
        told = read(event, json.dumps(payload).encode(errors="replace"))
    except Unreadable:
        return
    if wish := wish_for(told, RULES):
        assert wish.job.id and names_of(told, wish.job)[0] == wish.job.id
    queue = InlineQueue()
    desk = Desk(queue, RULES, Mute())
    await desk.take(told)
    await desk.take(told)
    assert len(await queue.everywhere()) <= 1
    await desk.close()


@pytest.mark.redis
async def test_hundreds_of_spoiled_payloads_end_no_reader_and_keep_nobody_waiting(
    url: str, inbox: Inbox
) -> None:
    chance = random.Random(7)
    junk: list[Any] = [None, -1, "", [], {}, 1e308, "x" * 10_000, True, [[[]]], {"login": 3}]
    async with a_reader(url, inbox):
        for number in range(300):
            event, payload = chance.choice(OURS)
            way = chance.choice(list(ways(payload)))
            body = changed(payload, way, chance.choice(junk), gone=chance.random() < 0.3)
            await inbox.put(f"spoiled-{number}", event, json.dumps(body).encode())
        await inbox.put("sound", "issues", json.dumps(SOUND).encode())
    assert SOUND["issue"]["number"] in [job.number for job in await waiting(url)]


@pytest.mark.redis
async def test_a_delivery_that_we_have_a_fault_with_ends_no_reader_and_stays(
    url: str, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Mute):
        async def permission(self, repo: Repo, user: User) -> Permission:
            return "write"

        async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
            raise ZeroDivisionError

    queue = ArqQueue(url)
    desk = Desk(queue, RULES, Broken())
    intake = asyncio.create_task(Intake(inbox, desk, "one").run())
    stop = COMMENTED | {"sender": SENDER, "comment": COMMENTED["comment"] | {"body": "@agent stop"}}
    await inbox.put("broken", "issue_comment", json.dumps(stop).encode())
    await inbox.put("sound", "issues", json.dumps(SOUND).encode())
    async with asyncio.timeout(20):
        while "delivery broke its reader" not in caplog.text or await inbox.size() > 1:
            await asyncio.sleep(0.05)
    assert not intake.done() and await inbox.size() == 1
    assert [job.number for job in await waiting(url)] == [4711]
    intake.cancel()
    await asyncio.gather(intake, return_exceptions=True)
    await desk.close()
    await queue.close()
