"""Logging in: by GitHub, with the operator's token, and everything that looks like it."""

import asyncio
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from bot.page.login import MOST_WRONG
from bot.page.web import inside
from bot.redis.client import redis_client
from bot.redis.sessions import SESSION_SECONDS, Person, Sessions
from tests.page.conftest import OPERATOR, Room

pytestmark = pytest.mark.redis

RUN = "/runs/acme-calc-1-x"


async def begun(room: Room, browser: httpx.AsyncClient, **query: str) -> str:
    """The address to which GitHub sends the browser back."""
    room.world.sit_down("maintainer")
    there = await browser.get("/login/github", params=query)
    assert there.status_code == 303
    async with httpx.AsyncClient(trust_env=False) as at_github:
        back = await at_github.post(there.headers["location"])
    return str(back.headers["location"])


async def test_github_says_who_somebody_is_and_they_come_back_to_where_they_wanted(room: Room) -> None:
    browser = room.browser()
    asked = await browser.get(f"{RUN}?told=stop")
    assert (asked.status_code, asked.headers["location"]) == (
        303,
        "/login?back_to=%2Fruns%2Facme-calc-1-x%3Ftold%3Dstop",
    )
    page = await browser.get(asked.headers["location"])
    assert 'href="/login/github?back_to=%2Fruns%2Facme-calc-1-x%3Ftold%3Dstop"' in page.text
    answer = await browser.get(await begun(room, browser, back_to=f"{RUN}?told=stop"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"{RUN}?told=stop")
    (cookie,) = [c for c in answer.headers.get_list("set-cookie") if c.startswith("patchwright-session=")]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert '<span class="who">maintainer</span>' in (await browser.get("/")).text


async def test_who_asks_by_another_name_of_ours_logs_in_where_github_sends_them_back(room: Room) -> None:
    home = httpx.URL(room.url)
    elsewhere = home.copy_with(host="localhost")
    async with httpx.AsyncClient(trust_env=False, headers={"host": elsewhere.netloc.decode()}) as browser:
        led = await browser.get(home.join("/login/github?back_to=//evil.test/"))
        assert (led.status_code, led.cookies) == (303, httpx.Cookies())
        assert led.headers["location"] == f"{room.url}/login/github?back_to=%2F&led=1"
        # A proxy that tells another host than the browser sees leads nobody in circles.
        there = await browser.get(led.headers["location"])
        assert there.headers["location"].startswith(room.world.server_url)
    room.world.sit_down("maintainer")
    person = room.browser()
    back = await begun(room, person, back_to=RUN, led="1")
    assert (await person.get(back)).headers["location"] == RUN


async def test_a_state_is_good_once_and_in_the_browser_that_began(room: Room) -> None:
    browser, other = room.browser(), room.browser()
    back = await begun(room, browser)
    stolen = await other.get(back)  # somebody sends a victim the address that is meant for them
    assert (stolen.status_code, "Begin again" in stolen.text) == (400, True)
    late = await browser.get(back)
    assert (late.status_code, "Begin again" in late.text) == (400, True)
    good = await begun(room, browser)
    assert (await browser.get(good)).status_code == 303
    assert (await browser.get(good)).status_code == 400
    assert (await other.get("/login/callback")).status_code == 400


async def test_a_code_that_github_does_not_take_logs_nobody_in(room: Room) -> None:
    browser = room.browser()
    back = urlsplit(await begun(room, browser))
    state = parse_qs(back.query)["state"][0]
    answer = await browser.get("/login/callback", params={"code": "made-up", "state": state})
    assert (answer.status_code, "Begin again" in answer.text) == (400, True)
    assert (await browser.get("/")).status_code == 303


async def test_whoever_cancels_at_github_reads_that_and_may_begin_again(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    browser = room.browser()
    for error, sentence, told in (
        ("access_denied", "You have not let GitHub tell who you are", False),
        ("application_suspended", "GitHub has refused this log-in", True),
    ):
        there = await browser.get("/login/github", params={"back_to": RUN})
        state = parse_qs(urlsplit(there.headers["location"]).query)["state"][0]
        caplog.clear()
        # Source: docs.github.com, "Troubleshooting authorization request errors"
        answer = await browser.get("/login/callback", params={"error": error, "state": state})
        assert (error, answer.status_code, sentence in answer.text) == (error, 400, True)
        assert "/login/github?back_to=%2Fruns%2Facme-calc-1-x" in answer.text
        assert (error in str([vars(one) for one in caplog.records if one.levelname == "WARNING"])) == told
        again = await browser.get("/login/callback", params={"error": error, "state": state})
        assert "fits no log-in" in again.text  # a link that somebody sends says nothing of the visitor


async def test_when_github_is_down_nobody_is_logged_in_and_that_is_said(room: Room) -> None:
    browser = room.browser()
    back = await begun(room, browser)
    room.world.refuse_next("POST", "/login/oauth/access_token", status=503)
    answer = await browser.get(back)
    assert (answer.status_code, "GitHub does not answer" in answer.text) == (502, True)


@pytest.mark.parametrize(
    "path",
    ["//evil.test/", "https://evil.test/", "/\\evil.test", "\\\\evil.test", "javascript:alert(1)", "/\r\nx: y",
     "/ä", "", "/" + "a" * 400, "/%0d%0aset-cookie:x=y\n"],
)  # fmt: skip
def test_nobody_is_led_elsewhere(path: str) -> None:
    assert inside(path) == "/"


async def test_after_logging_in_nobody_is_led_elsewhere(room: Room) -> None:
    assert inside("/runs/a?told=stop") == "/runs/a?told=stop"
    browser = room.browser()
    entered = await browser.post("/login", data={"token": OPERATOR, "back_to": "//evil.test/"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    back = await browser.get(await begun(room, browser, back_to="https://evil.test/"))
    assert back.headers["location"] == "/"


async def test_a_wrong_token_opens_nothing(room: Room) -> None:
    browser = room.browser()
    tokens = ("", "wrong", OPERATOR[:-1], OPERATOR + "x")
    for answer in await asyncio.gather(*(browser.post("/login", data={"token": token}) for token in tokens)):
        assert (answer.status_code, "That is not the operator" in answer.text) == (401, True)
    assert (await browser.get("/")).status_code == 303


async def test_guesses_however_many_do_not_keep_the_operator_out(room: Room) -> None:
    guessing = True

    seen: list[int] = []

    async def guess() -> None:
        browser = room.browser()
        while guessing:
            seen.append((await browser.post("/login", data={"token": "wrong"})).status_code)

    async with asyncio.TaskGroup() as guesses, asyncio.timeout(60):
        for _ in range(MOST_WRONG + 1):
            guesses.create_task(guess())
        while 429 not in seen:  # so many are refused at once
            await asyncio.sleep(0.01)
        try:
            assert (await (await room.operator()).get("/")).status_code == 200
        finally:
            guessing = False
    assert set(seen) == {401, 429}


async def test_another_sites_form_logs_nobody_in_or_out(room: Room) -> None:
    browser = room.browser()
    for headers in ({"origin": "https://evil.test"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        answer = await browser.post("/login", data={"token": OPERATOR}, headers=headers)
        assert (answer.status_code, "Not from this page" in answer.text) == (403, True)
    operator = await room.operator()
    assert (await operator.post("/logout", data={"csrf": "guessed"})).status_code == 403
    assert (await operator.get("/")).status_code == 200


async def test_logging_out_ends_it_whatever_the_browser_keeps(room: Room) -> None:
    browser = await room.person("maintainer")
    cookie = browser.cookies["patchwright-session"]
    sessions = Sessions(room.redis, operator_token=OPERATOR)
    session = await sessions.find(cookie)
    await sessions.close()
    assert session is not None
    answer = await browser.post("/logout", data={"csrf": session.csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    kept = room.browser()
    kept.cookies.set("patchwright-session", cookie)
    assert (await kept.get("/")).status_code == 303


async def log_out(room: Room, browser: httpx.AsyncClient) -> httpx.Response:
    sessions = Sessions(room.redis, operator_token=OPERATOR)
    session = await sessions.find(browser.cookies["patchwright-session"])
    await sessions.close()
    assert session is not None
    return await browser.post("/logout", data={"csrf": session.csrf})


async def works(room: Room, token: str) -> bool:
    async with httpx.AsyncClient(base_url=room.world.api_url, trust_env=False) as github:
        answer = await github.get("/user", headers={"authorization": f"Bearer {token}"})
    return answer.status_code == 200


async def test_logging_out_ends_the_token_that_github_gave_and_no_other(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    browser, elsewhere = await room.person("maintainer"), await room.person("maintainer")
    first, second = [value for value in room.world.tokens if value.startswith("ghu_")]
    assert await works(room, first)
    assert (await log_out(room, browser)).status_code == 303
    assert (await works(room, first), await works(room, second)) == (False, True)
    assert (await elsewhere.get("/")).status_code == 200
    assert (await log_out(room, await room.operator())).status_code == 303  # who has none
    assert "revoked" not in caplog.text


async def test_logging_out_waits_for_no_github_that_is_down_or_silent(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    faults: list[Callable[[], None]] = [
        lambda: room.world.refuse_next("DELETE", "/token", status=503),
        lambda: room.world.lose_next_request("DELETE", "/token"),
        lambda: room.world.before_next(
            "DELETE", "/token", answers.wait
        ),  # it answers when they are logged out
    ]
    try:
        for fault in faults:
            browser = await room.person("maintainer")
            fault()
            caplog.clear()
            answer = await log_out(room, browser)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
            assert (await browser.get("/")).status_code == 303
            (told,) = [one for one in caplog.records if one.getMessage() == "token was not revoked"]
            assert (told.levelname, vars(told)["login"]) == ("WARNING", "maintainer")
            assert not any(token in str(vars(told)) for token in room.world.tokens)
    finally:
        answers.set()


async def test_an_expired_log_in_is_asked_again_and_a_button_says_so(room: Room) -> None:
    sessions = Sessions(room.redis, seconds=0.05, operator_token=OPERATOR)
    browser = room.browser()
    browser.cookies.set("patchwright-session", await sessions.open(Person(login="operator", id=None)))
    await sessions.close()
    async with httpx.AsyncClient(trust_env=False) as wait, asyncio.timeout(60):  # until Redis has let it go
        while (await browser.get("/")).status_code == 200:
            await wait.get(f"{room.url}/healthz")
    led = (await browser.get("/")).headers["location"]
    assert led == "/login?back_to=%2F&why=ended"
    asked = await browser.get(led)
    assert (asked.status_code, "Your log-in has ended" in asked.text) == (200, True)
    strange = await browser.get("/login?why=wrong_token")
    assert (strange.status_code, 'role="alert"' in strange.text) == (200, False)
    pressed = await browser.post(f"{RUN}/stop", data={"csrf": "x"})
    assert (pressed.status_code, "Your log-in has ended" in pressed.text) == (401, True)
    watched = await browser.get(f"{RUN}/events", headers={"accept": "text/event-stream"})
    assert watched.status_code == 401


async def test_a_browser_keeps_its_cookie_longer_than_the_log_in_so_that_its_end_can_be_told(
    room: Room,
) -> None:
    answer = await room.browser().post("/login", data={"token": OPERATOR})
    (cookie,) = answer.headers.get_list("set-cookie")
    (seconds,) = [part.removeprefix("Max-Age=") for part in cookie.split("; ") if part.startswith("Max-Age=")]
    assert int(seconds) > SESSION_SECONDS
    left = await log_out(room, browser := await room.operator())
    assert left.headers["location"] == "/login"
    assert (await browser.get("/")).headers["location"] == "/login?back_to=%2F"  # who left knows it


async def test_the_operator_is_out_when_the_token_is_another_one_and_nobody_else_is(room: Room) -> None:
    operator, person = await room.operator(), await room.person("maintainer")
    cookies = [browser.cookies["patchwright-session"] for browser in (operator, person)]
    seen = {}
    for token in (OPERATOR, f"{OPERATOR}-2", ""):
        sessions = Sessions(room.redis, operator_token=token)
        seen[token] = [await sessions.find(cookie) is not None for cookie in cookies]
        await sessions.close()
    assert seen == {OPERATOR: [True, True], f"{OPERATOR}-2": [False, True], "": [False, True]}
    other = Sessions(room.redis, operator_token="of-another-day")
    operator.cookies.set("patchwright-session", await other.open(Person(login="operator", id=None)))
    await other.close()
    led = await operator.get("/")  # as after a start with another token
    assert led.headers["location"] == "/login?back_to=%2F&why=ended"


async def test_a_session_is_a_new_one_with_each_log_in(room: Room) -> None:
    browser = room.browser()
    browser.cookies.set("patchwright-session", "chosen-by-somebody-else")
    entered = await browser.post("/login", data={"token": OPERATOR})
    assert "patchwright-session=chosen" not in str(entered.headers.get_list("set-cookie"))
    stranger = room.browser()
    stranger.cookies.set("patchwright-session", "chosen-by-somebody-else")
    assert (await stranger.get("/")).status_code == 303


async def test_redis_holds_nothing_with_which_to_be_somebody(room: Room) -> None:
    browser = await room.person("maintainer")
    await room.operator()
    await browser.get("/login/github")  # and one that is under way
    cookie = browser.cookies["patchwright-session"]
    (token,) = [value for value in room.world.tokens if value.startswith("ghu_")]
    redis = redis_client(room.redis)
    stored = b""
    async for key in redis.scan_iter("patchwright:*"):
        stored += key + (await redis.dump(key) or b"")
    await redis.aclose(close_connection_pool=True)
    assert b"maintainer" in stored  # the positive control: this is where sessions are
    for value in (cookie, token, browser.cookies["patchwright-login"], OPERATOR):
        assert value.encode() not in stored


async def test_a_browser_of_another_person_sees_nothing_of_the_first(room: Room) -> None:
    first, second = await room.person("maintainer"), await room.person("reader")
    assert '<span class="who">maintainer</span>' in (await first.get("/")).text
    assert '<span class="who">reader</span>' in (await second.get("/")).text


async def test_a_token_that_github_took_back_is_a_log_in_that_ended(room: Room) -> None:
    browser = await room.person("maintainer")
    await room.ran("acme-calc-1-x")  # nothing of its repository is known of them yet
    room.world.expire_tokens()
    answer = await browser.get(RUN)
    assert (answer.status_code, "Log in first" in answer.text) == (401, True)
    assert (await browser.get("/")).status_code == 303
