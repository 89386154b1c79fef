"""What the stand-in knows: people, repositories, issues, pull requests, apps and tokens."""

import itertools
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from demo.world.bare import Bare
from demo.world.checked import Check, CommitStatus
from demo.world.registered import App as App
from demo.world.registered import Client, Made
from demo.world.told import Delivery, Happening, Hook

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
ROLES: tuple[Role, ...] = ("none", "read", "triage", "write", "maintain", "admin")  # weakest first

# What the app asks for when it is installed; GitHub's names.
APP_PERMISSIONS = {"metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write"}


@dataclass(eq=False)
class User:
    id: int
    login: str
    kind: Literal["User", "Bot", "Organization"] = "User"
    gone: bool = False
    """Whether the account was deleted."""


@dataclass(eq=False)
class Label:
    id: int
    name: str
    color: str = "ededed"


class Reaction(NamedTuple):
    id: int
    user: User
    content: str
    created: str


@dataclass(eq=False, kw_only=True)
class Comment:
    id: int
    number: int
    """Of the issue or pull request it belongs to."""
    author: User
    body: str
    created: str
    updated: str
    reactions: list[Reaction] = field(default_factory=list)


@dataclass(eq=False, kw_only=True)
class Issue:
    id: int
    repo: "Repository" = field(repr=False)
    number: int
    title: str
    body: str | None
    author: User
    created: str
    updated: str
    labels: list[Label] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)
    closed: str | None = None
    locked: bool = False
    deleted: bool = False
    moved_to: "Issue | None" = None
    happened: list[Happening] = field(default_factory=list)

    @property
    def state(self) -> Literal["open", "closed"]:
        return "open" if self.closed is None else "closed"


class Tip(NamedTuple):
    """A branch and the commit it points at now."""

    ref: str
    sha: str


ReviewState = Literal["commented", "approved", "changes_requested"]


@dataclass(eq=False, kw_only=True)
class Review:
    """What somebody said about a pull request at one time."""

    id: int
    author: User
    body: str
    state: ReviewState
    sha: str
    """Head at that time."""
    submitted: str
    updated: str


@dataclass(eq=False, kw_only=True)
class Inline(Comment):
    """A comment in a thread about one line."""

    review: Review


@dataclass(eq=False, kw_only=True)
class ReviewThread:
    """A conversation about one line of a pull request."""

    id: int
    pull: "Pull" = field(repr=False)
    path: str
    line: int
    """In the file as the pull request has it."""
    hunk: str
    comments: list[Inline] = field(default_factory=list)
    resolved_by: User | None = None


@dataclass(eq=False, kw_only=True)
class Pull(Issue):
    head_repo: "Repository" = field(repr=False)
    """The repository itself, or a fork of it."""
    head_ref: str
    base_ref: str
    draft: bool
    last_sha: str
    """Head when it was last seen: the branch may be gone by now."""
    maintainer_can_modify: bool = False
    merged: str | None = None
    reviews: list[Review] = field(default_factory=list)
    review_threads: list[ReviewThread] = field(default_factory=list)

    @property
    def head(self) -> Tip:
        """Its branch's tip, kept here under refs/pull/ too: a fork may be gone tomorrow."""
        sha = self.head_repo.bare.sha(self.head_ref)
        own = f"refs/pull/{self.number}/head"
        if sha is not None and self.repo.bare.resolve(own) != sha:
            source = str(self.head_repo.bare.path)
            self.repo.bare.git("fetch", "--quiet", "--no-tags", source, f"+refs/heads/{self.head_ref}:{own}")
        self.last_sha = sha or self.last_sha
        return Tip(self.head_ref, self.last_sha)

    @property
    def base(self) -> Tip:
        return Tip(self.base_ref, self.repo.bare.sha(self.base_ref) or "0" * 40)


