"""Who may see a run, and who may press its buttons."""

import re

import httpx
import pytest

from bot.glance import Glance
from bot.page.gate import KNOWN_SECONDS, MOST_ASKED, Gate
from bot.page.people import People, Place
from bot.pressed import EVENT, Pressed
from bot.redis.inbox import Letter
from bot.redis.sessions import Person, Session
from resolver.domain import JobId, Repo, User
from tests.page.conftest import Room
from tests.resolver.seen_runs import started, whole_run

pytestmark = pytest.mark.redis

RUN, SECRET_RUN = "acme-calc-1-x", "umbrella-vault-3-x"


async def letters(room: Room) -> list[Letter]:
    if not await room.inbox.size():
        return []
    return [one for one in await room.inbox.take("a-test") if one.event == EVENT]


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def once_of(page: str) -> str:
    found = re.search(r'name="once" value="([0-9a-f]{12})"', page)
    assert found is not None
    return found[1]


async def pressed(
    browser: httpx.AsyncClient, verb: str, run: str = RUN, csrf: str | None = None, once: str = "0" * 12
) -> httpx.Response:
    csrf = csrf_of((await browser.get("/")).text) if csrf is None else csrf
    return await browser.post(f"/runs/{run}/{verb}", data={"csrf": csrf, "once": once})


@pytest.fixture
async def vault(room: Room) -> Room:
    """Beside acme/calc a private repository that only its owner reads, with a run."""
    other = room.world.repository("umbrella/vault", {"a": "1"}, permissions={"owner": "admin"}, private=True)
    room.world.install(room.login.app, other)
    await room.ran(SECRET_RUN, *whole_run(), repo="umbrella/vault", number=3)
    await room.ran(RUN, *whole_run())
    return room


async def test_a_run_is_shown_to_those_who_may_read_its_repository(vault: Room) -> None:
    seen = {}
    for person in ("maintainer", "reader", "owner", "stranger"):
        browser = await vault.person(person)
        for run in (RUN, SECRET_RUN):
            seen[person, run] = (await browser.get(f"/runs/{run}")).status_code
        listed = (await browser.get("/")).text
        assert (RUN in listed, SECRET_RUN in listed) == tuple(
            seen[person, run] == 200 for run in (RUN, SECRET_RUN)
        )
        assert ("umbrella" in listed) == (person == "owner")
    assert [who for who, status in seen.items() if status == 200] == [
        ("maintainer", RUN),
        ("reader", RUN),
        ("owner", SECRET_RUN),
    ]
    assert {status for status in seen.values() if status != 200} == {404}


async def test_a_run_that_one_may_not_see_is_answered_as_one_that_does_not_exist(vault: Room) -> None:
    browser = await vault.person("stranger")
    for path in ("", "/events"):
        hidden = await browser.get(f"/runs/{SECRET_RUN}{path}")
        unknown = await browser.get(f"/runs/umbrella-vault-3-nothing{path}")
        assert hidden.status_code == unknown.status_code == 404
        assert hidden.text == unknown.text
        assert dict(hidden.headers) | {"date": ""} == dict(unknown.headers) | {"date": ""}
    csrf = csrf_of((await browser.get("/")).text)
    hidden = await pressed(browser, "stop", SECRET_RUN, csrf)
    assert (hidden.status_code, hidden.text) == (404, unknown.text)


async def test_a_public_repositorys_run_takes_a_log_in_too(room: Room) -> None:
    room.repo.private = False
    await room.ran(RUN, *whole_run())
    nobody = room.browser()
    assert (await nobody.get(f"/runs/{RUN}")).headers["location"].startswith("/login")
    assert (
        await nobody.get(f"/runs/{RUN}/events", headers={"accept": "text/event-stream"})
    ).status_code == 401
    somebody = await room.person("stranger")
    assert (await somebody.get(f"/runs/{RUN}")).status_code == 200


