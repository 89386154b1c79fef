"""Maps GitHub's error responses to the resolver's errors."""

import os
import re
from datetime import UTC, datetime, timedelta

import httpx

from patchwright.bot.errors import ForgeUnavailable, PermissionNotGranted, UnprocessableRequest
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound, RateLimited, Unauthorized

# How long to wait if GitHub's rate limit response names no time. GitHub recommends this wait.
DEFAULT_RETRY_AFTER = timedelta(minutes=1)


def error_from_response(response: httpx.Response, operation: str) -> ForgeError:
    """Returns the error for an unsuccessful response. `operation` names the request in the error message."""
    message = _error_message(response)
    error = f"{operation}: GitHub returned {response.status_code}: {message}"
    match response.status_code:
        case 429:
            return RateLimited(error, datetime.now(UTC) + DEFAULT_RETRY_AFTER)
        case 403 if "rate limit" in message.lower():
            return RateLimited(error, datetime.now(UTC) + DEFAULT_RETRY_AFTER)
        case 401:
            return Unauthorized(error)
        case 403 if "resource not accessible by" in message.lower():
            needs = response.headers.get("x-accepted-github-permissions", "")
            return PermissionNotGranted(f"{error} (required permission: {needs[:200]})" if needs else error)
        case 422 if "not granted to this installation" in message.lower():
            return PermissionNotGranted(error)
        case 403 | 451:
            return Forbidden(error)
        case 404 | 410:
            return NotFound(error)
        case status if status >= 500:
            return ForgeUnavailable(error)
        case _:
            return UnprocessableRequest(error)


def describe_connection_error(error: BaseException) -> str:
    """Returns why no response arrived, such as `connection refused`, without error numbers."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, OSError) and cause.errno:
            # A negative number is an error of the name service. Its text is only in `strerror`.
            reason = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
            return reason[:1].lower() + reason[1:]
        cause = cause.__cause__ or cause.__context__
    return re.sub(r"\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def _error_message(response: httpx.Response) -> str:
    """Returns GitHub's error message. The message is shortened, because a proxy may respond with a whole web
    page.
    """
    try:
        body = response.json()
        parts = [body["message"], *(str(one.get("message", one)) for one in body.get("errors") or ())]
    except (ValueError, TypeError, KeyError, AttributeError):
        parts = [response.text]
    return "; ".join(map(str, parts))[:500]
