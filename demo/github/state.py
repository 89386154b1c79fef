"""The state of the fake server: people, repositories, issues, pull requests, Apps and tokens."""

import itertools
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from patchwright.demo.github.app_models import AppConversion, GitHubApp, OAuthClient
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.demo.github.check_models import CheckRun, CommitStatus
from patchwright.demo.github.webhook_models import Delivery, IssueEvent, RegisteredWebhook

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
ROLES: tuple[Role, ...] = ("none", "read", "triage", "write", "maintain", "admin")  # weakest first

# Permissions that the App requests when it is installed, by GitHub's names.
APP_PERMISSIONS = {"metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write"}


@dataclass(eq=False)
class User:
    id: int
    login: str
    kind: Literal["User", "Bot", "Organization"] = "User"
    is_deleted: bool = False
    """True if the account was deleted."""


@dataclass(eq=False)
class Label:
    id: int
    name: str
    color: str = "ededed"
    description: str | None = None


class Reaction(NamedTuple):
    id: int
    user: User
    content: str
    created: str


@dataclass(eq=False, kw_only=True)
class Comment:
    id: int
    number: int
    """Number of the issue or pull request that contains the comment."""
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
    events: list[IssueEvent] = field(default_factory=list)

    @property
    def state(self) -> Literal["open", "closed"]:
        return "open" if self.closed is None else "closed"


class BranchTip(NamedTuple):
    """A branch and the commit that it points to."""

    ref: str
    sha: str


ReviewState = Literal["commented", "approved", "changes_requested"]


@dataclass(eq=False, kw_only=True)
class Review:
    """A review of a pull request."""

    id: int
    author: User
    body: str
    state: ReviewState
    sha: str
    """Head of the pull request at the time of the review."""
    submitted: str
    updated: str


@dataclass(eq=False, kw_only=True)
class ReviewComment(Comment):
    """A comment in a review thread."""

    review: Review


@dataclass(eq=False, kw_only=True)
class ReviewThread:
    """A conversation about one line of a pull request."""

    id: int
    pull: "FakePullRequest" = field(repr=False)
    path: str
    line: int
    """Line number in the file at the head of the pull request."""
    hunk: str
    comments: list[ReviewComment] = field(default_factory=list)
    resolved_by: User | None = None


@dataclass(eq=False, kw_only=True)
class FakePullRequest(Issue):
    head_repo: "Repository" = field(repr=False)
    """The pull request's own repository, or a fork of it."""
    head_ref: str
    base_ref: str
    draft: bool
    last_sha: str
    """The last known head commit. It is stored because the branch may be deleted."""
    maintainer_can_modify: bool = False
    merged: str | None = None
    requested_reviewers: list[User] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    review_threads: list[ReviewThread] = field(default_factory=list)

    @property
    def head(self) -> BranchTip:
        """The tip of the head branch. The tip is also copied to refs/pull/, because a fork can be deleted."""
        sha = self.head_repo.bare.branch_sha(self.head_ref)
        own = f"refs/pull/{self.number}/head"
        if sha is not None and self.repo.bare.resolve(own) != sha:
            source = str(self.head_repo.bare.path)
            self.repo.bare.git("fetch", "--quiet", "--no-tags", source, f"+refs/heads/{self.head_ref}:{own}")
        self.last_sha = sha or self.last_sha
        return BranchTip(self.head_ref, self.last_sha)

    @property
    def base(self) -> BranchTip:
        return BranchTip(self.base_ref, self.repo.bare.branch_sha(self.base_ref) or "0" * 40)


