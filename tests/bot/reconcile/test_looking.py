"""What GitHub shows of labels, comments and reviews is told as its deliveries would have told it, and no more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.github.graphql import GraphQL
from bot.github.identity import Identity
from bot.github.rest import Rest, TokenAccess
from bot.reconcile.looking import Looking
from bot.reconcile.redelivery import AppWebhook, Attempt, Redelivery
from bot.webhooks.delivery import Closed, CommentMade, Delivery, Labelled, ReviewSaid, read
from demo.world import Delivery as Sent
from demo.world import World
from resolver.domain import Repo
from resolver.errors import Forbidden, Unauthorized
from tests.bot.reconcile.lookouts import PERMISSIONS, QUICK, SAMPLE, Place, a_place, access, with_token

pytestmark = pytest.mark.redis

LABEL = "fix-me"


@pytest.fixture
async def place(short_tmp: Path) -> AsyncIterator[Place]:
    async with a_place(short_tmp) as place:
        yield place


def read_as(sent: Sent) -> Delivery:
    return read(sent.event, sent.body)


async def told(place: Place, looking: Looking) -> list[Labelled | CommentMade | ReviewSaid]:
    (repo,) = await looking.places.listed()
    seen = await looking.look(repo, place.world.now() - timedelta(days=3), "", LABEL)
    assert seen is not None
    return [one.told for one in sorted(seen.happened, key=lambda one: one.at)]


async def test_what_we_look_with_may_only_read(place: Place) -> None:
    thread = place.world.issue(place.repo, title="T", body="B", by="stranger")
    (repo,) = await Looking(place.rest, place.us).places.listed()
    path = (*repo.path, "issues", str(thread.number), "comments")
    assert await place.rest.get_all(dict[str, object], repo.token, *path) == []
    with pytest.raises(Forbidden):
        await place.rest.post(dict[str, object], repo.token, *path, body={"body": "Hello."})


async def test_threads_beyond_the_first_page_are_seen(place: Place) -> None:
    for number in range(103):
        thread = place.world.issue(place.repo, title=f"{number}", body="B", by="stranger")
        if number % 20 == 0:
            place.world.labelled(thread, LABEL, by="maintainer")
    found = await told(place, Looking(place.rest, place.us))
    assert [one.number for one in found] == [1, 21, 41, 61, 81, 101]
    assert all(isinstance(one, Labelled) and one.sender.login == "maintainer" for one in found)


async def test_an_inline_comment_that_was_edited_later_tells_nothing(place: Place) -> None:
    place.repo.commit("topic", {"calc.py": "x = 1\ny = 3\n"})
    pull = place.world.pull(place.repo, "topic", by="stranger")
    line = ("calc.py", 2, "Why 3?")
    place.world.reviewed(pull, line, by="maintainer", body="First.")
    late = place.world.reviewed(pull, line, by="maintainer", body="Second.")
    (edited,) = [one for thread in pull.review_threads for one in thread.comments if one.review is late]
    place.world.pass_time(minutes=5)
    place.world.edit(pull, edited, "@agent why 3?")
    found = [one for one in await told(place, Looking(place.rest, place.us)) if isinstance(one, ReviewSaid)]
    assert [(one.body, one.inline is None) for one in found] == [
        ("First.", True),
        ("Why 3?", False),
        ("Second.", True),
    ]


async def test_a_deleted_account_and_a_removed_label_are_no_trouble(place: Place) -> None:
    world = place.world
    thread = world.issue(place.repo, title="T", body="B", by="stranger")
    world.labelled(thread, LABEL, by="somebody")
    world.said(thread, "@agent go", by="somebody")
    world.leave("somebody")
    found = await told(place, Looking(place.rest, place.us))
    assert [one.sender.login for one in found] == ["ghost", "ghost"]
    await world.unlabel(thread, LABEL, by="maintainer")
    assert [type(one) for one in await told(place, Looking(place.rest, place.us))] == [CommentMade]


async def test_where_an_app_is_installed_later_is_seen_too(place: Place) -> None:
    app = place.world.app("later", PERMISSIONS)
    rest = Rest(access(app), place.world.api_url, None, QUICK)
    at_each_look, seldom = (Looking(rest, place.us, good_for=timedelta(seconds=s)) for s in (0, 600))
    assert (await at_each_look.places.listed(), await seldom.places.listed()) == ((), ())
    place.world.install(app, place.repo)  # a list without any is good for nothing
    assert [[one.repo for one in await who.places.listed()] for who in (at_each_look, seldom)] == [
        [SAMPLE]
    ] * 2
    place.world.install(app, place.world.repository("acme/other", {"x": "y"}))
    assert [len(await who.places.listed()) for who in (at_each_look, seldom)] == [2, 1]
    await rest.aclose()


async def test_a_token_looks_where_it_is_told_to(place: Place) -> None:
    rest = with_token(place.world, "maintainer")
    other = place.world.repository("acme/other", {"x": "y"})
    (seen,) = await Looking(rest, place.us, [SAMPLE]).places.listed()
    assert (seen.repo, seen.id, seen.installation) == (SAMPLE, place.repo.id, None)
    both = await Looking(rest, place.us, [SAMPLE, Repo(owner="acme", name="other")]).places.listed()
    assert [one.id for one in both] == [place.repo.id, other.id]
    assert await Looking(rest, place.us).places.listed() == ()
    await rest.aclose()


async def test_an_installations_token_that_is_given_as_a_plain_one_knows_its_own_comments(
    place: Place,
) -> None:
    given = TokenAccess(SecretStr((await place.rest.credentials(SAMPLE)).token))
    thread = place.world.issue(place.repo, title="T", body="B", by="stranger")
    place.world.said(thread, "<!-- patchwright:ours -->\nDone.", by="patchwright[bot]")
    place.world.said(thread, "<!-- patchwright:forged -->\nDone.", by="stranger")
    async with contextlib.aclosing(Rest(given, place.world.api_url, None, QUICK)) as rest:
        with pytest.raises(Forbidden):  # by the way that a person's token takes
            await rest.get(dict[str, object], SAMPLE, "user")
        looking = Looking(rest, Identity(rest, GraphQL(rest, place.world.graphql_url)), [SAMPLE])
        (seen,) = await looking.places.listed()
        found = await looking.look(seen, place.world.now() - timedelta(days=3), "", LABEL)
    assert found is not None and found.ours == {"ours": "Done."}


async def test_a_rate_limit_is_waited_out(place: Place) -> None:
    place.world.labelled(
        place.world.issue(place.repo, title="T", body="B", by="stranger"), LABEL, by="maintainer"
    )
    place.world.refuse_next("GET", "/app/installations", status=429, headers={"retry-after": "3"})
    running = asyncio.create_task(place.looker().run())
    await asyncio.sleep(1.5)
    assert await place.open() == set()
    async with asyncio.timeout(10):
        while not await place.open():
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("code", "fine"), [(200, True), (202, True), (304, True), (0, False), (401, False), (503, False)]
)
async def test_an_attempt_arrived_when_it_was_answered_well(code: int, fine: bool) -> None:
    async with World() as world:
        at = world.now()
    made = Attempt(id=1, guid="g", delivered_at=at, status_code=code, event="issues", action=None)
    assert made.fine is fine


async def test_a_new_worker_knows_what_the_last_one_has_read(place: Place) -> None:
    world = place.world
    thread = world.issue(place.repo, title="T", body="B", by="stranger")
    lost = await world.label(thread, "fix-me", by="maintainer")
    world.pass_time(seconds=30)
    first = Redelivery(place.rest, AppWebhook(), memory=place.lookout, clock=world.now)
    assert await first.ask_again() == 0
    world.pass_time(hours=1)
    later = await world.comment(thread, "Hello.", by="stranger")
    assert await first.ask_again() == 1
    second = Redelivery(place.rest, AppWebhook(), memory=place.lookout, clock=world.now)
    kept = (await place.lookout.recall("app/hook/deliveries") or b"").decode()
    assert lost.guid in kept and later.guid in kept and '"asked":1' in kept
    world.pass_time(minutes=3)
    assert await second.ask_again() == 2


async def test_a_token_that_was_revoked_is_minted_anew(place: Place) -> None:
    looking = Looking(place.rest, place.us)
    await told(place, looking)
    place.world.expire_tokens()
    with pytest.raises(Unauthorized):
        await told(place, looking)
    assert await told(place, looking) == []


async def test_what_has_ended_while_its_job_waits_is_told_as_its_delivery_would_have(place: Place) -> None:
    world = place.world
    closed, moved, away, stays, said = (
        world.issue(place.repo, title=name, body="B", by="stranger")
        for name in ("closed", "moved", "away", "stays", "said")
    )
    for thread in (closed, moved, away, stays):
        await place.desk.take(read_as(await world.label(thread, LABEL, by="maintainer")))
    await place.desk.take(read_as(await world.comment(said, "@agent mend it", by="maintainer")))
    assert len(await place.open()) == 5
    world.close(closed)
    ended = await world.unlabel(away, LABEL, by="maintainer")
    del place.repo.threads[moved.number]
    (repo,) = await Looking(place.rest, place.us).places.listed()
    told = await Looking(place.rest, place.us).ended(repo, await place.desk.at_work(SAMPLE))
    by_number = {one.number: one for one in told}
    assert by_number.keys() == {closed.number, moved.number, away.number}
    first, second = by_number[closed.number], by_number[moved.number]
    assert isinstance(first, Closed) and isinstance(second, Closed)
    assert (first.how, second.how) == ("closed", "deleted")
    assert by_number[away.number] == read_as(ended)


async def test_a_look_ends_what_nobody_wants_any_more(place: Place) -> None:
    thread = place.world.issue(place.repo, title="T", body="B", by="stranger")
    await place.desk.take(read_as(await place.world.label(thread, LABEL, by="maintainer")))
    looker = place.looker()
    await looker.look()
    assert len(await place.open()) == 1
    place.world.close(thread)
    await looker.look()
    assert await place.open() == set()


async def test_what_is_asked_for_in_a_closed_thread_is_told_and_what_it_was_closed_upon_is_not(
    place: Place,
) -> None:
    world = place.world
    thread = world.issue(place.repo, title="T", body="B", by="stranger")
    world.labelled(thread, LABEL, by="maintainer")
    world.said(thread, "@agent mend it", by="maintainer")
    world.pass_time(seconds=2)
    world.close(thread)
    looking = Looking(place.rest, place.us)
    assert await told(place, looking) == []
    world.pass_time(seconds=2)
    world.said(thread, "@agent retry", by="maintainer")
    (found,) = await told(place, looking)
    assert isinstance(found, CommentMade) and found.body == "@agent retry"
    await world.unlabel(thread, LABEL, by="maintainer")
    world.labelled(thread, LABEL, by="maintainer")
    assert [type(one) for one in await told(place, looking)] == [CommentMade, Labelled]


async def test_a_stop_that_only_a_look_tells_of_is_answered(place: Place) -> None:
    thread = place.world.issue(place.repo, title="T", body="B", by="stranger")
    place.world.said(thread, "@agent stop", by="maintainer")
    await place.looker().look()
    assert "There is nothing to stop" in thread.comments[-1].body
