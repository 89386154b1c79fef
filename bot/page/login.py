"""Logging in, by GitHub or with the operator's token, and out."""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.page import shown
from bot.page.kit import Kit
from bot.page.people import People
from bot.page.shown import Snag
from bot.page.web import (
    Refused,
    around,
    at_home,
    cookie_name,
    drop_cookie,
    form,
    inside,
    kit_of,
    own_form,
    page,
    redirect,
    set_cookie,
)
from bot.redis.sessions import COOKIE_SECONDS, LOGIN_SECONDS, Person, Session
from resolver.errors import ForgeError, Unauthorized

WRONG_SECONDS = 1.0  # that an answer to a wrong token takes
MOST_WRONG = 10  # of them at a time
CALLBACK = "/login/callback"
LED = "led"  # says that they were led to `public_url`: a proxy may tell us another host than they see
# That a log-out waits for GitHub; what it does not hear of ends by itself after eight hours.
REVOKE_SECONDS = 2.0
BEGUN_A_SECOND, BEGUN_AT_ONCE = (
    5.0,
    50,
)  # log-ins by GitHub: anybody can begin one, and each takes room in Redis

MOST_ERROR = 60  # characters of GitHub's error in the log; its own have fewer

STATUS: Mapping[Snag, HTTPStatus] = {
    "cancelled": HTTPStatus.BAD_REQUEST,
    "ended": HTTPStatus.OK,  # they were led to where they can log in, and the page is that
    "misfit": HTTPStatus.BAD_REQUEST,
    "refused": HTTPStatus.BAD_REQUEST,
    "wrong_token": HTTPStatus.UNAUTHORIZED,
}

log = logging.getLogger(__name__)


async def asked(request: Request) -> Response:
    """Where one can log in."""
    why: Snag | None = "ended" if request.query_params.get("why") == "ended" else None
    return _asked(request, inside(request.query_params.get("back_to", "/")), why)


def _asked(request: Request, back_to: str, why: Snag | None) -> Response:
    kit = kit_of(request)
    ways = {"github": kit.people is not None, "operator": bool(kit.operator_token)}
    said = shown.login(around(request), back_to, **ways, why=why)
    return HTMLResponse(said, STATUS[why] if why else 200)


class ByToken:
    """The operator shows the token; whoever guesses waits, and keeps nobody out who knows it."""

    def __init__(self) -> None:
        self._wrong = 0

    async def enter(self, request: Request) -> Response:
        kit, said = kit_of(request), await form(request)
        back_to = inside(said.get("back_to", "/"))
        token = said.get("token", "").strip().encode()
        if not kit.operator_token or not hmac.compare_digest(token, kit.operator_token.encode()):
            if self._wrong >= MOST_WRONG:
                raise Refused("too_often")
            self._wrong += 1
            try:
                await asyncio.sleep(WRONG_SECONDS)
            finally:
                self._wrong -= 1
            return _asked(request, back_to, "wrong_token")
        return await _enter(request, kit, Person(login="operator", id=None), "", back_to)


class ToGitHub:
    """Sends browsers to GitHub, which sends them back: to `public_url`, where alone their cookie has to be then."""

    def __init__(self) -> None:
        self._room, self._at = float(BEGUN_AT_ONCE), time.monotonic()

    async def leave(self, request: Request) -> Response:
        kit = kit_of(request)
        if kit.people is None:
            raise Refused("not_found")
        back_to = inside(request.query_params.get("back_to", "/"))
        if LED not in request.query_params and not at_home(request, kit):
            return RedirectResponse(
                f"{kit.public_url}/login/github?{urlencode({'back_to': back_to, LED: 1})}", 303
            )
        if not self._has_room():
            raise Refused("too_often")
        browser = secrets.token_urlsafe(32)
        state = await kit.sessions.begin(browser, back_to)
        answer = RedirectResponse(kit.people.address(state, browser, f"{kit.public_url}{CALLBACK}"), 303)
        set_cookie(answer, "login", browser, LOGIN_SECONDS, request, kit)
        return answer

    def _has_room(self) -> bool:
        now = time.monotonic()
        self._room = min(BEGUN_AT_ONCE, self._room + (now - self._at) * BEGUN_A_SECOND)
        self._at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True


async def from_github(request: Request) -> Response:
    """GitHub has sent the browser back, with a code that is good once, or with an error.

    Source: docs.github.com/apps/oauth-apps/maintaining-oauth-apps/troubleshooting-authorization-request-errors
    """
    kit = kit_of(request)
    if kit.people is None:
        raise Refused("not_found")
    browser = request.cookies.get(cookie_name("login", request, kit), "")
    back_to = await kit.sessions.came_back(browser, request.query_params.get("state", ""))
    if back_to is None or not browser:
        return _asked(request, "/", "misfit")
    if error := request.query_params.get("error"):
        return _asked(request, back_to, _snag(error))
    try:
        token = await kit.people.token(
            request.query_params.get("code", ""), browser, f"{kit.public_url}{CALLBACK}"
        )
        person = await kit.people.person(token)
    except Unauthorized:
        return _asked(request, back_to, "misfit")
    answer = await _enter(request, kit, person, token, back_to)
    drop_cookie(answer, "login", request, kit)
    return answer


def _snag(error: str) -> Snag:
    if error == "access_denied":
        return "cancelled"
    log.warning("GitHub refused a log-in", extra={"error": error[:MOST_ERROR]})
    return "refused"


async def _enter(request: Request, kit: Kit, person: Person, token: str, back_to: str) -> Response:
    """A new session, whatever the browser had: nobody can have chosen its cookie."""
    if before := request.cookies.get(cookie_name("session", request, kit)):
        await kit.sessions.leave(before)
    answer = redirect(kit, back_to)
    log.info("logged in", extra={"login": person.login, "user": person.id})
    set_cookie(answer, "session", await kit.sessions.open(person, token), COOKIE_SECONDS, request, kit)
    return answer


@page
async def out(request: Request, kit: Kit, session: Session) -> Response:
    """Log out."""
    await own_form(request, session)
    await kit.sessions.leave(request.cookies[cookie_name("session", request, kit)])
    if kit.people is not None and session.token:
        await _revoke(kit.people, session)
    answer = redirect(kit, "/login")
    drop_cookie(answer, "session", request, kit)
    return answer


async def _revoke(people: People, session: Session) -> None:
    """Whoever leaves is not kept waiting by a GitHub that does not answer."""
    try:
        async with asyncio.timeout(REVOKE_SECONDS):
            await people.revoke(session.token)
    except (TimeoutError, ForgeError) as exc:
        why = str(exc) or "no answer in time"
        log.warning("token was not revoked", extra={"login": session.person.login, "error": why})


def routes() -> list[Route]:
    """What the site serves of this."""
    return [
        Route("/login", asked, methods=["GET"]),
        Route("/login", ByToken().enter, methods=["POST"]),
        Route("/login/github", ToGitHub().leave, methods=["GET"]),
        Route(CALLBACK, from_github, methods=["GET"]),
        Route("/logout", out, methods=["POST"]),
    ]
