"""The API's error responses: problem details as in RFC 9457."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Match

from patchwright.bot.errors import Conflict, QueueDown, Unavailable
from patchwright.resolver.errors import WorkspaceError
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.frozen_model import FrozenModel

PROBLEM_TYPE = "application/problem+json"
# After these errors, the client may still be sending the rest of its body.
CLOSING_STATUSES = frozenset({401, 408, 413})
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_RENAMED = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Names of statuses in RFC 9110. Python before 3.13 has the older names."""
_DEFAULT_DETAILS = {
    HTTPStatus.NOT_FOUND: "There is nothing at this path. GET /openapi.json lists all paths.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This path does not support the method. See the Allow header.",
    HTTPStatus.BAD_REQUEST: "The body is not valid JSON.",
}
"""Sentences for the errors that FastAPI reports, because its own texts only repeat the status."""


class FieldError(FrozenModel):
    """One invalid part of a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    field: str
    """The path of the field, such as `repository`. It is empty if the whole body is invalid."""
    message: str
    """What is wrong with the value."""


class Problem(FrozenModel):
    """An error, as described in RFC 9457."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str = "about:blank"
    """The kind of the problem. `about:blank` means that the status says enough."""
    title: str
    """The name of the status."""
    status: int = Field(ge=400, le=599)
    """The status of the response."""
    detail: str
    """What went wrong, and how to correct it."""
    errors: tuple[FieldError, ...] = ()
    """The invalid fields of the request."""


def status_title(status: int) -> str:
    """Returns the name of a status."""
    return _RENAMED.get(status) or HTTPStatus(status).phrase


def invalid_field(field: str, message: str) -> RequestValidationError:
    """Returns the exception for a field whose value has the right form but cannot be used."""
    return RequestValidationError([{"loc": ("body", field), "msg": message}])


def problem_response(
    status: int, detail: str, errors: Sequence[FieldError] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """Returns an error response."""
    problem = Problem(title=status_title(status), status=status, detail=detail, errors=tuple(errors))
    all_headers = dict(headers or {})
    if status in CLOSING_STATUSES:
        all_headers["connection"] = "close"
    if status == HTTPStatus.UNAUTHORIZED:
        all_headers["www-authenticate"] = 'Bearer realm="patchwright"'
    return Response(problem.model_dump_json(), status, all_headers, PROBLEM_TYPE)


async def handle_api_error(request: Request, error: Exception) -> Response:
    """Converts an exception of a route to a response."""
    match error:
        case RequestValidationError(body=bytes()):  # FastAPI parses only bodies that are declared as JSON.
            return problem_response(
                415, "Send the body as JSON, with the header Content-Type: application/json."
            )
        case RequestValidationError() | WebSocketRequestValidationError():
            errors = [_field_error(one) for one in error.errors()]
            first = errors[0]
            return problem_response(422, f"{first.field or 'The body'}: {first.message.rstrip('.')}.", errors)
        case StarletteHTTPException(status_code=status):
            is_own = isinstance(error, HTTPException) and status != HTTPStatus.BAD_REQUEST
            detail = str(error.detail) if is_own else _DEFAULT_DETAILS.get(HTTPStatus(status), error.detail)
            headers = {"allow": _allowed_methods(request)} if status == 405 else error.headers
            return problem_response(status, detail, headers=headers)
        case QueueDown() | Unavailable() | SandboxError():
            return problem_response(503, str(error))
        case Conflict():
            return problem_response(409, str(error))
        case WorkspaceError():
            return problem_response(422, str(error))
        case _:
            return problem_response(500, "The server failed. Its log says why, under this X-Request-ID.")


def _allowed_methods(request: Request) -> str:
    """Returns all methods of the request's path. FastAPI itself names only the methods of the first route."""
    return ", ".join(
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    )


def _field_error(error: Mapping[str, Any]) -> FieldError:
    location = [part for part in error["loc"][1:] if error.get("type") != "json_invalid"]
    return FieldError(field=".".join(str(part) for part in location), message=error["msg"])
