"""The FastAPI application of the server: the HTTP API, and the dashboard if someone can sign in to it."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from patchwright.bot.api import MCP_PATH, conversation_routes, is_api_path, job_routes, workspace_routes
from patchwright.bot.api.api_middleware import ApiMiddleware, RequestIdMiddleware
from patchwright.bot.api.authentication import ApiDependencies
from patchwright.bot.api.mcp_server import McpRoute
from patchwright.bot.api.openapi import ApiApplication
from patchwright.bot.api.problem_details import handle_api_error
from patchwright.bot.conversation_models import OpenConversations
from patchwright.bot.dashboard.app import open_dashboard
from patchwright.bot.dashboard.asgi import SecurityHeadersMiddleware, add_dashboard
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.web_requests import handle_page_error
from patchwright.bot.errors import Conflict, QueueDown, Unavailable
from patchwright.bot.redis.api_keys import ApiKeys
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.resolver.errors import WorkspaceError
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import SandboxError

API_ERRORS = (QueueDown, Conflict, Unavailable, SandboxError, WorkspaceError)
"""Errors that have a status of their own."""
ROUTERS = (job_routes.router, conversation_routes.router, workspace_routes.router)
"""The resources of the API, each in its own module. A new one also needs its path in `API_PATHS`, and its scopes in
`ApiScope`.
"""

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


@contextlib.asynccontextmanager
async def open_application(
    settings: Settings,
    url: str,
    stores: RedisStores,
    secrets: Secrets,
    delivery_counts: Mapping[tuple[str, str], int],
    *,
    has_dashboard: bool,
    open_conversations: OpenConversations | None = None,
) -> AsyncIterator[ASGIApp]:
    """Opens the application, which uses the Redis server at `url`. Raises SettingsError if a setting is invalid."""
    async with contextlib.AsyncExitStack() as stack:
        keys = ApiKeys(url)
        stack.push_async_callback(keys.close)
        token = settings.operator_token.get_secret_value() if settings.operator_token else ""
        conversations = (
            await stack.enter_async_context(open_conversations(url)) if open_conversations else None
        )
        dashboard = None
        if has_dashboard:
            dashboard = await stack.enter_async_context(
                open_dashboard(settings, url, secrets, delivery_counts)
            )
        yield create_application(
            ApiDependencies(stores.queue, stores.runs, keys, token, conversations), dashboard
        )


def create_application(api: ApiDependencies, dashboard: DashboardDependencies | None = None) -> ASGIApp:
    """Returns the application. Without `dashboard`, it contains only the API."""
    app = ApiApplication(ROUTERS)
    app.state.api_deps = api
    app.router.routes.append(Route(MCP_PATH, McpRoute(), include_in_schema=False))
    handle_page = handle_api_error
    if dashboard is not None:
        add_dashboard(app, dashboard)
        handle_page = handle_page_error
    invalid = (RequestValidationError, WebSocketRequestValidationError)
    for error in (HTTPException, *invalid, *API_ERRORS, Exception):
        app.add_exception_handler(error, _choose_handler(handle_page))
    app.add_middleware(ApiMiddleware)
    return RequestIdMiddleware(SecurityHeadersMiddleware(app))


def _choose_handler(handle_page: ErrorHandler) -> ErrorHandler:
    """Returns a handler that reports errors as JSON to clients of the API, and as a page to browsers."""

    async def handle(request: Request, error: Exception) -> Response:
        handler = handle_api_error if is_api_path(request.scope["path"]) else handle_page
        return await handler(request, error)

    return handle
