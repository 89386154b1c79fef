"""The page of the setup: a code, a model, an App. It answers until the App's key is kept, and nothing else does."""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.page.shown import Around, static
from bot.page.site import HEADERS
from bot.page.web import STATUS, Refused, sent
from bot.setup import shown
from bot.setup.code import LASTS, Code, Visitor
from bot.setup.github import convert, form_address, manifest
from bot.setup.images import Images
from bot.setup.kept import ChosenModel, Kept, OwnApp, check_room, keep
from bot.setup.model import Tried
from bot.setup.shown import Problem, Trouble
from bot.setup.wish import ADDRESS, Wish, wish
from resolver.errors import Forbidden, ForgeError, NotFound
from resolver.settings.server import is_loopback
from resolver.settings.settings import Settings

log = logging.getLogger(__name__)

COOKIE = "patchwright-setup"
HAND_OVER_SECONDS = 0.3
WRONG_SECONDS = 1.0  # that an answer to a wrong code takes
SHOWN_AGAIN = ("model", "base_url", "server_url", "organization", "public_url", "reach")
"""What was typed and stands there again for who comes back: nothing secret."""
_STATUS: Mapping[Problem, int] = {
    "address": 400, "forge": 502, "log_in": 401, "model": 400, "model_address": 400, "no_name": 400, "no_room": 507,
    "not_kept": 507, "state": 400, "used": 410, "void_code": 403, "wrong_code": 403,
}  # fmt: skip

_LOGGED = {
    "right": (logging.INFO, "setup code entered"),
    "wrong": (logging.WARNING, "wrong setup code"),
    "void": (logging.WARNING, "setup code that is good no more"),
}

Try = Callable[[ChosenModel], Awaitable[Tried]]
Page = Callable[[Request], Awaitable[Response]]