@dataclass(eq=False, kw_only=True)
class Repository:
    id: int
    owner: User
    name: str
    bare: Bare
    private: bool
    created: str
    archived: bool = False
    default_branch: str = "main"
    roles: dict[int, Role] = field(default_factory=dict)
    """By numeric user id, so that a renamed user keeps theirs."""
    threads: dict[int, Issue] = field(default_factory=dict)
    """Issues and pull requests by number: they share one series."""
    labels: dict[str, Label] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    statuses: list[CommitStatus] = field(default_factory=list)
    parent: "Repository | None" = None
    """What it is a fork of."""
    protected: dict[str, str] = field(default_factory=dict)
    """Patterns of branches that nobody may write to, and what is said of it."""
    signed: set[str] = field(default_factory=set)
    """Commits that GitHub has signed."""
    spoiled: str = ""
    """A path that the next commits made over the API get beside what was asked for; empty: none."""

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    def protect(self, pattern: str, why: str) -> None:
        """Nobody may write to these branches any more, over the API or by git."""
        self.protected[pattern] = why
        lines = "".join(f"{one}|{said}\n" for one, said in self.protected.items())
        (self.bare.path / "protected").write_text(lines)

    @property
    def issues(self) -> tuple[Issue, ...]:
        return tuple(thread for thread in self.threads.values() if not isinstance(thread, Pull))

    @property
    def pulls(self) -> tuple[Pull, ...]:
        return tuple(thread for thread in self.threads.values() if isinstance(thread, Pull))

    @property
    def branches(self) -> tuple[str, ...]:
        return self.bare.branches()

    def comments(self, number: int) -> tuple[Comment, ...]:
        return tuple(self.threads[number].comments)

    def read(self, branch: str, path: str) -> str:
        """Text of a file at the tip of a branch. Raises FileNotFoundError."""
        content = self.bare.read(f"refs/heads/{branch}", path)
        if content is None:
            raise FileNotFoundError(f"{self.full_name} has no {path} on {branch}")
        return content.decode()

    def commit(self, branch: str, files: Mapping[str, str | bytes | None], message: str = "Change") -> str:
        """Id of a new commit on `branch` (a new one starts at the default branch): somebody's push."""
        tip = self.bare.sha(self.default_branch)
        if self.bare.sha(branch) is None and tip is not None:
            self.bare.git("update-ref", f"refs/heads/{branch}", tip)
        return self.bare.commit(branch, files, message)

    def diff(self, pull: Pull) -> str:
        return self.bare.diff(pull.base.sha, pull.head.sha)

    def role(self, user: User) -> Role:
        return self.roles.get(user.id) or ("none" if self.private else "read")


@dataclass(eq=False)
class Installation:
    id: int
    app: App
    owner: User
    repositories: list[Repository]
    created: str


@dataclass(eq=False)
class Token:
    value: str = field(repr=False)
    user: User
    expires: datetime | None = None
    repositories: frozenset[int] | None = None
    """Ids that an installation token is good for; None: whatever its user may see."""
    permissions: Mapping[str, str] | None = None
    """Of an installation token; None: whatever its user's role allows."""
    client: Client | None = None
    """Through which its user has logged in."""


