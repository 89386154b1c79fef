"""The REST half of the stand-in: finds the operation, asks who calls, answers, judges all by the contract."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from demo.world import apps, checks, ci, commits, graphql, looking, reviews
from demo.world.access import Refusal, whoever
from demo.world.call import Answer, Call, News, Request
from demo.world.contract import Contract
from demo.world.operations import OPERATIONS, Handler
from demo.world.registered import Client
from demo.world.shapes import Json, Shapes
from demo.world.state import App, State, Token
from demo.world.told import Delivery

__all__ = [
    "Api",
    "Write",
    "apps",
    "checks",
    "ci",
    "commits",
    "graphql",
    "looking",
    "reviews",
]  # these are imported for what they register

DOCUMENTATION = "https://docs.github.com/rest"
SLASHES = {"ref", "path", "branch", "basehead"}  # parameters that may hold slashes


class Route(NamedTuple):
    method: str
    template: str
    pattern: re.Pattern[str]
    handler: Handler


def _pattern(template: str) -> re.Pattern[str]:
    def group(match: re.Match[str]) -> str:
        return f"(?P<{match[1]}>{'.+' if match[1] in SLASHES else '[^/]+'})"

    return re.compile(re.sub(r"\{(\w+)\}", group, template))


ROUTES = sorted(
    (Route(method, path, _pattern(path), handler) for (method, path), handler in OPERATIONS.items()),
    # `issues/comments` is no issue, and `commits/x/check-runs` no commit
    key=lambda route: (route.template.count("{"), -len(route.template)),
)


class Write(NamedTuple):
    """A request that was made to change something, whether or not it was allowed."""

    method: str
    path: str
    login: str
    """Of the user or bot that the token belongs to; empty without a good token."""


def login(actor: Token | App | Client | None) -> str:
    return actor.user.login if isinstance(actor, Token) else ""


class Api:
    """Answers one REST request at a time, so that no two handlers meet in the state."""

    def __init__(
        self,
        state: State,
        shapes: Shapes,
        contract: Contract,
        writes: list[Write],
        announce: Callable[[News | Delivery], None],
    ) -> None:
        self._state = state
        self._shapes = shapes
        self._contract = contract
        self._writes = writes
        self._announce = announce
        self._one = asyncio.Lock()

    async def respond(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        async with self._one:
            answer, news = await asyncio.to_thread(self._answer, request)
        for item in news:
            self._announce(item)
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

    def _answer(self, request: Request) -> tuple[Answer, list[News | Delivery]]:
        actor, news = None, list[News | Delivery]()
        route, values = _route(request.method, request.path)
        template = route.template if route else request.path
        try:
            body = json.loads(request.body) if request.body else None
            self._contract.check_request(request.method, template, values, request.query, body)
            actor = whoever(request.authorization, self._state)
            if route is None:
                raise Refusal(404, "Not Found")
            given = body if isinstance(body, dict) else {}
            found = self._contract.violations
            call = Call(self._state, self._shapes, request, actor, values, given, news, found)
            answer = route.handler(call)
        except (json.JSONDecodeError, UnicodeDecodeError):
            answer = Answer({"message": "Problems parsing JSON", "documentation_url": DOCUMENTATION}, 400)
        except Refusal as refusal:
            answer = refused(refusal)
        if request.method != "GET" and not request.path.endswith("/access_tokens"):
            self._writes.append(Write(request.method, request.path, login(actor)))
        if route is not None:
            self._contract.check_answer(route.method, template, answer.status, answer.body)
        return answer, news


def refused(refusal: Refusal) -> Answer:
    body: Json = {"message": refusal.message, "documentation_url": DOCUMENTATION}
    if refusal.status == 422:
        body["errors"] = list(refusal.errors)
    else:
        body["status"] = str(refusal.status)
    return Answer(body, refusal.status)


def _route(method: str, path: str) -> tuple[Route | None, Mapping[str, str]]:
    for route in ROUTES:
        if route.method == method and (match := route.pattern.fullmatch(path)):
            return route, {name: unquote(value) for name, value in match.groupdict().items()}
    return None, {}
