"""One REST request to the stand-in: what its handler may use, and what it gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from demo.world.access import Need, Refusal, allow, visible
from demo.world.registered import Client
from demo.world.shapes import Json, Shapes
from demo.world.state import App, Comment, Issue, Pull, Repository, State, Token, User
from demo.world.told import Delivery

T = TypeVar("T")
S = TypeVar("S", bound=Issue | Comment)

MAX_BODY = 65_536  # characters; GitHub answers 422 to a longer one


class News(NamedTuple):
    """Something that a webhook tells; an earlier delivery may be told once more in its place."""

    event: str
    action: str
    thread: Issue
    sender: User
    details: Json


@dataclass
class Answer:
    body: Json | Sequence[Json] | str | None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    """Still percent-encoded, without the API's own prefix."""
    query: Mapping[str, str]
    authorization: str | None
    accept: str
    body: bytes
    if_none_match: str = ""


@dataclass
class Call:
    """One request, and what its handler may use."""

    state: State
    shapes: Shapes
    request: Request
    actor: Token | App | Client | None
    path: Mapping[str, str]
    """The parameters in it."""
    body: Json
    news: list[News | Delivery]
    violations: list[str]
    """What was off GitHub's description, where a handler is the one to see it."""

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def repo(self) -> Repository:
        return visible(self.actor, self.state.find_repository(self.path["owner"], self.path["repo"]))

    @property
    def app(self) -> App:
        if not isinstance(self.actor, App):
            raise Refusal(401, "A JSON web token could not be decoded")
        return self.actor

    def allow(self, need: Need) -> User:
        """Whoever asks, if they may. Raises Refusal."""
        return allow(self.actor, self.repo, need).user

    def issue(self, number: str) -> Issue:
        thread = found(self.repo.threads.get(int(number)) if number.isdigit() else None)
        return found(None if thread.deleted or thread.moved_to else thread)

    def pull(self) -> Pull:
        thread = self.issue(self.path["pull_number"])
        if not isinstance(thread, Pull):
            raise Refusal(404, "Not Found")
        return thread

    def comment(self) -> tuple[Issue, Comment]:
        wanted = self.path["comment_id"]
        for thread in self.repo.threads.values():
            for comment in thread.comments:
                if str(comment.id) == wanted:
                    return thread, comment
        raise Refusal(404, "Not Found")

    def tell(self, event: str, action: str, thread: Issue, sender: User, **details: object) -> None:
        """Has the webhooks tell this once the answer is out."""
        self.news.append(News(event, action, thread, sender, details))

    def text(self, name: str) -> str:
        """A text of the body, within GitHub's limit."""
        text = str(self.body.get(name) or "")
        if len(text) > MAX_BODY:
            raise invalid("Issue", name, f"{name} is too long (maximum is {MAX_BODY} characters)")
        return text

    def sorted(self, items: Sequence[S]) -> list[S]:
        """In the order that is asked for; GitHub begins with the newest."""
        key = self.query.get("sort", "created")
        return sorted(
            items,
            key=lambda one: (one.updated if key == "updated" else one.created, one.id),
            reverse=self.query.get("direction", "desc") == "desc",
        )

    def page(self, items: Sequence[Json]) -> Answer:
        """One page, with a Link header when there is another."""
        size = min(int(self.query.get("per_page", "30")), 100)
        number = max(int(self.query.get("page", "1")), 1)
        shown = items[(number - 1) * size : number * size]
        if len(items) <= number * size:
            return Answer(shown)
        rest = "".join(
            f"&{name}={value}" for name, value in self.query.items() if name not in ("page", "per_page")
        )
        link = f'<{self.shapes.api}{self.request.path}?per_page={size}&page={number + 1}{rest}>; rel="next"'
        return Answer(shown, headers={"Link": link})


def found(value: T | None) -> T:
    """The value, or Refusal 404."""
    if value is None:
        raise Refusal(404, "Not Found")
    return value


def invalid(resource: str, field_name: str, message: str) -> Refusal:
    """GitHub's 422."""
    return Refusal(
        422,
        "Validation Failed",
        {"resource": resource, "field": field_name, "code": "custom", "message": message},
    )
