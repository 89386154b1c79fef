"""Schemas of GitHub's responses. They have only the fields that Patchwright reads."""

from datetime import datetime

from pydantic import AliasPath, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.resolver.domain import Repo, User


class GitHubResponse(BaseModel):
    """The base class of all schemas. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Account(GitHubResponse):
    id: int
    login: str
    type: str = "User"

    def as_user(self) -> User:
        return User(id=self.id, login=self.login)


class Viewer(GitHubResponse):
    """The account that sends a GraphQL request."""

    login: str


# GitHub's pages show this account as the author of texts whose author deleted their account. The API returns
# null for such an author.
GHOST = Account(id=10137, login="ghost")


class RepositoryResponse(GitHubResponse):
    id: int
    full_name: str
    default_branch: str
    private: bool
    archived: bool = False

    def as_repo(self) -> Repo | None:
        """Returns the repository, or None if Patchwright does not support the form of its name."""
        try:
            return Repo.parse(self.full_name)
        except ValidationError:
            return None


class GistFile(GitHubResponse):
    content: str = ""
    truncated: bool = False


class GistResponse(GitHubResponse):
    """A gist. GitHub returns up to 1 MB of each file. Source: docs.github.com/rest/gists/gists"""

    files: dict[str, GistFile]


class BranchResponse(GitHubResponse):
    name: str


class CommitPointer(GitHubResponse):
    sha: str


class RefResponse(GitHubResponse):
    ref: str
    object: CommitPointer


class CommentResponse(GitHubResponse):
    id: int
    html_url: str
    body: str | None = None
    user: Account | None
    created_at: datetime
    updated_at: datetime | None = None


class LabelResponse(GitHubResponse):
    name: str


class IssueEventResponse(GitHubResponse):
    """An event in the history of an issue or pull request, such as the addition of a label."""

    event: str
    created_at: str
    actor: Account | None = None
    label: LabelResponse | None = None


class IssueResponse(GitHubResponse):
    number: int
    title: str
    body: str | None = None
    user: Account | None
    state: str
    html_url: str
    locked: bool = False
    labels: ValidEntries[LabelResponse] | None = None
    pull_request: dict[str, object] | None = None
    """None for issues."""

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The names of the labels; None if GitHub did not send them."""
        return None if self.labels is None else tuple(label.name for label in self.labels)


class PullRequestBranch(GitHubResponse):
    ref: str
    sha: str
    repo: RepositoryResponse | None
    """The branch's repository; None if the fork was deleted."""


class PullRequestResponse(GitHubResponse):
    number: int
    node_id: str
    title: str
    body: str | None = None
    user: Account | None
    state: str
    draft: bool = False
    locked: bool = False
    html_url: str
    maintainer_can_modify: bool = False
    """True if maintainers may push to the branch. GitHub does not send this field in lists of pull requests."""
    head: PullRequestBranch
    base: PullRequestBranch

    @property
    def is_same_repository(self) -> bool:
        """Returns whether the branch is in the repository itself and not in a fork."""
        return self.head.repo is not None and self.head.repo == self.base.repo


class ClosedPullRequestResponse(PullRequestResponse):
    merged_at: datetime | None = None
    closed_at: datetime | None = None


class PermissionResponse(GitHubResponse):
    permission: str
    """The permission in GitHub's older system: admin, write, read or none."""
    role_name: str = ""
    """The name of the role. An organization can define its own roles."""
    user: Account | None = None


class AppResponse(GitHubResponse):
    slug: str


class InstallationResponse(GitHubResponse):
    id: int
    permissions: dict[str, str] = {}
    html_url: str = ""
    """URL of the page on which the owner changes the installation."""
    suspended_at: str | None = None


class InstallationTokenResponse(GitHubResponse):
    token: str
    expires_at: datetime
    permissions: dict[str, str] = {}


class CommitResponse(GitHubResponse):
    """The response of `git/commits/{sha}`."""

    sha: str
    message: str
    tree: CommitPointer
    parents: tuple[CommitPointer, ...]
    is_verified: bool = Field(validation_alias=AliasPath("verification", "verified"))
    verification_reason: str = Field(validation_alias=AliasPath("verification", "reason"))


class ComparisonResponse(GitHubResponse):
    status: str
    """The result of comparing two commits: the second one is identical, ahead, behind or diverged."""


class GraphQLError(GitHubResponse):
    message: str
    type: str = ""


class GraphQLResponse(GitHubResponse):
    data: dict[str, JsonValue] | None = None
    errors: tuple[GraphQLError, ...] = ()


class CreateCommitResponse(GitHubResponse):
    """The response of `createCommitOnBranch`."""

    sha: str = Field(validation_alias=AliasPath("commit", "oid"))
