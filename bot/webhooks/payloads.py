"""The fields of GitHub's webhook payloads that Patchwright reads.

githubkit's models are not used, because they reject 107 of GitHub's 329 example payloads and need 3 ms per
payload.
Source: docs.github.com/webhooks/webhook-events-and-payloads
"""

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, ValidationError

from patchwright.resolver.domain import Repo


class PayloadModel(BaseModel):
    """Part of a payload; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ActionPayload(PayloadModel):
    action: str = ""


class IdOnly(PayloadModel):
    id: int


class Account(PayloadModel):
    id: int
    login: str
    type: str = "User"


class Owner(PayloadModel):
    login: str


class Repository(PayloadModel):
    id: int
    name: str
    owner: Owner


class Label(PayloadModel):
    name: str


class ThreadSummary(PayloadModel):
    number: int = Field(ge=1)
    title: str | None = None
    body: str | None = None


class ThreadDetails(ThreadSummary):
    updated_at: str
    closed_at: str | None = None


class PerformingApp(PayloadModel):
    """The App that wrote on behalf of a user."""

    id: int
    client_id: str | None = None
    slug: str | None = None

    def identifiers(self) -> frozenset[str]:
        return frozenset(name for name in (str(self.id), self.client_id, self.slug) if name)


class WrittenText(PayloadModel):
    """A comment, or the text that opens an issue."""

    body: str | None
    created_at: str = ""
    performed_via_github_app: PerformingApp | None = None


class IssueComment(WrittenText):
    id: int


class RepositoryPayload(PayloadModel):
    repository: Repository
    sender: Account
    installation: IdOnly | None = None

    @property
    def installation_id(self) -> int | None:
        return self.installation.id if self.installation else None


class DeliveryOrigin(PayloadModel):
    """The repository and the App installation of a delivery. `repository` is None if the event belongs to no
    repository, and `installation` is None if it belongs to no installation.
    """

    repository: Repository | None = None
    installation: IdOnly | None = None


class CheckSuite(PayloadModel):
    head_branch: str | None
    """The branch of the checked commit; None if the commit belongs to a fork or to no branch."""
    head_sha: str


class ChecksPayload(RepositoryPayload):
    """The payload of an event that reports the completion of the checks on a commit."""

    suite: CheckSuite = Field(
        validation_alias=AliasChoices("check_suite", AliasPath("check_run", "check_suite"), "workflow_run")
    )


class StatusBranch(PayloadModel):
    name: str


class StatusPayload(RepositoryPayload):
    sha: str
    branches: tuple[StatusBranch, ...]

    @property
    def suite(self) -> CheckSuite:
        branch = self.branches[0].name if self.branches else None
        return CheckSuite(head_branch=branch, head_sha=self.sha)


AnyChecks = ChecksPayload | StatusPayload


class IssuePayload(RepositoryPayload):
    issue: ThreadDetails


class LabelPayload(RepositoryPayload):
    label: Label
    thread: ThreadDetails = Field(validation_alias=AliasChoices("issue", "pull_request"))


class IssueCommentPayload(RepositoryPayload):
    issue: ThreadSummary
    comment: IssueComment


class OpenedIssue(ThreadSummary, WrittenText):
    user: IdOnly | None = None
    """The author; None if the account was deleted."""


class IssueOpenedPayload(RepositoryPayload):
    issue: OpenedIssue


class Review(PayloadModel):
    id: int
    body: str | None
    submitted_at: str | None = None


class ReviewComment(PayloadModel):
    id: int
    body: str | None
    created_at: str = ""
    pull_request_review_id: int | None = None


class PullPayload(RepositoryPayload):
    pull_request: ThreadSummary


class ReviewPayload(PullPayload):
    review: Review


class ReviewCommentPayload(PullPayload):
    comment: ReviewComment


class PullRef(PayloadModel):
    ref: str
    repo: IdOnly | None = None
    """The branch's repository; None if the fork was deleted."""


class ClosedPull(ThreadDetails):
    merged: bool = False
    user: IdOnly | None = None
    head: PullRef
    base: PullRef


class PullClosedPayload(RepositoryPayload):
    pull_request: ClosedPull


class RepositoryName(PayloadModel):
    full_name: str

    def as_repo(self) -> Repo | None:
        """Returns the repository, or None if Patchwright does not support the form of its name."""
        try:
            return Repo.parse(self.full_name)
        except ValidationError:
            return None


class InstallationDetails(PayloadModel):
    """An installation, as in the payloads of installation events."""

    id: int
    html_url: str = ""
    permissions: dict[str, str] = {}


class InstallationPayload(PayloadModel):
    installation: InstallationDetails
    repositories: tuple[RepositoryName, ...] = ()
    """The repositories of a new installation. GitHub sends them for other actions, too."""
    repositories_added: tuple[RepositoryName, ...] = ()
    repositories_removed: tuple[RepositoryName, ...] = ()

    def list_repositories(self, action: str) -> tuple[Repo, ...]:
        """Returns the repositories that the action adds or removes; empty if the action concerns all
        repositories.
        """
        by_action = {
            "created": self.repositories,
            "added": self.repositories_added,
            "removed": self.repositories_removed,
        }
        return tuple(repo for one in by_action.get(action, ()) if (repo := one.as_repo()))