@dataclass(eq=False, kw_only=True)
class Repository:
    id: int
    owner: User
    name: str
    bare: BareRepository
    private: bool
    created: str
    archived: bool = False
    default_branch: str = "main"
    roles: dict[int, Role] = field(default_factory=dict)
    """Role of each user by user id. A renamed user therefore keeps the role."""
    threads: dict[int, Issue] = field(default_factory=dict)
    """Issues and pull requests by number. As on GitHub, both are numbered in one sequence."""
    labels: dict[str, Label] = field(default_factory=dict)
    checks: list[CheckRun] = field(default_factory=list)
    statuses: list[CommitStatus] = field(default_factory=list)
    parent: "Repository | None" = None
    """The repository of which this one is a fork."""
    protected: dict[str, str] = field(default_factory=dict)
    """Patterns of the names of protected branches, each with the error message for a rejected write."""
    signed: set[str] = field(default_factory=set)
    """Commits that GitHub signed."""
    injected_path: str = ""
    """If not empty, each commit through the API also changes this path, although the request does not name it."""

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    def protect(self, pattern: str, message: str) -> None:
        """Protects the branches that match the pattern. Writes through the API or git fail with the message."""
        self.protected[pattern] = message
        lines = "".join(f"{one}|{said}\n" for one, said in self.protected.items())
        (self.bare.path / "protected").write_text(lines)

    @property
    def issues(self) -> tuple[Issue, ...]:
        return tuple(thread for thread in self.threads.values() if not isinstance(thread, FakePullRequest))

    @property
    def pulls(self) -> tuple[FakePullRequest, ...]:
        return tuple(thread for thread in self.threads.values() if isinstance(thread, FakePullRequest))

    @property
    def branches(self) -> tuple[str, ...]:
        return self.bare.branches()

    def comments(self, number: int) -> tuple[Comment, ...]:
        return tuple(self.threads[number].comments)

    def read(self, branch: str, path: str) -> str:
        """Returns the text of a file at the tip of a branch. Raises FileNotFoundError."""
        content = self.bare.read(f"refs/heads/{branch}", path)
        if content is None:
            raise FileNotFoundError(f"{self.full_name} has no {path} on {branch}")
        return content.decode()

    def commit(self, branch: str, files: Mapping[str, str | bytes | None], message: str = "Change") -> str:
        """Commits to `branch` and returns the id of the commit. A new branch starts at the default branch."""
        tip = self.bare.branch_sha(self.default_branch)
        if self.bare.branch_sha(branch) is None and tip is not None:
            self.bare.git("update-ref", f"refs/heads/{branch}", tip)
        return self.bare.commit(branch, files, message)

    def diff(self, pull: FakePullRequest) -> str:
        return self.bare.diff(pull.base.sha, pull.head.sha)

    def role(self, user: User) -> Role:
        return self.roles.get(user.id) or ("none" if self.private else "read")


@dataclass(eq=False)
class Installation:
    id: int
    app: GitHubApp
    owner: User
    repositories: list[Repository]
    created: str


@dataclass(eq=False)
class Token:
    value: str = field(repr=False)
    user: User
    expires: datetime | None = None
    repositories: frozenset[int] | None = None
    """Ids of the repositories that the token can access; None means all repositories that its user can see."""
    permissions: Mapping[str, str] | None = None
    """Permissions of an installation token. None means that the role of the user decides."""
    client: OAuthClient | None = None
    """The OAuth client through which the user signed in, if any."""


