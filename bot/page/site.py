"""The page as an ASGI application beside the receiver: its addresses, and the headers that hold for all of them."""

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.errors import QueueDown
from bot.page import login, runs, shown
from bot.page.kit import Kit
from bot.page.shown import Refusal
from bot.page.web import STATUS, Refused, around, kit_of, redirect, turn_away
from resolver.errors import ForgeError

HEADERS = {
    # No script and no style but the files that we serve; no frame, and no form that leads elsewhere.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would then say "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "cache-control": "no-store",
}


def site(kit: Kit) -> ASGIApp:
    """The application."""
    app = Starlette(
        routes=[
            *runs.routes(),
            *login.routes(),
            Route("/static/{name}", _static, methods=["GET"]),
            # Where GitHub sends everybody who installs the App, long after it was set up.
            Route("/welcome", _lead, methods=["GET"]),
        ],
        exception_handlers={
            Refused: turn_away,
            QueueDown: turn_away,
            ForgeError: turn_away,
            HTTPException: _unknown,
        },
    )
    app.state.kit = kit
    app.state.watchers = set[object]()
    return _Guarded(app)


async def _lead(request: Request) -> Response:
    return redirect(kit_of(request), "/")


async def _static(request: Request) -> Response:
    try:
        kind, content = shown.static(request.path_params["name"])
    except KeyError as exc:
        raise Refused("not_found") from exc
    keep = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(content, headers={"content-type": kind, **keep})


async def _unknown(request: Request, error: Exception) -> Response:
    why: Refusal = "method" if isinstance(error, HTTPException) and error.status_code == 405 else "not_found"
    return HTMLResponse(shown.refused(around(request), why), STATUS[why])


class _Guarded:
    """The application, with the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _with(message["headers"])}
            await send(message)

        await self._app(scope, receive, with_headers)


def _with(headers: Any) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
    return [*headers, *ours]
