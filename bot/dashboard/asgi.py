"""The dashboard's part of the FastAPI application: its routes, static files and security headers."""

from typing import Any

from fastapi import APIRouter, FastAPI, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from patchwright.bot.dashboard import login, run_routes, views
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.web_requests import (
    READ_METHODS,
    Deps,
    SignInRequired,
    VisitorRejected,
    handle_page_error,
    redirect,
)
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


def add_dashboard(app: FastAPI, deps: DashboardDependencies) -> None:
    """Adds the dashboard's routes and its error pages to the application."""
    app.state.deps = deps
    app.state.watchers = set[object]()
    for router in (run_routes.build_router(), login.build_router(), _build_router()):
        app.include_router(router, include_in_schema=False)
    for error in (VisitorRejected, SignInRequired, ForgeError):
        app.add_exception_handler(error, handle_page_error)


def _build_router() -> APIRouter:
    router = APIRouter()
    router.api_route("/static/{name}", methods=READ_METHODS)(serve_static)
    # The App's setup URL. GitHub redirects people here after they install the App.
    router.api_route("/welcome", methods=READ_METHODS)(_redirect_to_runs)
    return router


async def _redirect_to_runs(deps: Deps) -> Response:
    return redirect(deps, "/")


async def serve_static(name: str) -> Response:
    """Serves a static file."""
    try:
        kind, content = views.load_static_file(name)
    except KeyError:
        return Response(status_code=404)
    cache_forever = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(content, headers={"content-type": kind, **cache_forever})


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
