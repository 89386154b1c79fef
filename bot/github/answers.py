"""The few fields of GitHub's answers that we read; what it adds or drops elsewhere breaks nothing."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from resolver.domain import Repo, User


class Answer(BaseModel):
    """Some of what GitHub says; the rest is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Account(Answer):
    id: int
    login: str
    type: str = "User"

    def as_user(self) -> User:
        return User(id=self.id, login=self.login)


class Viewer(Answer):
    """Whoever asks GraphQL."""

    login: str


# Where GitHub shows a deleted account as null, and its pages as this one.
GHOST = Account(id=10137, login="ghost")


class RepositoryAnswer(Answer):
    id: int
    full_name: str
    default_branch: str
    private: bool
    archived: bool = False

    def name_of(self) -> Repo:
        owner, _, name = self.full_name.partition("/")
        return Repo(owner=owner, name=name)


class BranchAnswer(Answer):
    name: str


class CommitPointer(Answer):
    sha: str


class RefAnswer(Answer):
    ref: str
    object: CommitPointer


class CommentAnswer(Answer):
    id: int
    html_url: str
    body: str | None = None
    user: Account | None
    created_at: datetime
    updated_at: datetime | None = None


class IssueAnswer(Answer):
    number: int
    title: str
    body: str | None = None
    user: Account | None
    state: str
    html_url: str
    locked: bool = False
    pull_request: dict[str, object] | None = None
    """None for an issue that is none."""


class EndAnswer(Answer):
    ref: str
    sha: str
    repo: RepositoryAnswer | None
    """None when the fork was deleted."""


class PullAnswer(Answer):
    number: int
    node_id: str
    title: str
    body: str | None = None
    user: Account | None
    state: str
    draft: bool = False
    html_url: str
    maintainer_can_modify: bool = False
    """Only said where one is asked for, not in lists."""
    head: EndAnswer
    base: EndAnswer

    @property
    def same_repository(self) -> bool:
        """Whether its branch is not a fork's."""
        return self.head.repo is not None and self.head.repo == self.base.repo


class MergedAnswer(PullAnswer):
    merged_at: datetime | None = None
    closed_at: datetime | None = None


class PermissionAnswer(Answer):
    permission: str
    """The old words: admin, write, read, none."""
    role_name: str = ""
    """The role itself; a company may have invented its own."""
    user: Account | None = None


class AppAnswer(Answer):
    slug: str


class InstallationAnswer(Answer):
    id: int
    permissions: dict[str, str] = {}
    html_url: str = ""
    """Where its owner changes it."""
    suspended_at: str | None = None


class TokenAnswer(Answer):
    token: str
    expires_at: datetime
    permissions: dict[str, str] = {}


class CommitAnswer(Answer):
    """What `git/commits/{sha}` says of a commit."""

    sha: str
    message: str
    tree: CommitPointer
    parents: tuple[CommitPointer, ...]
    verification: "Verification"


class Verification(Answer):
    verified: bool
    reason: str


class ComparisonAnswer(Answer):
    status: str
    """identical, ahead, behind or diverged: the second end, seen from the first."""


class GraphQLError(Answer):
    message: str
    type: str = ""


class GraphQLAnswer(Answer):
    data: dict[str, JsonValue] | None = None
    errors: tuple[GraphQLError, ...] = ()


class CommittedAnswer(Answer):
    """What `createCommitOnBranch` made."""

    commit: "CommitId"


class CommitId(Answer):
    oid: str


class DraftAnswer(Answer):
    """What the two mutations about drafts give back."""

    pull_request: "DraftState" = Field(alias="pullRequest")


class DraftState(Answer):
    is_draft: bool = Field(alias="isDraft")
