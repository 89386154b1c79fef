"""One repository, installation, thread or webhook that cannot be looked at hides nothing of the others."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.reconcile.looking import Looking
from bot.reconcile.reconcile import Reconcile
from bot.webhooks.delivery import read
from bot.webhooks.triggers import wish_for
from demo.world import Hook, Issue, Repository
from resolver.domain import Repo
from resolver.errors import RateLimited
from tests.bot.reconcile.lookouts import AT_ONCE, NOBODY, SAMPLE, Place, a_place, with_token

pytestmark = pytest.mark.redis


@pytest.fixture
async def place(short_tmp: Path) -> AsyncIterator[Place]:
    async with a_place(short_tmp) as place:
        yield place


def labelled(place: Place, repo: Repository) -> Issue:
    thread = place.world.issue(repo, title="T", body="B", by="stranger")
    place.world.labelled(thread, "fix-me", by="maintainer")
    return thread


async def names(place: Place) -> set[str]:
    """The repositories in which something was found."""
    return {job.split("-")[1] for job in await place.open()}


def another(place: Place, name: str = "else/where") -> Repository:
    """A repository of another installation."""
    repo = place.world.repository(name, {"x": "y"}, permissions={"maintainer": "write"})
    place.world.install(place.app, repo)
    return repo


async def test_a_repository_that_a_token_cannot_see_hides_no_other(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.aclosing(with_token(place.world, "maintainer")) as rest:
        looking = Looking(rest, place.us, [Repo(owner="acme", name="gone"), SAMPLE])
        assert [one.repo for one in await looking.places.listed()] == [SAMPLE]
    assert [getattr(one, "place", None) for one in caplog.records] == ["acme/gone"]


async def test_an_installation_whose_token_is_refused_hides_no_other(place: Place) -> None:
    repo = another(place)
    for one in (place.repo, repo):
        labelled(place, one)
    first, _ = await place.rest.get_all(dict[str, object], None, "app", "installations")
    path = f"/app/installations/{first['id']}/access_tokens"
    message = {"message": "The permissions requested are not granted to this installation."}
    place.world.refuse_next("POST", path, status=422, body=message, times=9)
    await place.looker().look()
    assert await names(place) == {"where"}


async def test_what_could_not_be_listed_for_a_moment_is_listed_by_the_next_look(place: Place) -> None:
    labelled(place, place.repo)
    place.world.refuse_next("GET", "/installation/repositories", status=502, times=4)
    looker = place.looker()
    await looker.look()
    assert await names(place) == set()
    await looker.look()
    assert await names(place) == {"sample"}


@pytest.mark.parametrize("status", [404, 502])
async def test_a_repository_that_keeps_failing_hides_none_behind_it(place: Place, status: int) -> None:
    labelled(place, another(place))
    place.world.refuse_next("GET", "/acme/sample/issues", status=status, times=99)
    await place.looker().look()
    assert await names(place) == {"where"}


async def test_what_failed_for_a_moment_is_looked_at_again_before_all_are(place: Place) -> None:
    labelled(place, place.repo)
    place.world.refuse_next("GET", "/acme/sample/issues", status=502, times=4)
    looker = place.looker(replace(AT_ONCE, all=600))
    await looker.look()
    assert await names(place) == set()
    await looker.look()
    assert await names(place) == {"sample"}


@pytest.mark.parametrize("path", ["issues/{}/events", "pulls/{}/reviews"])
async def test_a_thread_that_keeps_failing_hides_none_beside_it(place: Place, path: str) -> None:
    threads: list[Issue] = []
    for number in range(3):
        place.repo.commit(f"topic-{number}", {"a.txt": f"{number}\n"})
        pull = place.world.pull(place.repo, f"topic-{number}", by="stranger")
        place.world.labelled(pull, "fix-me", by="maintainer")
        place.world.reviewed(pull, body="@agent mend it", by="maintainer")
        threads.append(pull)
    failing = threads[1].number
    place.world.refuse_next("GET", path.format(failing), status=502, times=4)
    looker = place.looker(replace(AT_ONCE, all=600))
    await looker.look()
    asked = Counter(int(job.split("-")[2]) for job in await place.open())
    assert asked == {thread.number: 2 - (thread.number == failing) for thread in threads}
    await looker.look()
    assert len(await place.open()) == 6


async def test_a_thread_with_a_job_that_keeps_failing_does_not_hide_what_else_has_ended(place: Place) -> None:
    threads = [place.world.issue(place.repo, title="T", body="B", by="stranger") for _ in range(3)]
    for thread in threads:
        told = await place.world.label(thread, "fix-me", by="maintainer")
        await place.desk.take(read(told.event, told.body))
    for thread in threads:
        place.world.close(thread)
    place.world.refuse_next("GET", f"/issues/{threads[1].number}", status=502, times=4)
    looker = place.looker()
    await looker.look()
    assert [int(job.split("-")[2]) for job in await place.open()] == [threads[1].number]
    await looker.look()
    assert await place.open() == set()


async def test_an_installation_that_has_used_up_its_requests_hides_no_other(place: Place) -> None:
    labelled(place, another(place))
    limited = {"status": 429, "headers": {"retry-after": "3600"}, "times": 9}
    place.world.refuse_next("GET", "/acme/sample/issues", **limited)
    looker = place.looker()
    await looker.look()
    assert await names(place) == {"where"}
    place.world.refuse_next("GET", "/else/where/issues", **limited)
    with pytest.raises(RateLimited):  # nobody may be asked: it is waited for
        await looker.look()


async def test_an_answer_that_a_locked_thread_does_not_take_is_done_with_and_hides_nothing_later(
    place: Place,
) -> None:
    locked = place.world.issue(place.repo, title="T", body="B", by="stranger")
    told = await place.world.comment(locked, "@agent help", by="maintainer")
    wish = wish_for(read(told.event, told.body), place.rules)
    assert wish is not None
    place.world.lock(locked)
    place.world.pass_time(minutes=5)
    looker = place.looker()
    await looker.look()
    record = await place.queue.state(wish.job.id)
    assert record is not None and record.state == "ended"
    labelled(place, place.repo)
    await looker.look()
    assert await names(place) == {"sample"}


async def test_a_wish_that_cannot_be_met_for_a_moment_is_met_later_and_hides_no_other(place: Place) -> None:
    asking = place.world.issue(place.repo, title="T", body="B", by="stranger")
    place.world.said(asking, "@agent help", by="maintainer")
    place.world.pass_time(minutes=5)
    labelled(place, place.repo)
    place.world.refuse_next("GET", "/collaborators/maintainer/permission", status=502, times=4)
    looker = place.looker()
    await looker.look()
    assert await names(place) == {"sample"}
    assert len(asking.comments) == 1
    await looker.look()
    assert len(asking.comments) == 2


async def test_a_webhook_that_is_gone_keeps_none_from_being_asked_nor_a_new_one_from_being_found(
    place: Place,
) -> None:
    world, repos = place.world, [place.repo, another(place, "acme/zzz")]
    for repo in repos:
        world.permit(repo, "maintainer", "admin")
    first, second = (world.hook(NOBODY, "s3cret", repo) for repo in repos)
    async with contextlib.aclosing(with_token(world, "maintainer")) as rest:
        looker = Reconcile(
            *(rest, place.us, place.lookout, place.desk, "one"),
            repositories=[SAMPLE, Repo(owner="acme", name="zzz")],
            webhook_url=NOBODY,
            rhythm=AT_ONCE,
            clock=world.now,
        )
        for repo in repos:
            await missed(place, repo)
        await looker.look()
        world.refuse_next("GET", f"/hooks/{first.id}/deliveries", status=404, times=9)
        world.pass_time(minutes=2)
        await looker.look()
        await asked(place, second)
        third = world.hook(NOBODY, "s3cret", place.repo)
        await missed(place, place.repo)
        world.pass_time(minutes=12)
        await looker.look()
        await asked(place, third)


async def missed(place: Place, repo: Repository) -> None:
    """Tell webhooks of a label, in vain."""
    thread = place.world.issue(repo, title="T", body="B", by="stranger")
    await place.world.label(thread, "fix-me", by="maintainer")


async def asked(place: Place, hook: Hook) -> None:
    """Wait until a delivery of this webhook was made again."""
    async with asyncio.timeout(20):
        while hook not in [one.hook for one in place.world.deliveries if one.redelivery]:
            await asyncio.sleep(0.02)
