"""Sign-in with GitHub and the operator token, sign-out, and attacks on both."""

import asyncio
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from patchwright.bot.dashboard.login import MAX_PENDING_WRONG_TOKENS
from patchwright.bot.dashboard.web_requests import safe_redirect_path
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.sessions import SESSION_SECONDS, DashboardUser, Sessions
from tests.bot.dashboard.conftest import OPERATOR, DashboardServer

pytestmark = pytest.mark.redis

RUN = "/runs/acme-calc-1-x"


async def start_sign_in(server: DashboardServer, browser: httpx.AsyncClient, **query: str) -> str:
    """Returns the URL to which GitHub redirects the browser."""
    server.fake_github.sign_in("maintainer")
    there = await browser.get("/login/github", params=query)
    assert there.status_code == 303
    async with httpx.AsyncClient(trust_env=False) as at_github:
        back = await at_github.post(there.headers["location"])
    return str(back.headers["location"])


async def test_sign_in_with_github_returns_to_the_requested_page(server: DashboardServer) -> None:
    browser = server.browser()
    response = await browser.get(f"{RUN}?requested=stop")
    assert (response.status_code, response.headers["location"]) == (
        303,
        "/login?back_to=%2Fruns%2Facme-calc-1-x%3Frequested%3Dstop",
    )
    page = await browser.get(response.headers["location"])
    assert 'href="/login/github?back_to=%2Fruns%2Facme-calc-1-x%3Frequested%3Dstop"' in page.text
    answer = await browser.get(await start_sign_in(server, browser, back_to=f"{RUN}?requested=stop"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"{RUN}?requested=stop")
    (cookie,) = [c for c in answer.headers.get_list("set-cookie") if c.startswith("patchwright-session=")]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert '<span class="user">maintainer</span>' in (await browser.get("/")).text


async def test_sign_in_starts_on_the_public_host(server: DashboardServer) -> None:
    home = httpx.URL(server.url)
    elsewhere = home.copy_with(host="localhost")
    async with httpx.AsyncClient(trust_env=False, headers={"host": elsewhere.netloc.decode()}) as browser:
        led = await browser.get(home.join("/login/github?back_to=//evil.test/"))
        assert (led.status_code, led.cookies) == (303, httpx.Cookies())
        assert led.headers["location"] == f"{server.url}/login/github?back_to=%2F&redirected=1"
        # A proxy that sends another Host than the browser sees does not cause a redirect loop.
        there = await browser.get(led.headers["location"])
        assert there.headers["location"].startswith(server.fake_github.server_url)
    server.fake_github.sign_in("maintainer")
    person = server.browser()
    back = await start_sign_in(server, person, back_to=RUN, redirected="1")
    assert (await person.get(back)).headers["location"] == RUN


async def test_a_state_works_once_and_only_in_its_browser(server: DashboardServer) -> None:
    browser, other = server.browser(), server.browser()
    back = await start_sign_in(server, browser)
    stolen = await other.get(back)  # an attacker sends a victim the attacker's own callback URL
    assert (stolen.status_code, "Sign in again" in stolen.text) == (400, True)
    late = await browser.get(back)
    assert (late.status_code, "Sign in again" in late.text) == (400, True)
    good = await start_sign_in(server, browser)
    assert (await browser.get(good)).status_code == 303
    assert (await browser.get(good)).status_code == 400
    assert (await other.get("/login/callback")).status_code == 400


async def test_an_invalid_code_signs_nobody_in(server: DashboardServer) -> None:
    browser = server.browser()
    back = urlsplit(await start_sign_in(server, browser))
    state = parse_qs(back.query)["state"][0]
    answer = await browser.get("/login/callback", params={"code": "made-up", "state": state})
    assert (answer.status_code, "Sign in again" in answer.text) == (400, True)
    assert (await browser.get("/")).status_code == 303


async def test_a_canceled_or_rejected_sign_in_can_be_repeated(
    server: DashboardServer, caplog: pytest.LogCaptureFixture
) -> None:
    browser = server.browser()
    for error, sentence, notice in (
        ("access_denied", "You canceled the sign-in on GitHub", False),
        ("application_suspended", "GitHub rejected this sign-in", True),
    ):
        there = await browser.get("/login/github", params={"back_to": RUN})
        state = parse_qs(urlsplit(there.headers["location"]).query)["state"][0]
        caplog.clear()
        # Source: docs.github.com, "Troubleshooting authorization request errors"
        answer = await browser.get("/login/callback", params={"error": error, "state": state})
        assert (error, answer.status_code, sentence in answer.text) == (error, 400, True)
        assert "/login/github?back_to=%2Fruns%2Facme-calc-1-x" in answer.text
        assert (error in str([vars(one) for one in caplog.records if one.levelname == "WARNING"])) == notice
        again = await browser.get("/login/callback", params={"error": error, "state": state})
        assert "was not started in this browser" in again.text


async def test_an_unavailable_github_signs_nobody_in(server: DashboardServer) -> None:
    browser = server.browser()
    back = await start_sign_in(server, browser)
    server.fake_github.fail_next_request("POST", "/login/oauth/access_token", status=503)
    answer = await browser.get(back)
    assert (answer.status_code, "GitHub is not responding" in answer.text) == (502, True)


@pytest.mark.parametrize(
    "path",
    ["//evil.test/", "https://evil.test/", "/\\evil.test", "\\\\evil.test", "javascript:alert(1)", "/\r\nx: y",
     "/ä", "", "/" + "a" * 400, "/%0d%0aset-cookie:x=y\n"],
)  # fmt: skip
def test_unsafe_redirect_paths_are_replaced(path: str) -> None:
    assert safe_redirect_path(path) == "/"


async def test_sign_in_redirects_only_to_this_site(server: DashboardServer) -> None:
    assert safe_redirect_path("/runs/a?requested=stop") == "/runs/a?requested=stop"
    browser = server.browser()
    entered = await browser.post("/login", data={"token": OPERATOR, "back_to": "//evil.test/"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    back = await browser.get(await start_sign_in(server, browser, back_to="https://evil.test/"))
    assert back.headers["location"] == "/"


async def test_a_wrong_operator_token_is_rejected(server: DashboardServer) -> None:
    browser = server.browser()
    tokens = ("", "wrong", OPERATOR[:-1], OPERATOR + "x")
    for answer in await asyncio.gather(*(browser.post("/login", data={"token": token}) for token in tokens)):
        assert (answer.status_code, "The operator token is wrong" in answer.text) == (401, True)
    assert (await browser.get("/")).status_code == 303


async def test_token_guesses_do_not_lock_the_operator_out(server: DashboardServer) -> None:
    guessing = True

    received: list[int] = []

    async def guess() -> None:
        browser = server.browser()
        while guessing:
            received.append((await browser.post("/login", data={"token": "wrong"})).status_code)

    async with asyncio.TaskGroup() as guesses, asyncio.timeout(60):
        for _ in range(MAX_PENDING_WRONG_TOKENS + 1):
            guesses.create_task(guess())
        while 429 not in received:  # this number is rejected at once
            await asyncio.sleep(0.01)
        try:
            assert (await (await server.operator()).get("/")).status_code == 200
        finally:
            guessing = False
    assert set(received) == {401, 429}


async def test_cross_site_forms_sign_nobody_in_or_out(server: DashboardServer) -> None:
    browser = server.browser()
    for headers in ({"origin": "https://evil.test"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        answer = await browser.post("/login", data={"token": OPERATOR}, headers=headers)
        assert (answer.status_code, "Request rejected" in answer.text) == (403, True)
    operator = await server.operator()
    assert (await operator.post("/logout", data={"csrf": "guessed"})).status_code == 403
    assert (await operator.get("/")).status_code == 200


async def test_sign_out_ends_the_session_on_the_server(server: DashboardServer) -> None:
    browser = await server.person("maintainer")
    cookie = browser.cookies["patchwright-session"]
    sessions = Sessions(server.redis, operator_token=OPERATOR)
    session = await sessions.find(cookie)
    await sessions.close()
    assert session is not None
    answer = await browser.post("/logout", data={"csrf": session.csrf_token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    kept = server.browser()
    kept.cookies.set("patchwright-session", cookie)
    assert (await kept.get("/")).status_code == 303


async def log_out(server: DashboardServer, browser: httpx.AsyncClient) -> httpx.Response:
    sessions = Sessions(server.redis, operator_token=OPERATOR)
    session = await sessions.find(browser.cookies["patchwright-session"])
    await sessions.close()
    assert session is not None
    return await browser.post("/logout", data={"csrf": session.csrf_token})


async def is_token_valid(server: DashboardServer, token: str) -> bool:
    async with httpx.AsyncClient(base_url=server.fake_github.api_url, trust_env=False) as github:
        answer = await github.get("/user", headers={"authorization": f"Bearer {token}"})
    return answer.status_code == 200


async def test_sign_out_revokes_only_its_own_github_token(
    server: DashboardServer, caplog: pytest.LogCaptureFixture
) -> None:
    browser, elsewhere = await server.person("maintainer"), await server.person("maintainer")
    first, second = [value for value in server.fake_github.tokens if value.startswith("ghu_")]
    assert await is_token_valid(server, first)
    assert (await log_out(server, browser)).status_code == 303
    assert (await is_token_valid(server, first), await is_token_valid(server, second)) == (False, True)
    assert (await elsewhere.get("/")).status_code == 200
    assert (await log_out(server, await server.operator())).status_code == 303  # who has none
    assert "revoked" not in caplog.text


@pytest.mark.slow
async def test_sign_out_does_not_wait_for_an_unavailable_github(
    server: DashboardServer, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    faults: list[Callable[[], None]] = [
        lambda: server.fake_github.fail_next_request("DELETE", "/token", status=503),
        lambda: server.fake_github.lose_next_request("DELETE", "/token"),
        lambda: server.fake_github.before_next_request(
            "DELETE", "/token", answers.wait
        ),  # responds only after the sign-out
    ]
    try:
        for fault in faults:
            browser = await server.person("maintainer")
            fault()
            caplog.clear()
            answer = await log_out(server, browser)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
            assert (await browser.get("/")).status_code == 303
            (message,) = [one for one in caplog.records if one.getMessage() == "token not revoked"]
            assert (message.levelname, vars(message)["login"]) == ("WARNING", "maintainer")
            assert not any(token in str(vars(message)) for token in server.fake_github.tokens)
    finally:
        answers.set()


async def test_an_expired_session_asks_for_a_new_sign_in(server: DashboardServer) -> None:
    sessions = Sessions(server.redis, lifetime_seconds=0.05, operator_token=OPERATOR)
    browser = server.browser()
    browser.cookies.set(
        "patchwright-session", await sessions.create(DashboardUser(login="operator", id=None))
    )
    await sessions.close()
    async with httpx.AsyncClient(trust_env=False) as wait, asyncio.timeout(60):  # until it expires in Redis
        while (await browser.get("/")).status_code == 200:
            await wait.get(f"{server.url}/healthz")
    led = (await browser.get("/")).headers["location"]
    assert led == "/login?back_to=%2F&reason=session_expired"
    response = await browser.get(led)
    assert (response.status_code, "Your session has expired" in response.text) == (200, True)
    strange = await browser.get("/login?reason=wrong_token")
    assert (strange.status_code, 'role="alert"' in strange.text) == (200, False)
    pressed = await browser.post(f"{RUN}/stop", data={"csrf": "x"})
    assert (pressed.status_code, "Your session has expired" in pressed.text) == (401, True)
    watched = await browser.get(f"{RUN}/events", headers={"accept": "text/event-stream"})
    assert watched.status_code == 401


async def test_a_cookie_outlives_its_session(
    server: DashboardServer,
) -> None:
    answer = await server.browser().post("/login", data={"token": OPERATOR})
    (cookie,) = answer.headers.get_list("set-cookie")
    (seconds,) = [part.removeprefix("Max-Age=") for part in cookie.split("; ") if part.startswith("Max-Age=")]
    assert int(seconds) > SESSION_SECONDS
    left = await log_out(server, browser := await server.operator())
    assert left.headers["location"] == "/login"
    assert (await browser.get("/")).headers["location"] == "/login?back_to=%2F"  # no message after a sign-out


async def test_a_new_operator_token_ends_only_operator_sessions(server: DashboardServer) -> None:
    operator, person = await server.operator(), await server.person("maintainer")
    cookies = [browser.cookies["patchwright-session"] for browser in (operator, person)]
    results = {}
    for token in (OPERATOR, f"{OPERATOR}-2", ""):
        sessions = Sessions(server.redis, operator_token=token)
        results[token] = [await sessions.find(cookie) is not None for cookie in cookies]
        await sessions.close()
    assert results == {OPERATOR: [True, True], f"{OPERATOR}-2": [False, True], "": [False, True]}
    other = Sessions(server.redis, operator_token="of-another-day")
    operator.cookies.set("patchwright-session", await other.create(DashboardUser(login="operator", id=None)))
    await other.close()
    led = await operator.get("/")  # as after a start with another token
    assert led.headers["location"] == "/login?back_to=%2F&reason=session_expired"


async def test_each_sign_in_creates_a_new_session(server: DashboardServer) -> None:
    browser = server.browser()
    browser.cookies.set("patchwright-session", "chosen-by-somebody-else")
    entered = await browser.post("/login", data={"token": OPERATOR})
    assert "patchwright-session=chosen" not in str(entered.headers.get_list("set-cookie"))
    stranger = server.browser()
    stranger.cookies.set("patchwright-session", "chosen-by-somebody-else")
    assert (await stranger.get("/")).status_code == 303


async def test_redis_holds_no_usable_credentials(server: DashboardServer) -> None:
    browser = await server.person("maintainer")
    await server.operator()
    await browser.get("/login/github")  # and one that is under way
    cookie = browser.cookies["patchwright-session"]
    (token,) = [value for value in server.fake_github.tokens if value.startswith("ghu_")]
    redis = redis_client(server.redis)
    stored = b""
    async for key in redis.scan_iter("patchwright:*"):
        stored += key + (await redis.dump(key) or b"")
    await redis.aclose(close_connection_pool=True)
    assert b"maintainer" in stored  # the positive control: this is where sessions are
    for value in (cookie, token, browser.cookies["patchwright-login"], OPERATOR):
        assert value.encode() not in stored


async def test_sessions_of_two_people_are_separate(server: DashboardServer) -> None:
    first, second = await server.person("maintainer"), await server.person("reader")
    assert '<span class="user">maintainer</span>' in (await first.get("/")).text
    assert '<span class="user">reader</span>' in (await second.get("/")).text


async def test_a_revoked_github_token_ends_the_session(server: DashboardServer) -> None:
    browser = await server.person("maintainer")
    await server.add_finished_run("acme-calc-1-x")  # nothing of its repository is known of them yet
    server.fake_github.expire_tokens()
    answer = await browser.get(RUN)
    assert (answer.status_code, "Sign-in required" in answer.text) == (401, True)
    assert (await browser.get("/")).status_code == 303
