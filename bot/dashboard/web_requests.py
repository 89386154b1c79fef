"""The dashboard's requests: sessions, cookies, forms, redirects and rejections."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from patchwright.bot.dashboard import views
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.views import PageContext, RejectionReason
from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.sessions import Session
from patchwright.resolver.errors import ForgeError, Unauthorized

MAX_FORM_BYTES = 10_000
FORM_TIMEOUT_SECONDS = 10.0  # seconds for the whole body
MAX_FORM_FIELDS = 10
MAX_REDIRECT_PATH = 300  # characters
READ_METHODS = ["GET", "HEAD"]  # FastAPI does not add HEAD to GET by itself

REJECTION_STATUS: Mapping[RejectionReason, HTTPStatus] = {
    "cross_site": HTTPStatus.FORBIDDEN,
    "github_unavailable": HTTPStatus.BAD_GATEWAY,
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "login_required": HTTPStatus.UNAUTHORIZED,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "not_found": HTTPStatus.NOT_FOUND,
    "redis_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_many_logins": HTTPStatus.TOO_MANY_REQUESTS,
    "too_many_runs": HTTPStatus.SERVICE_UNAVAILABLE,
    "too_many_viewers": HTTPStatus.SERVICE_UNAVAILABLE,
    "write_access_required": HTTPStatus.FORBIDDEN,
}


class VisitorRejected(Exception):
    """Raised to reject a request. The visitor sees a page with the reason."""

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason)
        self.reason: RejectionReason = reason


class SignInRequired(Exception):
    """Raised to redirect a browser without a session to the sign-in page."""

    def __init__(self, query: str) -> None:
        super().__init__(query)
        self.query = query
        """The query string of the sign-in page, which says where the browser returns to."""


def get_deps(request: Request) -> DashboardDependencies:
    """Returns the dependencies of the application."""
    deps: DashboardDependencies = request.app.state.deps
    return deps


Deps = Annotated[DashboardDependencies, Depends(get_deps)]


def base_path(deps: DashboardDependencies) -> str:
    """Returns the path of `public_url`. All paths of the dashboard start with this path."""
    return urlsplit(deps.public_url).path


def is_public_host(request: Request, deps: DashboardDependencies) -> bool:
    """Returns whether the browser uses the host of `public_url`.

    Sign-in works only on that host, because browsers send a cookie only to the host that set it.
    """
    return request.headers.get("host", "").lower() == urlsplit(deps.public_url).netloc.lower()


def is_secure(request: Request, deps: DashboardDependencies) -> bool:
    """Returns True if browsers connect to the dashboard over HTTPS."""
    return (deps.public_url or str(request.url)).startswith("https:")


def cookie_name(name: str, request: Request, deps: DashboardDependencies) -> str:
    """Returns the full name of a cookie. With HTTPS, the name starts with `__Host-`, which binds the cookie
    to this host and to secure connections.
    """
    return f"__Host-patchwright-{name}" if is_secure(request, deps) else f"patchwright-{name}"


def set_cookie(
    response: Response, name: str, value: str, seconds: float, request: Request, deps: DashboardDependencies
) -> None:
    """Sets a cookie that scripts cannot read (HttpOnly). Browsers do not send this cookie with requests from
    other sites, except when a person follows a link to this site (SameSite=Lax).
    """
    response.set_cookie(
        cookie_name(name, request, deps),
        value,
        max_age=round(seconds),
        path="/",
        secure=is_secure(request, deps),
        httponly=True,
        samesite="lax",
    )


def delete_cookie(response: Response, name: str, request: Request, deps: DashboardDependencies) -> None:
    """Deletes a cookie. Sends the attributes with which the cookie was set, because browsers otherwise keep a
    `__Host-` cookie.
    """
    secure = is_secure(request, deps)
    response.delete_cookie(cookie_name(name, request, deps), secure=secure, httponly=True)


async def require_session(request: Request, deps: Deps) -> AsyncIterator[Session]:
    """Yields the session of the browser. Raises SignInRequired or VisitorRejected if there is none."""
    cookie = request.cookies.get(cookie_name("session", request, deps), "")
    session = await deps.sessions.find(cookie)
    if session is None:
        if request.method in ("GET", "HEAD") and "text/event-stream" not in request.headers.get("accept", ""):
            reason = "&reason=session_expired" if cookie else ""
            raise SignInRequired(f"back_to={quote(_requested_path(request, deps), safe='')}{reason}")
        raise VisitorRejected("login_required")
    request.state.session = session
    try:
        yield session
    except Unauthorized:  # GitHub no longer accepts the session's token
        await deps.sessions.delete(cookie)
        raise VisitorRejected("login_required") from None


SignedIn = Annotated[Session, Depends(require_session, scope="function")]
"""The session of the browser. The dependency ends with the function of the route, which may raise Unauthorized."""


def _requested_path(request: Request, deps: DashboardDependencies) -> str:
    path = request.url.path.removeprefix(base_path(deps))
    target = f"{path}?{request.url.query}" if request.url.query else path
    return target if len(target) <= MAX_REDIRECT_PATH else "/"


def safe_redirect_path(path: str) -> str:
    """Returns the path if it points to a page of this site, otherwise `/`."""
    is_plain = path.isascii() and path.isprintable() and len(path) <= MAX_REDIRECT_PATH
    # Browsers treat a backslash as a slash, and `//` starts a host name.
    is_local = (
        path.startswith("/") and not path.startswith("//") and "\\" not in path and not urlsplit(path).netloc
    )
    return path if is_plain and is_local else "/"


def redirect(deps: DashboardDependencies, path: str) -> Response:
    """Redirects to another page of this site with GET."""
    return RedirectResponse(f"{base_path(deps)}{path}", status_code=HTTPStatus.SEE_OTHER)


async def read_form(request: Request) -> dict[str, str]:
    """Reads a form. Raises VisitorRejected if another site sent the form."""
    return await read_same_site_form(request, get_deps(request).public_url)


async def read_same_site_form(request: Request, public_url: str) -> dict[str, str]:
    """Reads a form. Raises VisitorRejected if a page of another site sent the form.

    A page belongs to this site if its host equals the host of `public_url` or the request's `Host` header.
    """
    _check_same_site(request, public_url)
    body = b""
    try:
        async with asyncio.timeout(FORM_TIMEOUT_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise VisitorRejected("too_large")
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
    except (ValueError, ClientDisconnect, TimeoutError) as exc:
        raise VisitorRejected("invalid_request") from exc


def _check_same_site(request: Request, public_url: str) -> None:
    """Rejects requests that pages of other sites sent. The headers `Sec-Fetch-Site` and `Origin` show where
    a request comes from. Raises VisitorRejected.

    If a browser sends none of these headers, the CSRF token protects the request.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own_hosts = {request.headers.get("host", ""), urlsplit(public_url).netloc}
    if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc not in own_hosts):
        raise VisitorRejected("cross_site")


