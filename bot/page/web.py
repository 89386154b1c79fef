"""Requests and answers of the page: who asks, what is taken from them, and how they are turned away."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from bot.errors import QueueDown
from bot.page import shown
from bot.page.kit import Kit
from bot.page.shown import Around, Refusal
from bot.redis.sessions import Session
from resolver.errors import ForgeError, Unauthorized

MOST_FORM = 10_000  # bytes
FORM_SECONDS = 10.0  # until all of them are there
MOST_FIELDS = 10
MOST_PATH = 300  # characters of a path that somebody is led back to

Page = Callable[[Request, Kit, Session], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]

STATUS: Mapping[Refusal, HTTPStatus] = {
    "crowded": HTTPStatus.SERVICE_UNAVAILABLE,
    "forge": HTTPStatus.BAD_GATEWAY,
    "forged": HTTPStatus.FORBIDDEN,
    "log_in": HTTPStatus.UNAUTHORIZED,
    "method": HTTPStatus.METHOD_NOT_ALLOWED,
    "not_found": HTTPStatus.NOT_FOUND,
    "not_yours": HTTPStatus.FORBIDDEN,
    "redis": HTTPStatus.SERVICE_UNAVAILABLE,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_often": HTTPStatus.TOO_MANY_REQUESTS,
    "unclear": HTTPStatus.BAD_REQUEST,
    "watched_enough": HTTPStatus.SERVICE_UNAVAILABLE,
}


class Refused(Exception):
    """The visitor gets a page that says why not."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(why)
        self.why: Refusal = why


def kit_of(request: Request) -> Kit:
    """What the application was made with."""
    kit: Kit = request.app.state.kit
    return kit


def base_of(kit: Kit) -> str:
    """The path below which people reach us."""
    return urlsplit(kit.public_url).path


def at_home(request: Request, kit: Kit) -> bool:
    """Whether the browser is where people reach us: only there it brings the cookies that it has from there."""
    return request.headers.get("host", "").lower() == urlsplit(kit.public_url).netloc.lower()


def is_secure(request: Request, kit: Kit) -> bool:
    """Whether browsers reach us by https."""
    return (kit.public_url or str(request.url)).startswith("https:")


def cookie_name(name: str, request: Request, kit: Kit) -> str:
    """With https in a form that no other host and no plain connection can set."""
    return f"__Host-patchwright-{name}" if is_secure(request, kit) else f"patchwright-{name}"


def set_cookie(answer: Response, name: str, value: str, seconds: float, request: Request, kit: Kit) -> None:
    """For the browser alone, not for scripts, and not sent with what other sites begin, but for links to us."""
    answer.set_cookie(
        cookie_name(name, request, kit),
        value,
        max_age=round(seconds),
        path="/",
        secure=is_secure(request, kit),
        httponly=True,
        samesite="lax",
    )


def drop_cookie(answer: Response, name: str, request: Request, kit: Kit) -> None:
    """Browsers let go of one in its host-bound form only for an answer that sets it in the same way."""
    secure = is_secure(request, kit)
    answer.delete_cookie(cookie_name(name, request, kit), secure=secure, httponly=True)


def page(inside: Page) -> Endpoint:
    """An endpoint for those who have logged in; the others are led to where they can."""

    @wraps(inside)
    async def endpoint(request: Request) -> Response:
        kit = kit_of(request)
        cookie = request.cookies.get(cookie_name("session", request, kit), "")
        session = await kit.sessions.find(cookie)
        if session is None:
            if request.method in ("GET", "HEAD") and "text/event-stream" not in request.headers.get(
                "accept", ""
            ):
                ended = "&why=ended" if cookie else ""
                return redirect(kit, f"/login?back_to={quote(_wanted(request, kit), safe='')}{ended}")
            raise Refused("log_in")
        request.state.session = session
        try:
            return await inside(request, kit, session)
        except Unauthorized:  # GitHub knows them no more
            await kit.sessions.leave(cookie)
            raise Refused("log_in") from None

    return endpoint


def _wanted(request: Request, kit: Kit) -> str:
    path = request.url.path.removeprefix(base_of(kit))
    wanted = f"{path}?{request.url.query}" if request.url.query else path
    return wanted if len(wanted) <= MOST_PATH else "/"


def inside(path: str) -> str:
    """The path, if it leads to a page of ours and nowhere else, else `/`."""
    plain = path.isascii() and path.isprintable() and len(path) <= MOST_PATH
    # Browsers read a backslash as a slash, and two of them as another host.
    ours = (
        path.startswith("/") and not path.startswith("//") and "\\" not in path and not urlsplit(path).netloc
    )
    return path if plain and ours else "/"


def redirect(kit: Kit, path: str) -> Response:
    """To another page of ours, by GET."""
    return RedirectResponse(f"{base_of(kit)}{path}", status_code=HTTPStatus.SEE_OTHER)


async def form(request: Request) -> dict[str, str]:
    """What a form of ours has sent, and no other site's. Raises Refused."""
    return await sent(request, kit_of(request).public_url)


async def sent(request: Request, public_url: str) -> dict[str, str]:
    """The same, where people reach us at `public_url` or wherever their browser says. Raises Refused."""
    _same_site(request, public_url)
    body = b""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MOST_FORM:
                    raise Refused("too_large")
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except (ValueError, ClientDisconnect, TimeoutError) as exc:
        raise Refused("unclear") from exc


def _same_site(request: Request, public_url: str) -> None:
    """Browsers tell where a request comes from; one that does not still has to bring the session's own token."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    ours = {request.headers.get("host", ""), urlsplit(public_url).netloc}
    if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc not in ours):
        raise Refused("forged")


async def own_form(request: Request, session: Session) -> dict[str, str]:
    """What a form has sent that this session's pages have. Raises Refused."""
    said = await form(request)
    if not hmac.compare_digest(said.get("csrf", "").encode(), session.csrf.encode()):
        raise Refused("forged")
    return said


def around(request: Request) -> Around:
    """What every page knows."""
    return Around(base_of(kit_of(request)), getattr(request.state, "session", None))


def refusal_of(error: Exception) -> Refusal:
    """Why somebody is turned away."""
    match error:
        case Refused(why=why):
            return why
        case QueueDown():
            return "redis"
        case ForgeError():
            return "forge"
        case _:
            raise error


async def turn_away(request: Request, error: Exception) -> Response:
    """The page that says why not."""
    why = refusal_of(error)
    return HTMLResponse(shown.refused(around(request), why), STATUS[why])