@dataclass
class GitHubState:
    """The complete state, and the only place where new objects are created."""

    root: Path
    users: list[User] = field(default_factory=list)
    repositories: list[Repository] = field(default_factory=list)
    apps: list[GitHubApp] = field(default_factory=list)
    installations: list[Installation] = field(default_factory=list)
    clients: dict[str, OAuthClient] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    """Every attempt to deliver a webhook, in order."""
    hooks: list[RegisteredWebhook] = field(default_factory=list)
    conversions: dict[str, AppConversion] = field(default_factory=dict)
    """Apps created from a manifest. Each key is the code with which the App's secrets can be fetched once."""
    time_offset: timedelta = timedelta()
    """How far the server's clock is ahead of this machine's."""
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1001))
    _last_stamp: datetime = datetime(2020, 1, 1, tzinfo=UTC)

    def next_id(self) -> int:
        return next(self._ids)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.time_offset

    def next_timestamp(self) -> str:
        """Returns a unique, increasing time in GitHub's form, so that each change has a later time."""
        self._last_stamp = max(self.now().replace(microsecond=0), self._last_stamp + timedelta(seconds=1))
        return self._last_stamp.strftime("%Y-%m-%dT%H:%M:%SZ")

    def find_or_create_user(self, login: str, kind: Literal["User", "Bot", "Organization"] = "User") -> User:
        """Returns the user with this login; creates it if necessary."""
        if (known := self.find_user(login)) is not None:
            return known
        made = User(self.next_id(), login, kind)
        self.users.append(made)
        return made

    def delete_user(self, user: User) -> None:
        user.is_deleted = True
        self.users.remove(user)

    def find_user(self, login: str) -> User | None:
        return next((user for user in self.users if user.login.lower() == login.lower()), None)

    def find_repository(self, owner: str, name: str) -> Repository | None:
        full = f"{owner}/{name}".lower()
        return next((repo for repo in self.repositories if repo.full_name.lower() == full), None)

    def create_issue(self, repo: Repository, title: str, body: str | None, author: User) -> Issue:
        now = self.next_timestamp()
        made = Issue(
            id=self.next_id(), repo=repo, number=len(repo.threads) + 1, title=title, body=body, author=author,
            created=now, updated=now,
        )  # fmt: skip
        repo.threads[made.number] = made
        return made

    def create_pull(
        self,
        repo: Repository,
        title: str,
        body: str | None,
        author: User,
        head: BranchTip,
        base: str,
        draft: bool,
        fork: Repository | None = None,
    ) -> FakePullRequest:
        made = FakePullRequest(
            id=self.next_id(), repo=repo, number=len(repo.threads) + 1, title=title, body=body, author=author,
            created=(now := self.next_timestamp()), updated=now, head_ref=head.ref, base_ref=base, draft=draft,
            last_sha=head.sha, head_repo=fork or repo,
        )  # fmt: skip
        repo.threads[made.number] = made
        made.last_sha = made.head.sha  # Like GitHub, copies the tip to refs/pull/ at once.
        return made

    def create_review(
        self, pull: FakePullRequest, body: str, author: User, verdict: ReviewState = "commented"
    ) -> Review:
        now = self.next_timestamp()
        made = Review(
            id=self.next_id(), author=author, body=body, state=verdict, sha=pull.head.sha, submitted=now,
            updated=now,
        )  # fmt: skip
        pull.reviews.append(made)
        pull.updated = now
        return made

    def add_review_comment(self, thread: ReviewThread, review: Review, body: str) -> ReviewComment:
        made = ReviewComment(
            id=self.next_id(), number=thread.pull.number, author=review.author, body=body,
            created=review.submitted, updated=review.submitted, review=review,
        )  # fmt: skip
        thread.comments.append(made)
        return made

    def add_comment(self, thread: Issue, body: str, author: User) -> Comment:
        now = self.next_timestamp()
        made = Comment(
            id=self.next_id(), number=thread.number, author=author, body=body, created=now, updated=now
        )
        thread.comments.append(made)
        thread.updated = now
        return made

    def edit_comment(self, thread: Issue, comment: Comment | Review, body: str) -> None:
        comment.body = body
        comment.updated = thread.updated = self.next_timestamp()

    def add_label(self, thread: Issue, name: str, by: User) -> Label:
        """Adds a label to a thread. Creates the label if necessary, as GitHub does."""
        label = thread.repo.labels.setdefault(name.lower(), Label(self.next_id(), name))
        if label not in thread.labels:
            thread.labels.append(label)
        thread.updated = self.next_timestamp()
        thread.events.append(IssueEvent(self.next_id(), "labeled", label, by, thread.updated))
        return label

    def remove_label(self, thread: Issue, label: Label, by: User) -> None:
        thread.labels.remove(label)
        thread.updated = self.next_timestamp()
        thread.events.append(IssueEvent(self.next_id(), "unlabeled", label, by, thread.updated))

    def add_reaction(self, to: Issue | Comment, content: str, user: User) -> Reaction:
        made = Reaction(self.next_id(), user, content, self.next_timestamp())
        to.reactions.append(made)
        return made

    def create_personal_token(self, user: User) -> Token:
        """Creates a token that has all permissions of its user and does not expire."""
        return self._store_token(Token(f"ghp_{secrets.token_hex(18)}", user))

    def create_installation_token(
        self, installation: Installation, repositories: frozenset[int], permissions: Mapping[str, str]
    ) -> Token:
        """Creates a token that acts as the App's bot on these repositories for 3600 s."""
        expires = datetime.now(UTC) + timedelta(hours=1)
        return self._store_token(
            Token(f"ghs_{secrets.token_hex(18)}", installation.app.bot, expires, repositories, permissions)
        )

    def _store_token(self, token: Token) -> Token:
        self.tokens[token.value] = token
        return token
