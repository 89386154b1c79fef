"""The dashboard as an ASGI application: its routes, static files and security headers."""

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from patchwright.bot.dashboard import login, run_routes, views
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.views import RejectionReason
from patchwright.bot.dashboard.web_requests import (
    REJECTION_STATUS,
    VisitorRejected,
    get_deps,
    handle_rejection,
    page_context,
    redirect,
)
from patchwright.bot.errors import QueueDown
from patchwright.resolver.errors import ForgeError

SECURITY_HEADERS = {
    # Allows only our own scripts and styles. Forbids other sites to embed the pages in frames, and forbids
    # forms that submit to other sites.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer", because browsers would then send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "cache-control": "no-store",
}


def create_app(deps: DashboardDependencies) -> ASGIApp:
    """Returns the dashboard's ASGI application."""
    app = Starlette(
        routes=[
            *run_routes.routes(),
            *login.routes(),
            Route("/static/{name}", _serve_static, methods=["GET"]),
            # The App's setup URL. GitHub redirects people here after they install the App.
            Route("/welcome", _redirect_to_runs, methods=["GET"]),
        ],
        exception_handlers={
            VisitorRejected: handle_rejection,
            QueueDown: handle_rejection,
            ForgeError: handle_rejection,
            HTTPException: _handle_http_error,
        },
    )
    app.state.deps = deps
    app.state.watchers = set[object]()
    return SecurityHeadersMiddleware(app)


async def _redirect_to_runs(request: Request) -> Response:
    return redirect(get_deps(request), "/")


async def _serve_static(request: Request) -> Response:
    try:
        kind, content = views.load_static_file(request.path_params["name"])
    except KeyError as exc:
        raise VisitorRejected("not_found") from exc
    cache_forever = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(content, headers={"content-type": kind, **cache_forever})


async def _handle_http_error(request: Request, error: Exception) -> Response:
    reason: RejectionReason = (
        "method_not_allowed" if isinstance(error, HTTPException) and error.status_code == 405 else "not_found"
    )
    return HTMLResponse(views.render_rejection(page_context(request), reason), REJECTION_STATUS[reason])


class SecurityHeadersMiddleware:
    """Adds the security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _add_headers(message["headers"])}
            await send(message)

        await self._app(scope, receive, with_headers)


def _add_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    missing = [
        (name.encode(), value.encode())
        for name, value in SECURITY_HEADERS.items()
        if name.encode() not in given
    ]
    return [*headers, *missing]