async def read_csrf_form(request: Request, session: Session) -> dict[str, str]:
    """Reads a form. Raises VisitorRejected if its CSRF token is wrong."""
    form = await read_form(request)
    if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf_token.encode()):
        raise VisitorRejected("cross_site")
    return form


def page_context(request: Request) -> PageContext:
    """Returns the values that every page uses."""
    return PageContext(base_path(get_deps(request)), getattr(request.state, "session", None))


def rejection_reason(error: Exception) -> RejectionReason | None:
    """Returns the reason that the visitor sees for an exception; None if the exception is a bug."""
    match error:
        case VisitorRejected(reason=reason):
            return reason
        case QueueDown():
            return "redis_unavailable"
        case ForgeError():
            return "github_unavailable"
        case HTTPException(status_code=HTTPStatus.METHOD_NOT_ALLOWED):
            return "method_not_allowed"
        case HTTPException():
            return "not_found"
        case RequestValidationError():
            is_path = any(one["loc"][0] == "path" for one in error.errors())
            return "not_found" if is_path else "invalid_request"
        case _:
            return None


async def handle_page_error(request: Request, error: Exception) -> Response:
    """Shows the page with the reason of the rejection, or redirects to the sign-in page."""
    if isinstance(error, SignInRequired):
        return redirect(get_deps(request), f"/login?{error.query}")
    if (reason := rejection_reason(error)) is None:
        return PlainTextResponse("Internal Server Error", 500)
    return HTMLResponse(views.render_rejection(page_context(request), reason), REJECTION_STATUS[reason])