class Site:
    """What the page knows while it is there."""

    def __init__(
        self, settings: Settings, kept: Kept, code: Code, visitor: Visitor, try_model: Try, images: Images
    ) -> None:
        """`kept`: what an earlier setup has left that came to no end. `images`: what is made meanwhile."""
        self._settings = settings
        self._kept = kept
        self._code = code
        self._visitor = visitor
        self._try = try_model
        self._images = images
        self._public = settings.public_url or ""
        self._tried: ChosenModel | None = None
        self._typed: dict[str, str] = {}
        self._going: tuple[str, Wish] | None = None
        """The state with which somebody was sent to GitHub, and what for."""
        self._unkept: OwnApp | None = None
        self._one = asyncio.Lock()
        self.done = asyncio.Event()
        """Set once all is kept and the last answer is out."""

    # --- the steps ------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        """The step that comes next."""
        if not self._knows(request):
            return HTMLResponse(shown.entrance(self._around(request), None))
        return self._next(request)

    async def enter(self, request: Request) -> Response:
        """The code, from the terminal."""
        said = await sent(request, self._public)
        entered = self._code.enter(said.get("code", ""))
        log.log(*_LOGGED[entered], extra={"from": request.client.host if request.client else ""})
        if entered != "right":
            await asyncio.sleep(WRONG_SECONDS)
            trouble = Trouble("wrong_code" if entered == "wrong" else "void_code")
            return HTMLResponse(shown.entrance(self._around(request), trouble), _STATUS[trouble.what])
        answer = self._to(request, "/setup")
        answer.set_cookie(
            COOKIE, self._visitor.admit(), max_age=round(LASTS), path="/", httponly=True, samesite="lax",
            secure=_origin(request).startswith("https:"),
        )  # fmt: skip
        return answer

    async def choose(self, request: Request) -> Response:
        """The model."""
        said = await self._said(request)
        anyway = self._tried if said.get("anyway") == "yes" else None
        chosen = anyway or _model(said)
        if not isinstance(chosen, ChosenModel):
            return self._next(request, Trouble(chosen))
        if anyway is None:
            self._tried = chosen
            tried = await self._try(chosen)
            if tried.why is not None:
                return self._next(request, Trouble("model", tried.why))
            if not tried.priced:
                return HTMLResponse(shown.unpriced(self._around(request), chosen.model, self._settings))
        if (why := await self._keep(self._kept.model_copy(update={"model": chosen}))) is not None:
            return self._next(request, Trouble("no_room", why))
        return self._to(request, "/setup")

    async def describe(self, request: Request) -> Response:
        """Whose the App is to be and how GitHub reaches us; the browser takes its description to GitHub."""
        said = await self._said(request)
        wanted = wish(said, self._settings, _origin(request))
        if wanted is None:
            return self._next(request, Trouble("address"))
        try:  # before there is an App whose key could be lost
            await asyncio.to_thread(check_room, self._settings.data)
        except OSError as exc:
            return self._next(request, Trouble("no_room", _reason(exc)))
        state = secrets.token_urlsafe(32)
        self._going = state, wanted
        here = f"{_origin(request)}{self._base(request)}"
        asked = manifest(here, wanted.public_url, webhook=wanted.webhook)
        address = form_address(wanted.place, wanted.organization, state)
        place = urlsplit(wanted.place.github_server_url)
        policy = HEADERS["content-security-policy"].replace(
            "form-action 'self'", f"form-action 'self' {place.scheme}://{place.netloc}"
        )
        page = shown.sending(self._around(request), address, asked, place.netloc)
        return HTMLResponse(page, headers={"content-security-policy": policy})

    async def made(self, request: Request) -> Response:
        """GitHub has sent the browser back, with a code that tells of the App once."""
        self._admit(request)
        state, code = (request.query_params.get(name, "") for name in ("state", "code"))
        async with self._one:
            if self._kept.app is not None:
                return self._to(request, "/welcome")
            if self._going is None or not code or not _same(state, self._going[0]):
                return self._next(request, Trouble("state"))
            wanted = self._going[1]
            try:
                app = await convert(code, wanted.place, wanted.public_url, self._settings.ca_bundle)
            except (NotFound, Forbidden):
                self._going = None
                return self._next(request, Trouble("used"))
            except ForgeError as exc:  # the code may be good for another try
                again = f"{self._base(request)}/setup/made?{request.url.query}"
                return self._next(request, Trouble("forge", str(exc), again))
            self._going = None
            return await self._finish(request, app)

    async def again(self, request: Request) -> Response:
        """Keep what could not be kept."""
        await self._said(request)
        async with self._one:
            return (
                self._to(request, "/setup")
                if self._unkept is None
                else await self._finish(request, self._unkept)
            )

    async def hand_over(self, request: Request) -> Response:
        """The next page is served by who serves next, to a connection of its own."""
        if self._kept.app is None:
            return self._to(request, "/setup")
        await asyncio.sleep(HAND_OVER_SECONDS)
        answer = self._to(request, "/welcome")
        answer.headers["connection"] = "close"
        return answer

    async def _finish(self, request: Request, app: OwnApp) -> Response:
        self._unkept = app
        if (why := await self._keep(self._kept.model_copy(update={"app": app}))) is not None:
            return self._next(request, Trouble("not_kept", why))
        answer = self._to(request, "/welcome")
        answer.headers["connection"] = "close"
        answer.background = BackgroundTask(self._end)
        return answer

    async def _end(self) -> None:
        self.done.set()

    async def _keep(self, kept: Kept) -> str | None:
        """Why it could not be kept."""
        try:
            await asyncio.to_thread(keep, self._settings.data, kept)
        except OSError as exc:
            return _reason(exc)
        self._kept = kept
        log.info("kept", extra={"model": kept.model and kept.model.model, "app": kept.app and kept.app.slug})
        return None

    # --- who asks, and what they see ------------------------------------------------------------------------

    def _knows(self, request: Request) -> bool:
        return self._visitor.knows(request.cookies.get(COOKIE, ""))

    def _admit(self, request: Request) -> None:
        if not self._knows(request):
            raise Stranger

    async def _said(self, request: Request) -> dict[str, str]:
        """What a form says that only whoever has the code may send."""
        self._admit(request)
        said = {key: value.strip() for key, value in (await sent(request, self._public)).items()}
        if typed := {key: said[key] for key in SHOWN_AGAIN if key in said}:
            self._typed = typed
        return said

    def _next(self, request: Request, trouble: Trouble | None = None) -> Response:
        status, around = (_STATUS[trouble.what] if trouble else 200), self._around(request)
        if self._settings.model is None and self._kept.model is None:
            known = {"base_url": self._settings.model_base_url or "", **self._typed}
            return HTMLResponse(
                shown.model(around, trouble, known, str(self._settings.data), self._images), status
            )
        address = self._settings.public_url or _origin(request)
        unreachable = is_loopback(address)
        said = {
            "server_url": self._settings.github_server_url,
            "public_url": address,
            "reach": "poll" if self._settings.poll or unreachable else "webhook",
            **self._typed,
        }
        local = unreachable and said["public_url"] == address
        return HTMLResponse(shown.app(around, trouble, said, self._unkept, self._images, local=local), status)

    def _to(self, request: Request, path: str) -> Response:
        return RedirectResponse(f"{self._base(request)}{path}", HTTPStatus.SEE_OTHER)

    def _around(self, request: Request) -> Around:
        return Around(self._base(request), None)

    def _base(self, request: Request) -> str:
        """The path below which this browser reaches us."""
        public = urlsplit(self._public)
        return public.path if public.netloc == request.headers.get("host") else ""

    # --- the application ------------------------------------------------------------------------------------

    def application(self) -> Starlette:
        """It: with what the container's health check asks, and an answer to GitHub, which may call already."""
        steps: list[tuple[str, str, Page]] = [
            ("GET", "/setup", self.begin),
            ("POST", "/setup/code", self.enter),
            ("POST", "/setup/model", self.choose),
            ("POST", "/setup/app", self.describe),
            ("GET", "/setup/made", self.made),
            ("POST", "/setup/again", self.again),
            ("GET", "/welcome", self.hand_over),
            ("GET", "/static/{name}", static_file),
            ("GET", "/healthz", _alive),
            ("GET", "/readyz", _not_yet),
            ("POST", "/webhook", _not_yet),
        ]
        base = urlsplit(self._public).path
        routes = [Route(path, guarded(page), methods=[method]) for method, path, page in steps]
        below = [Route(f"{base}{path}", guarded(page), methods=[method]) for method, path, page in steps]
        return Starlette(
            routes=[Route("/", guarded(self._lead), methods=["GET"]), *routes, *(below if base else ())],
            exception_handlers={Stranger: self._turn_away, Refused: self._turn_away},
        )

    async def _lead(self, request: Request) -> Response:
        return self._to(request, "/setup")

    async def _turn_away(self, request: Request, error: Exception) -> Response:
        trouble, status = Trouble("log_in"), 401
        if isinstance(error, Refused):
            trouble, status = Trouble("form"), STATUS[error.why]
        return HTMLResponse(shown.entrance(self._around(request), trouble), status, headers=HEADERS)


