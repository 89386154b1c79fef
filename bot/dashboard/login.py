"""Sign-in with GitHub or the operator token, and sign-out."""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from patchwright.bot.dashboard import views
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.github_oauth import GitHubOAuth
from patchwright.bot.dashboard.views import LoginProblem
from patchwright.bot.dashboard.web_requests import (
    READ_METHODS,
    Deps,
    SignedIn,
    VisitorRejected,
    cookie_name,
    delete_cookie,
    get_deps,
    is_public_host,
    page_context,
    read_csrf_form,
    read_form,
    redirect,
    safe_redirect_path,
    set_cookie,
)
from patchwright.bot.redis.sessions import COOKIE_SECONDS, LOGIN_SECONDS, DashboardUser, Session
from patchwright.resolver.errors import ForgeError, Unauthorized

WRONG_TOKEN_DELAY_SECONDS = 1.0  # delay of the response to a wrong token
MAX_PENDING_WRONG_TOKENS = 10  # number of wrong tokens whose responses are delayed at the same time
CALLBACK = "/login/callback"
# This query parameter marks a redirect to `public_url`. It prevents a redirect loop if a proxy changes the
# Host header.
REDIRECTED = "redirected"
# How long sign-out waits for GitHub. A token that is not revoked expires after eight hours.
REVOKE_TIMEOUT_SECONDS = 2.0
# Limits the sign-ins in progress: anybody can start a sign-in, and each one takes space in Redis.
LOGINS_PER_SECOND, MAX_LOGIN_BURST = 5.0, 50
MAX_LOGGED_ERROR = 60  # characters of GitHub's error code in the log; known error codes are shorter

LOGIN_STATUS: Mapping[LoginProblem, HTTPStatus] = {
    "canceled": HTTPStatus.BAD_REQUEST,
    "session_expired": HTTPStatus.OK,  # visitors with expired sessions are sent here, so this is no error
    "state_mismatch": HTTPStatus.BAD_REQUEST,
    "rejected": HTTPStatus.BAD_REQUEST,
    "wrong_token": HTTPStatus.UNAUTHORIZED,
}

log = logging.getLogger(__name__)


async def show_login(request: Request, back_to: str = "/", reason: str = "") -> Response:
    """Shows the sign-in page."""
    problem: LoginProblem | None = "session_expired" if reason == "session_expired" else None
    return _render_login(request, safe_redirect_path(back_to), problem)


def _render_login(request: Request, back_to: str, problem: LoginProblem | None) -> Response:
    deps = get_deps(request)
    methods = {"github": deps.oauth is not None, "operator": bool(deps.operator_token)}
    page = views.render_login(page_context(request), back_to, **methods, problem=problem)
    return HTMLResponse(page, LOGIN_STATUS[problem] if problem else 200)


class TokenLogin:
    """Signs in the operator by token. If the token is wrong, delays the response."""

    def __init__(self) -> None:
        self._pending_wrong = 0

    async def handle(self, request: Request, deps: Deps) -> Response:
        form = await read_form(request)
        back_to = safe_redirect_path(form.get("back_to", "/"))
        token = form.get("token", "").strip().encode()
        if not deps.operator_token or not hmac.compare_digest(token, deps.operator_token.encode()):
            if self._pending_wrong >= MAX_PENDING_WRONG_TOKENS:
                raise VisitorRejected("too_many_logins")
            self._pending_wrong += 1
            try:
                await asyncio.sleep(WRONG_TOKEN_DELAY_SECONDS)
            finally:
                self._pending_wrong -= 1
            return _render_login(request, back_to, "wrong_token")
        return await _start_session(request, deps, DashboardUser(login="operator", id=None), "", back_to)


