"""Classes for REST requests to the fake server: the request, its context for the handler, and the response."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from patchwright.demo.github.app_models import GitHubApp, OAuthClient
from patchwright.demo.github.auth import ApiError, RequiredAccess, require_access, require_visible
from patchwright.demo.github.serializers import Json, Serializer
from patchwright.demo.github.state import (
    Comment,
    FakePullRequest,
    GitHubState,
    Issue,
    Repository,
    Token,
    User,
)
from patchwright.demo.github.webhook_models import Delivery

T = TypeVar("T")
S = TypeVar("S", bound=Issue | Comment)

MAX_BODY = 65_536  # characters of a text; GitHub answers 422 to a longer text


class WebhookEvent(NamedTuple):
    """An event to deliver to webhooks."""

    event: str
    action: str
    thread: Issue
    sender: User
    details: Json


@dataclass
class RestResponse:
    body: Json | Sequence[Json] | str | None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RestRequest:
    """A request as it was received."""

    method: str
    path: str
    """The path without the API's own prefix, still percent-encoded."""
    query: Mapping[str, str]
    authorization: str | None
    accept: str
    body: bytes
    if_none_match: str = ""


@dataclass
class RequestContext:
    """A request, with everything that its handler can use."""

    state: GitHubState
    serializer: Serializer
    request: RestRequest
    actor: Token | GitHubApp | OAuthClient | None
    path: Mapping[str, str]
    """The parameters in the path, by name."""
    body: Json
    events: list[WebhookEvent | Delivery]
    violations: list[str]
    """Violations of GitHub's API description. A handler appends each violation that it finds itself."""

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def repo(self) -> Repository:
        return require_visible(self.actor, self.state.find_repository(self.path["owner"], self.path["repo"]))

    @property
    def app(self) -> GitHubApp:
        if not isinstance(self.actor, GitHubApp):
            raise ApiError(401, "A JSON web token could not be decoded")
        return self.actor

    def require_access(self, required: RequiredAccess) -> User:
        """Returns the user who sent the request. Raises ApiError if this user lacks the required access."""
        return require_access(self.actor, self.repo, required).user

    def find_issue(self, number: str) -> Issue:
        thread = require_found(self.repo.threads.get(int(number)) if number.isdigit() else None)
        return require_found(None if thread.deleted or thread.moved_to else thread)

    def find_pull(self) -> FakePullRequest:
        thread = self.find_issue(self.path["pull_number"])
        if not isinstance(thread, FakePullRequest):
            raise ApiError(404, "Not Found")
        return thread

    def find_comment(self) -> tuple[Issue, Comment]:
        wanted = self.path["comment_id"]
        for thread in self.repo.threads.values():
            for comment in thread.comments:
                if str(comment.id) == wanted:
                    return thread, comment
        raise ApiError(404, "Not Found")

    def emit(self, event: str, action: str, thread: Issue, sender: User, **details: object) -> None:
        """Delivers an event to the webhooks after the response was sent."""
        self.events.append(WebhookEvent(event, action, thread, sender, details))

    def read_text(self, name: str) -> str:
        """Returns a text field of the body. Raises ApiError if the text exceeds GitHub's limit."""
        text = str(self.body.get(name) or "")
        if len(text) > MAX_BODY:
            raise validation_error("Issue", name, f"{name} is too long (maximum is {MAX_BODY} characters)")
        return text

    def sort(self, items: Sequence[S]) -> list[S]:
        """Sorts the items in the order that the request specifies. By default, the newest items come first."""
        key = self.query.get("sort", "created")
        return sorted(
            items,
            key=lambda one: (one.updated if key == "updated" else one.created, one.id),
            reverse=self.query.get("direction", "desc") == "desc",
        )

    def paginate(self, items: Sequence[Json]) -> RestResponse:
        """Returns one page of the items, with a Link header if there is another page."""
        size = min(int(self.query.get("per_page", "30")), 100)
        number = max(int(self.query.get("page", "1")), 1)
        shown = items[(number - 1) * size : number * size]
        if len(items) <= number * size:
            return RestResponse(shown)
        rest = "".join(
            f"&{name}={value}" for name, value in self.query.items() if name not in ("page", "per_page")
        )
        link = f'<{self.serializer.api_url}{self.request.path}?per_page={size}&page={number + 1}{rest}>; rel="next"'
        return RestResponse(shown, headers={"Link": link})


def require_found(value: T | None) -> T:
    """Returns the value. Raises ApiError 404 if it is None."""
    if value is None:
        raise ApiError(404, "Not Found")
    return value


def validation_error(resource: str, field_name: str, message: str) -> ApiError:
    """Returns GitHub's error 422."""
    return ApiError(
        422,
        "Validation Failed",
        {"resource": resource, "field": field_name, "code": "custom", "message": message},
    )
