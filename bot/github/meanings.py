"""What GitHub's refusals mean to us."""

from datetime import UTC, datetime, timedelta

import httpx

from bot.errors import NotGranted, Rejected, Unanswered
from resolver.errors import Forbidden, ForgeError, NotFound, RateLimited, Unauthorized

A_MINUTE = timedelta(minutes=1)  # what GitHub asks for when a limit comes without a time


def meaning(response: httpx.Response, what: str) -> ForgeError:
    """The error that an answer of this status is. `what`: was asked."""
    said = _message(response)
    why = f"{what}: GitHub answered {response.status_code}: {said}"
    match response.status_code:
        case 429:
            return RateLimited(why, datetime.now(UTC) + A_MINUTE)
        case 403 if "rate limit" in said.lower():
            return RateLimited(why, datetime.now(UTC) + A_MINUTE)
        case 401:
            return Unauthorized(why)
        case 403 if "resource not accessible by" in said.lower():
            needs = response.headers.get("x-accepted-github-permissions", "")
            return NotGranted(f"{why} (it needs {needs[:200]})" if needs else why)
        case 422 if "not granted to this installation" in said.lower():
            return NotGranted(why)
        case 403 | 451:
            return Forbidden(why)
        case 404 | 410:
            return NotFound(why)
        case status if status >= 500:
            return Unanswered(why)
        case _:
            return Rejected(why)


def _message(response: httpx.Response) -> str:
    """GitHub's own words, clipped: an answer that is not GitHub's may be a whole page."""
    try:
        said = response.json()
        parts = [said["message"], *(str(error.get("message", error)) for error in said.get("errors") or ())]
    except (ValueError, TypeError, KeyError, AttributeError):
        parts = [response.text]
    return "; ".join(map(str, parts))[:500]
