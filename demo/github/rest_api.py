"""The REST API of the fake server. It authenticates each request and calls the operation for it. It checks the
request and the response against GitHub's API description.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from patchwright.demo.github import (
    app_registration,
    check_runs,
    ci,
    commits,
    graphql_api,
    labels,
    polling_endpoints,
    reviews,
)
from patchwright.demo.github.app_models import GitHubApp, OAuthClient
from patchwright.demo.github.auth import ApiError, authenticate
from patchwright.demo.github.openapi_checker import OpenApiChecker
from patchwright.demo.github.operations import OPERATIONS, Handler
from patchwright.demo.github.request_context import RequestContext, RestRequest, RestResponse, WebhookEvent
from patchwright.demo.github.serializers import Json, Serializer
from patchwright.demo.github.state import GitHubState, Token
from patchwright.demo.github.webhook_models import Delivery

__all__ = [
    "RestApi",
    "WriteRequest",
    "app_registration",
    "check_runs",
    "ci",
    "commits",
    "graphql_api",
    "labels",
    "polling_endpoints",
    "reviews",
]  # imported because they register operations

DOCUMENTATION = "https://docs.github.com/rest"
MULTI_SEGMENT_PARAMETERS = {"ref", "path", "branch", "basehead"}  # parameters that may contain slashes


class RestRoute(NamedTuple):
    method: str
    template: str
    pattern: re.Pattern[str]
    handler: Handler


def _compile_template(template: str) -> re.Pattern[str]:
    def group(match: re.Match[str]) -> str:
        return f"(?P<{match[1]}>{'.+' if match[1] in MULTI_SEGMENT_PARAMETERS else '[^/]+'})"

    return re.compile(re.sub(r"\{(\w+)\}", group, template))


ROUTES = sorted(
    (
        RestRoute(method, path, _compile_template(path), handler)
        for (method, path), handler in OPERATIONS.items()
    ),
    # Fixed paths come first: `issues/comments` is not an issue, and `commits/x/check-runs` is not a commit.
    key=lambda route: (route.template.count("{"), -len(route.template)),
)


class WriteRequest(NamedTuple):
    """A request to change something, whether or not it was allowed."""

    method: str
    path: str
    login: str
    """Login of the token's user or bot; empty if the request had no valid token."""


class ApiRequest(NamedTuple):
    """A request and the status of its response."""

    method: str
    path: str
    status: int
    credentials: str
    """The value of the Authorization header; empty if the request has no such header."""


def actor_login(actor: Token | GitHubApp | OAuthClient | None) -> str:
    return actor.user.login if isinstance(actor, Token) else ""


class RestApi:
    """Handles one REST request at a time, so that handlers never change the state concurrently."""

    def __init__(
        self,
        state: GitHubState,
        serializer: Serializer,
        checker: OpenApiChecker,
        writes: list[WriteRequest],
        deliver: Callable[[WebhookEvent | Delivery], None],
    ) -> None:
        self._state = state
        self._serializer = serializer
        self._checker = checker
        self._writes = writes
        self._deliver = deliver
        self._lock = asyncio.Lock()
        self.requests: list[ApiRequest] = []

    async def respond(self, request: RestRequest) -> tuple[int, dict[str, str], bytes]:
        """Handles a request. Returns the status, headers and body of the response."""
        response = await self._respond(request)
        credentials = request.authorization or ""
        self.requests.append(ApiRequest(request.method, request.path, response[0], credentials))
        return response

    async def _respond(self, request: RestRequest) -> tuple[int, dict[str, str], bytes]:
        async with self._lock:
            answer, news = await asyncio.to_thread(self._handle, request)
        for item in news:
            self._deliver(item)
        if isinstance(answer.body, str):
            media, body = "application/vnd.github.diff; charset=utf-8", answer.body.encode()
        else:
            media, body = "application/json; charset=utf-8", json.dumps(answer.body).encode()
        headers = answer.headers if answer.body is None else answer.headers | {"content-type": media}
        if request.method == "GET" and answer.status == 200:
            headers["etag"] = f'W/"{hashlib.sha256(body).hexdigest()}"'
            if headers["etag"] == request.if_none_match:
                return 304, headers, b""
        return answer.status, headers, b"" if answer.body is None else body

    def _handle(self, request: RestRequest) -> tuple[RestResponse, list[WebhookEvent | Delivery]]:
        actor, news = None, list[WebhookEvent | Delivery]()
        route, values = _find_route(request.method, request.path)
        template = route.template if route else request.path
        try:
            body = json.loads(request.body) if request.body else None
            self._checker.check_request(request.method, template, values, request.query, body)
            actor = authenticate(request.authorization, self._state)
            if route is None:
                raise ApiError(404, "Not Found")
            given = body if isinstance(body, dict) else {}
            found = self._checker.violations
            call = RequestContext(self._state, self._serializer, request, actor, values, given, news, found)
            answer = route.handler(call)
        except (json.JSONDecodeError, UnicodeDecodeError):
            answer = RestResponse(
                {"message": "Problems parsing JSON", "documentation_url": DOCUMENTATION}, 400
            )
        except ApiError as refusal:
            answer = error_response(refusal)
        if request.method != "GET" and not request.path.endswith("/access_tokens"):
            self._writes.append(WriteRequest(request.method, request.path, actor_login(actor)))
        if route is not None:
            self._checker.check_response(route.method, template, answer.status, answer.body)
        return answer, news


def error_response(error: ApiError) -> RestResponse:
    body: Json = {"message": error.message, "documentation_url": DOCUMENTATION}
    if error.status == 422:
        body["errors"] = list(error.errors)
    else:
        body["status"] = str(error.status)
    return RestResponse(body, error.status)


def _find_route(method: str, path: str) -> tuple[RestRoute | None, Mapping[str, str]]:
    for route in ROUTES:
        if route.method == method and (match := route.pattern.fullmatch(path)):
            return route, {name: unquote(value) for name, value in match.groupdict().items()}
    return None, {}