async def test_who_may_write_has_a_button_that_takes_the_road_of_a_comment(room: Room) -> None:
    async with room.running(RUN, number=5) as worker:
        await worker.write(started())
        browser = await room.person("maintainer")
        page = (await browser.get(f"/runs/{RUN}")).text
        assert ("Stop this run" in page, "Try again" in page) == (True, False)
        answer = await pressed(browser, "stop")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{RUN}?told=stop")
        assert "It is asked to stop." in (await browser.get(answer.headers["location"])).text
    (letter,) = await letters(room)
    found = Pressed.model_validate_json(letter.body)
    maintainer = room.world.user("maintainer")
    assert (found.verb, found.repo, found.number) == ("stop", Repo(owner="acme", name="calc"), 5)
    assert found.by == User(id=maintainer.id, login="maintainer")


async def test_a_button_that_is_pressed_twice_asks_for_one_run(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    browser = await room.person("maintainer")
    page, another = [(await browser.get(f"/runs/{RUN}")).text for _ in range(2)]
    for shown in (page, page, another):
        assert (await pressed(browser, "retry", once=once_of(shown))).status_code == 303
    ids = [Pressed.model_validate_json(letter.body).id for letter in await letters(room)]
    assert (ids[0] == ids[-1], len(set(ids))) == (False, 2)  # who loads the page anew may mean another one


@pytest.mark.parametrize("once", ["", "x" * 12, "0" * 11, "0" * 13, "../../../../"])
async def test_a_press_without_its_pages_mark_is_refused(room: Room, once: str) -> None:
    await room.ran(RUN, *whole_run())
    answer = await pressed(await room.operator(), "retry", once=once)
    assert (answer.status_code, await letters(room)) == (400, [])


async def test_an_ended_run_can_be_tried_again_by_the_operator_for_whom_nobody_is_asked(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    browser = await room.operator()
    page = (await browser.get(f"/runs/{RUN}")).text
    assert ("Stop this run" in page, "Try again" in page) == (False, True)
    answer = await pressed(browser, "retry")
    assert answer.headers["location"] == f"/runs/{RUN}?told=retry"
    (letter,) = await letters(room)
    found = Pressed.model_validate_json(letter.body)
    assert (found.verb, found.by) == ("retry", None)
    wish = found.wish()
    assert (wish.asked.verb, wish.job.requester, wish.job.command) == ("retry", None, "retry")


async def test_who_may_only_read_has_no_button_and_is_refused_without_one(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    browser = await room.person("reader")
    page = (await browser.get(f"/runs/{RUN}")).text
    assert ("Stop this run" in page, "Try again" in page) == (False, False)
    for verb in ("stop", "retry"):
        answer = await pressed(browser, verb)
        assert (answer.status_code, "You may only read here" in answer.text) == (403, True)
    assert await letters(room) == []


async def test_who_has_just_lost_the_right_to_write_is_refused_though_the_page_had_the_button(
    room: Room,
) -> None:
    await room.ran(RUN, *whole_run())
    browser = await room.person("maintainer")
    assert "Try again" in (await browser.get(f"/runs/{RUN}")).text
    room.world.permit(room.repo, "maintainer", "read")
    assert (await pressed(browser, "retry")).status_code == 403
    assert await letters(room) == []


async def test_a_forged_press_is_refused_and_reaches_nobody(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    browser, other = await room.person("maintainer"), await room.operator()
    theirs, mine = [csrf_of((await one.get("/")).text) for one in (other, browser)]
    for forged in ("", "x", "ä", theirs, mine[:-1], mine.upper()):
        answer = await pressed(browser, "stop", csrf=forged)
        assert (answer.status_code, "Not from this page" in answer.text) == (403, True)
    for headers in ({"origin": "https://evil.test"}, {"sec-fetch-site": "same-site"}, {"origin": "null"}):
        form = {"csrf": mine, "once": "0" * 12}
        answer = await browser.post(f"/runs/{RUN}/stop", data=form, headers=headers)
        assert answer.status_code == 403
    assert (await browser.get(f"/runs/{RUN}/stop")).status_code == 405
    assert (await pressed(browser, "delete")).status_code == 404
    assert await letters(room) == []
    assert (await pressed(browser, "stop", csrf=mine)).status_code == 303  # the positive control


async def test_a_delivery_from_outside_is_no_button(room: Room) -> None:
    from tests.bot.deliveries import signed

    headers, body = signed(EVENT, b"{}", secret="story-webhook-secret")
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{room.url}/webhook", headers=headers, content=body)
    assert answer.json()["status"] == "ignored"
    assert await letters(room) == []


async def test_when_github_does_not_answer_nobody_is_believed(room: Room) -> None:
    browser = await room.person("reader")
    await room.ran(RUN, *whole_run())
    room.world.refuse_next("GET", "/repos/acme/calc", status=500, times=2)
    for path in ("/", f"/runs/{RUN}"):
        answer = await browser.get(path)
        assert (answer.status_code, "GitHub does not answer" in answer.text) == (502, True)
    assert (await browser.get(f"/runs/{RUN}")).status_code == 200


async def test_github_is_asked_once_for_many_views(room: Room) -> None:
    await room.ran(RUN, *whole_run())
    browser = await room.person("reader")
    for _ in range(5):
        assert (await browser.get(f"/runs/{RUN}")).status_code == 200
    room.world.refuse_next("GET", "/repos/acme/calc", status=500)
    assert (await browser.get("/")).status_code == 200


async def test_more_repositories_than_are_asked_about_at_once_come_with_the_next_view(room: Room) -> None:
    for number in range(MOST_ASKED + 5):
        repo = room.world.repository(f"acme/r{number}", permissions={"reader": "read"}, private=True)
        room.world.install(room.login.app, repo)
        run = JobId(f"acme-r{number}-1-x")
        await room.runs.put(
            Glance(run=run, state="working", repository=f"acme/r{number}", number=1, began=number)
        )
    room.world.sit_down("reader")
    browser = await room.person("reader")  # which shows the list for the first time
    second = (await browser.get("/")).text
    assert (f"{MOST_ASKED + 5} runs" in second, "not asked yet" in second) == (True, False)
    other = await room.person("stranger")
    assert "0 runs" in (await other.get("/")).text


async def test_what_was_not_asked_about_yet_is_said(room: Room) -> None:
    for number in range(MOST_ASKED + 5):
        await room.runs.put(
            Glance(
                run=JobId(f"x-{number}"),
                state="working",
                repository=f"acme/r{number}",
                number=1,
                began=number,
            )
        )
    room.world.sit_down("stranger")
    browser = room.browser()
    first = await browser.get("/login/github", follow_redirects=True)
    first = await browser.post(str(first.url), follow_redirects=True)
    assert "GitHub was not asked yet about 5 more repositories" in first.text


async def test_who_has_lost_their_access_sees_nothing_more_when_minutes_have_passed(room: Room) -> None:
    """However many repositories there are: what was not asked about again is not shown."""
    names = [f"acme/r{number}" for number in range(MOST_ASKED + 5)]
    repositories = [
        room.world.repository(name, permissions={"reader": "read"}, private=True) for name in names
    ]
    room.world.install(room.login.app, *repositories)
    passed = 0.0
    reader = Person(login="reader", id=room.world.user("reader").id)
    session = Session(reader, room.world.token("reader"), csrf="", expires=float("inf"))
    people = People(Place(room.world.server_url, room.world.api_url, "id", "secret"))
    gate = Gate(people, lambda: passed)
    await gate.readable(session, names)
    assert await gate.readable(session, names) == set(names)
    for repository in repositories:
        room.world.permit(repository, "reader", "none")
    for _ in range(3):
        passed += KNOWN_SECONDS + 1
        assert await gate.readable(session, names) == set()
    await people.close()