class GitHubLogin:
    """Starts the OAuth flow. Sets the sign-in cookie for the host of `public_url`, because GitHub later
    redirects the browser to that host.
    """

    def __init__(self) -> None:
        self._tokens, self._refilled_at = float(MAX_LOGIN_BURST), time.monotonic()

    async def redirect_to_github(self, request: Request, deps: Deps, back_to: str = "/") -> Response:
        if deps.oauth is None:
            raise VisitorRejected("not_found")
        back_to = safe_redirect_path(back_to)
        if REDIRECTED not in request.query_params and not is_public_host(request, deps):
            return RedirectResponse(
                f"{deps.public_url}/login/github?{urlencode({'back_to': back_to, REDIRECTED: 1})}", 303
            )
        if not self._has_capacity():
            raise VisitorRejected("too_many_logins")
        browser = secrets.token_urlsafe(32)
        state = await deps.sessions.start_login(browser, back_to)
        response = RedirectResponse(
            deps.oauth.authorization_url(state, browser, f"{deps.public_url}{CALLBACK}"), 303
        )
        set_cookie(response, "login", browser, LOGIN_SECONDS, request, deps)
        return response

    def _has_capacity(self) -> bool:
        now = time.monotonic()
        self._tokens = min(MAX_LOGIN_BURST, self._tokens + (now - self._refilled_at) * LOGINS_PER_SECOND)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def handle_callback(
    request: Request, deps: Deps, state: str = "", code: str = "", error: str = ""
) -> Response:
    """Handles GitHub's redirect after the sign-in, which contains a one-time code or an error.

    Source:
    docs.github.com/apps/oauth-apps/maintaining-oauth-apps/troubleshooting-authorization-request-errors
    """
    if deps.oauth is None:
        raise VisitorRejected("not_found")
    browser = request.cookies.get(cookie_name("login", request, deps), "")
    back_to = await deps.sessions.finish_login(browser, state)
    if back_to is None or not browser:
        return _render_login(request, "/", "state_mismatch")
    if error:
        return _render_login(request, back_to, _login_problem(error))
    try:
        token = await deps.oauth.exchange_code(code, browser, f"{deps.public_url}{CALLBACK}")
        person = await deps.oauth.get_person(token)
    except Unauthorized:
        return _render_login(request, back_to, "state_mismatch")
    response = await _start_session(request, deps, person, token, back_to)
    delete_cookie(response, "login", request, deps)
    return response


def _login_problem(error: str) -> LoginProblem:
    if error == "access_denied":
        return "canceled"
    log.warning("GitHub sign-in failed", extra={"error": error[:MAX_LOGGED_ERROR]})
    return "rejected"


async def _start_session(
    request: Request, deps: DashboardDependencies, person: DashboardUser, token: str, back_to: str
) -> Response:
    """Starts a new session for a person who signed in. An existing session is never reused, which prevents
    session fixation.
    """
    if old_cookie := request.cookies.get(cookie_name("session", request, deps)):
        await deps.sessions.delete(old_cookie)
    response = redirect(deps, back_to)
    log.info("signed in", extra={"login": person.login, "user": person.id})
    set_cookie(response, "session", await deps.sessions.create(person, token), COOKIE_SECONDS, request, deps)
    return response


async def log_out(request: Request, deps: Deps, session: SignedIn) -> Response:
    """Ends the session and revokes its GitHub token."""
    await read_csrf_form(request, session)
    await deps.sessions.delete(request.cookies[cookie_name("session", request, deps)])
    if deps.oauth is not None and session.token:
        await _revoke_token(deps.oauth, session)
    response = redirect(deps, "/login")
    delete_cookie(response, "session", request, deps)
    return response


async def _revoke_token(oauth: GitHubOAuth, session: Session) -> None:
    """Revokes the GitHub token. If GitHub does not respond, the person is signed out anyway, and the token
    stays valid until it expires.
    """
    try:
        async with asyncio.timeout(REVOKE_TIMEOUT_SECONDS):
            await oauth.revoke_token(session.token)
    except (TimeoutError, ForgeError) as exc:
        error = str(exc) or "timed out"
        log.warning("token not revoked", extra={"login": session.user.login, "error": error})


def build_router() -> APIRouter:
    """Returns the routes of sign-in and sign-out."""
    router = APIRouter()
    router.api_route("/login", methods=READ_METHODS)(show_login)
    router.post("/login")(TokenLogin().handle)
    router.api_route("/login/github", methods=READ_METHODS)(GitHubLogin().redirect_to_github)
    router.api_route(CALLBACK, methods=READ_METHODS)(handle_callback)
    router.post("/logout")(log_out)
    return router
