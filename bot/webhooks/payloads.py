"""The few fields of GitHub's webhook payloads that we read.

Models of our own, not githubkit's: those reject 107 of GitHub's 329 example payloads and cost 3 ms each.
Source: docs.github.com/webhooks/webhook-events-and-payloads
"""

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """Some of what a payload says; the rest is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Event(Part):
    action: str = ""


class Account(Part):
    id: int
    login: str
    type: str = "User"


class Owner(Part):
    login: str


class Repository(Part):
    id: int
    name: str
    owner: Owner


class Installation(Part):
    id: int


class Label(Part):
    name: str


class Numbered(Part):
    number: int = Field(ge=1)
    title: str | None = None
    body: str | None = None


class Thread(Numbered):
    updated_at: str
    closed_at: str | None = None


class ThroughApp(Part):
    """The App that somebody wrote through."""

    id: int
    client_id: str | None = None
    slug: str | None = None

    def names(self) -> frozenset[str]:
        return frozenset(name for name in (str(self.id), self.client_id, self.slug) if name)


class Comment(Part):
    id: int
    body: str | None
    created_at: str = ""
    performed_via_github_app: ThroughApp | None = None


class InRepository(Part):
    repository: Repository
    sender: Account
    installation: Installation | None = None


class Suite(Part):
    head_branch: str | None
    """None: of a fork, or of no branch."""
    head_sha: str


class Ended(InRepository):
    """Something that was run on a commit has ended."""

    @property
    def suite(self) -> Suite:
        raise NotImplementedError


class SuiteEnded(Ended):
    check_suite: Suite

    @property
    def suite(self) -> Suite:
        return self.check_suite


class Run(Part):
    check_suite: Suite


class RunEnded(Ended):
    check_run: Run

    @property
    def suite(self) -> Suite:
        return self.check_run.check_suite


class WorkflowEnded(Ended):
    workflow_run: Suite

    @property
    def suite(self) -> Suite:
        return self.workflow_run


class StatusBranch(Part):
    name: str


class StatusSet(Ended):
    sha: str
    branches: tuple[StatusBranch, ...]

    @property
    def suite(self) -> Suite:
        branch = self.branches[0].name if self.branches else None
        return Suite(head_branch=branch, head_sha=self.sha)


ENDED: dict[tuple[str, str], type[Ended]] = {
    ("check_suite", "completed"): SuiteEnded,
    ("check_run", "completed"): RunEnded,
    ("workflow_run", "completed"): WorkflowEnded,
    ("status", ""): StatusSet,
}
"""By event and action."""


class OnIssue(InRepository):
    issue: Thread


class IssueLabel(OnIssue):
    label: Label


class PullLabel(InRepository):
    pull_request: Thread
    label: Label


class CommentCreated(OnIssue):
    comment: Comment


class Review(Part):
    id: int
    body: str | None
    submitted_at: str | None = None


class Inline(Part):
    id: int
    body: str | None
    created_at: str = ""
    pull_request_review_id: int | None = None


class OnPull(InRepository):
    pull_request: Numbered


class ReviewSubmitted(OnPull):
    review: Review


class InlineCreated(OnPull):
    comment: Inline


class Identified(Part):
    id: int


class End(Part):
    ref: str
    repo: Identified | None = None
    """None when the fork was deleted."""


class ClosedThread(Thread):
    merged: bool = False
    user: Identified | None = None
    head: End
    base: End


class PullClosed(InRepository):
    pull_request: ClosedThread


class Named(Part):
    full_name: str


class Home(Part):
    """An installation as the events tell of it that are about itself."""

    id: int
    html_url: str = ""
    permissions: dict[str, str] = {}


class InstallationChanged(Part):
    installation: Home


class RepositoriesChanged(InstallationChanged):
    repositories_added: tuple[Named, ...] = ()
    repositories_removed: tuple[Named, ...] = ()
