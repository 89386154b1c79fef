"""Wraps the API's routes: a request id for each response, API keys, and limits for bodies."""

import asyncio
import re
import uuid
from http import HTTPStatus

from fastapi import HTTPException
from fastapi.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from patchwright.bot.api import DESCRIPTION_PATH, is_api_path
from patchwright.bot.api.authentication import authenticate, get_api_deps
from patchwright.bot.api.problem_details import problem_response
from patchwright.bot.errors import QueueDown

MAX_BODY_BYTES = 128 << 10  # Maximum size of a request body.
MAX_FILE_BYTES = 16 << 20  # Maximum size of a file that is uploaded to a workspace.
BODY_TIMEOUT_SECONDS = 10.0
MISSING_KEY = "Send an API key: Authorization: Bearer KEY."
INVALID_KEY = "The API key is not valid. It is misspelled, or was revoked."
REQUEST_ID_HEADER = b"x-request-id"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestIdMiddleware:
    """Gives each response of the API the header X-Request-ID: the client's own, if it is short and plain, or a new
    one. Pages of the dashboard get none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_api_path(scope["path"]):
            return await self._app(scope, receive, send)
        given = dict(scope["headers"]).get(REQUEST_ID_HEADER, b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex.encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message = {**message, "headers": [*message["headers"], (REQUEST_ID_HEADER, request_id)]}
            await send(message)

        scope.setdefault("state", {})["request_id"] = request_id.decode()
        return await self._app(scope, receive, send_with_id)


class ApiMiddleware:
    """Rejects requests of the API without a valid API key before anything else is read, and limits their bodies.

    Requests for other paths pass through.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_api_path(scope["path"]):
            return await self._app(scope, receive, send)
        if scope["path"] != DESCRIPTION_PATH:
            connection = HTTPConnection(scope)
            try:
                key = await authenticate(connection, await get_api_deps(connection))
            except QueueDown as exc:
                return await problem_response(503, str(exc))(scope, receive, send)
            if key is None:
                rejection = problem_response(401, INVALID_KEY if _has_key(connection) else MISSING_KEY)
                return await rejection(scope, receive, send)
            connection.state.api_key = key
        if scope["type"] == "http":
            receive = _LimitedBody(receive, _body_limit(scope)).receive
        return await self._app(scope, receive, send)


def _has_key(connection: HTTPConnection) -> bool:
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and bool(text.strip())


def _body_limit(scope: Scope) -> int:
    is_upload = scope.get("method") == "PUT" and scope["path"].startswith("/workspaces/")
    return MAX_FILE_BYTES if is_upload else MAX_BODY_BYTES


class _LimitedBody:
    """Receives the body of one request. Raises HTTPException if the body is too large or takes too long."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._size = 0
        self._is_complete = False
        self._deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_SECONDS

    async def receive(self) -> Message:
        if self._is_complete:  # Waits until the client disconnects.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as exc:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT, "The request body did not arrive in time."
            ) from exc
        self._size += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._size > self._limit:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request body has more than {self._limit} bytes."
            )
        return message