class Stranger(Exception):
    """The browser is not the one in which the code was entered."""


def guarded(page: Page) -> Page:
    """With the headers that every answer of ours has."""

    async def guarded(request: Request) -> Response:
        answer = await page(request)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    return guarded


async def static_file(request: Request) -> Response:
    """A file that pages load."""
    try:
        kind, content = static(request.path_params["name"])
    except KeyError:
        return Response(status_code=404)
    return Response(content, headers={"content-type": kind})


async def _alive(_: Request) -> Response:
    return JSONResponse({"setup": True})


async def _not_yet(_: Request) -> Response:
    return JSONResponse({"status": "not set up"}, HTTPStatus.SERVICE_UNAVAILABLE)


def _model(said: Mapping[str, str]) -> ChosenModel | Problem:
    name, address = said.get("model", ""), said.get("base_url", "")
    if not name:
        return "no_name"
    if address and not ADDRESS.fullmatch(address):
        return "model_address"
    return ChosenModel(model=name, model_base_url=address or None, model_api_key=said.get("key") or None)


def _origin(request: Request) -> str:
    """Where the browser thinks that it is: a proxy before us may have taken the TLS away."""
    named = request.headers.get("origin", "")
    return named if ADDRESS.fullmatch(named) else f"{request.url.scheme}://{request.headers.get('host', '')}"


def _same(said: str, known: str) -> bool:
    return hmac.compare_digest(said.encode("utf-8", "replace"), known.encode())


def _reason(error: OSError) -> str:
    return f"{error.filename or 'the directory'}: {error.strerror or error}"