@dataclass
class State:
    """Everything, and the only place where something new is made."""

    root: Path
    users: list[User] = field(default_factory=list)
    repositories: list[Repository] = field(default_factory=list)
    apps: list[App] = field(default_factory=list)
    installations: list[Installation] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    """Every attempt at every hook, in order."""
    hooks: list[Hook] = field(default_factory=list)
    conversions: dict[str, Made] = field(default_factory=dict)
    """Apps that were made from a manifest, by the code that tells of their secrets once."""
    passed: timedelta = timedelta()
    """How far our clock is ahead of this machine's."""
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1001))
    _last: datetime = datetime(2020, 1, 1, tzinfo=UTC)

    def next_id(self) -> int:
        return next(self._ids)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.passed

    def stamp(self) -> str:
        """The time in GitHub's form, whole seconds, later than any given before: a change shows."""
        self._last = max(self.now().replace(microsecond=0), self._last + timedelta(seconds=1))
        return self._last.strftime("%Y-%m-%dT%H:%M:%SZ")

    def user(self, login: str, kind: Literal["User", "Bot", "Organization"] = "User") -> User:
        """The user of this name, made if new."""
        if (known := self.find_user(login)) is not None:
            return known
        made = User(self.next_id(), login, kind)
        self.users.append(made)
        return made

    def leave(self, user: User) -> None:
        user.gone = True
        self.users.remove(user)

    def find_user(self, login: str) -> User | None:
        return next((user for user in self.users if user.login.lower() == login.lower()), None)

    def find_repository(self, owner: str, name: str) -> Repository | None:
        full = f"{owner}/{name}".lower()
        return next((repo for repo in self.repositories if repo.full_name.lower() == full), None)

    def issue(self, repo: Repository, title: str, body: str | None, author: User) -> Issue:
        now = self.stamp()
        made = Issue(
            id=self.next_id(), repo=repo, number=len(repo.threads) + 1, title=title, body=body, author=author,
            created=now, updated=now,
        )  # fmt: skip
        repo.threads[made.number] = made
        return made

    def pull(
        self,
        repo: Repository,
        title: str,
        body: str | None,
        author: User,
        head: Tip,
        base: str,
        draft: bool,
        fork: Repository | None = None,
    ) -> Pull:
        now = self.stamp()
        made = Pull(
            id=self.next_id(), repo=repo, number=len(repo.threads) + 1, title=title, body=body, author=author,
            created=now, updated=now, head_ref=head.ref, base_ref=base, draft=draft, last_sha=head.sha,
            head_repo=fork or repo,
        )  # fmt: skip
        repo.threads[made.number] = made
        return made

    def review(self, pull: Pull, body: str, author: User, verdict: ReviewState = "commented") -> Review:
        now = self.stamp()
        made = Review(
            id=self.next_id(), author=author, body=body, state=verdict, sha=pull.head.sha, submitted=now,
            updated=now,
        )  # fmt: skip
        pull.reviews.append(made)
        pull.updated = now
        return made

    def inline(self, thread: ReviewThread, review: Review, body: str) -> Inline:
        made = Inline(
            id=self.next_id(), number=thread.pull.number, author=review.author, body=body,
            created=review.submitted, updated=review.submitted, review=review,
        )  # fmt: skip
        thread.comments.append(made)
        return made

    def comment(self, thread: Issue, body: str, author: User) -> Comment:
        now = self.stamp()
        made = Comment(
            id=self.next_id(), number=thread.number, author=author, body=body, created=now, updated=now
        )
        thread.comments.append(made)
        thread.updated = now
        return made

    def edit(self, thread: Issue, comment: Comment | Review, body: str) -> None:
        comment.body = body
        comment.updated = thread.updated = self.stamp()

    def label(self, thread: Issue, name: str, by: User) -> Label:
        """Puts the label on the thread, made if new: GitHub does so too."""
        label = thread.repo.labels.setdefault(name.lower(), Label(self.next_id(), name))
        if label not in thread.labels:
            thread.labels.append(label)
        thread.updated = self.stamp()
        thread.happened.append(Happening(self.next_id(), "labeled", label, by, thread.updated))
        return label

    def unlabel(self, thread: Issue, label: Label, by: User) -> None:
        thread.labels.remove(label)
        thread.updated = self.stamp()
        thread.happened.append(Happening(self.next_id(), "unlabeled", label, by, thread.updated))

    def react(self, to: Issue | Comment, content: str, user: User) -> Reaction:
        made = Reaction(self.next_id(), user, content, self.stamp())
        to.reactions.append(made)
        return made

    def personal_token(self, user: User) -> Token:
        """A token that may do what its user may; it does not expire."""
        return self._keep(Token(f"ghp_{secrets.token_hex(18)}", user))

    def installation_token(
        self, installation: Installation, repositories: frozenset[int], permissions: Mapping[str, str]
    ) -> Token:
        """A token that acts as the app's bot on these repositories for 3600 s."""
        expires = datetime.now(UTC) + timedelta(hours=1)
        return self._keep(
            Token(f"ghs_{secrets.token_hex(18)}", installation.app.bot, expires, repositories, permissions)
        )

    def _keep(self, token: Token) -> Token:
        self.tokens[token.value] = token
        return token
