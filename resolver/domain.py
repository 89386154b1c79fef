"""Domain model: jobs, threads, patches, test runs, verdicts and outcomes."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, NewType

from pydantic import Field

from patchwright.resolver.command_parser import Request, RunOptions, parse_request
from patchwright.resolver.conditions import Condition
from patchwright.resolver.confirmation import ConfirmationRequest
from patchwright.resolver.cost import Cost, MinimumCost, TokenUsage, known_usd
from patchwright.resolver.run_results import TestRun as TestRun
from patchwright.resolver.run_results import TestStatus as TestStatus
from patchwright.runtime.frozen_model import FrozenModel

JobId = NewType("JobId", str)
RunId = JobId
"""The id of the run's job. If the trigger is delivered again, the id is the same, so the run is resumed."""


class Repo(FrozenModel):
    """A repository on a forge."""

    # The logins of enterprise managed users contain `_`. Source: docs.github.com, "Username considerations".
    owner: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,38}$")
    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @classmethod
    def parse(cls, full_name: str) -> "Repo":
        """Returns the repository `owner/name`. Raises ValidationError."""
        owner, _, name = full_name.partition("/")
        return cls(owner=owner, name=name)


class User(FrozenModel):
    """A person or bot on the forge."""

    id: int
    """The forge's numeric id. Unlike a login, it never changes."""
    login: str


class ThreadSnapshot(FrozenModel):
    """The title and text of an issue or pull request at the time of the trigger."""

    title: str
    body: str
    taken_at: datetime
    """Time of the trigger in UTC."""


class Job(FrozenModel):
    """A unit of work that one trigger requests. If a trigger is delivered again, the job is the same."""

    id: JobId
    """Identifies the trigger and the run. A repeated delivery of an event therefore has the same id."""
    repo: Repo
    number: int = Field(ge=0)  # 0 if the job is part of an evaluation, and has no thread
    requester: User | None
    """The user whose permission is checked. None if the operator or a failed check triggered the job."""
    command: str = ""
    """Text after the mention, with its command word and options."""
    installation_id: int | None = None
    """Id of the App installation for the repository. None if the id is unknown or a token is used."""
    review_id: int | None = None
    """Id of the pull request review that triggered the job; None if no review triggered it. All inline
    comments of that review belong to the request.
    """
    review_comment_id: int | None = None
    """Id of the single inline comment that triggered the job. None if something else triggered it."""
    failed_checks_commit: str = ""
    """Id of the bot's commit whose failed checks triggered this job. Empty if the job has another trigger."""
    label: str | None = None
    """Name of the label that triggered the job; None if a text triggered it."""
    is_evaluation: bool = False
    retry_of: RunId | None = None
    """Id of the run that a `retry` command names; None for the latest run of the thread."""
    expired_call: str = ""
    """Code of the call that nobody approved in time, so that this job rejects it; empty for all other jobs."""
    snapshot: ThreadSnapshot | None = None
    """The title and text of the thread at the time of the trigger, so that later edits by people without
    write access have no effect. None if they are unknown.
    """

    @property
    def request(self) -> Request:
        """The parsed command."""
        return parse_request(self.command)

    def is_covered_by(self, run: "Job") -> bool:
        """Returns True if this job requests nothing more than the job `run` on the same issue.

        Returns False if a label triggered both jobs, because the second label requests another run.
        """
        request = self.request
        of_checks_or_review = any(
            one.failed_checks_commit or one.review_id or one.review_comment_id for one in (self, run)
        )
        says_no_more = request.verb == "work" and not request.text and request.options == RunOptions()
        return says_no_more and not of_checks_or_review and not (self.label and run.label)


class Comment(FrozenModel):
    """A comment of a thread, in its state when the job started."""

    author: User
    body: str
    trusted: bool
    """True if the author may write to the repository."""


class _ForgeThread(FrozenModel):
    """What an issue and a pull request have in common."""

    kind: str
    number: int
    title: str
    body: str
    author: User
    trusted: bool
    open: bool
    url: str
    comments: tuple[Comment, ...] = ()
    reported_runs: tuple[str, ...] = ()
    """Ids of the runs that have posted a report in this thread, oldest first."""
    question: str = ""
    """The latest question that an earlier run asked here; empty if there is none."""
    locked: bool = False
    """True if only people with write access can still comment. A GitHub App cannot comment either."""
    labels: tuple[str, ...] | None = None  # None if unknown.


class Issue(_ForgeThread):
    """An issue, in its state when the job started."""

    kind: Literal["issue"] = "issue"

    @classmethod
    def from_text(cls, text: str) -> "Issue":
        """Returns an issue that is on no forge. The first line of the text is its title."""
        title, _, body = text.strip().lstrip("# \r\n\t").partition("\n")
        # If the author's login were "you", the model would think that it is the author.
        author = User(id=0, login="operator")
        return cls(
            number=1, title=title.strip(), body=body.strip(), author=author, trusted=True, open=True, url=""
        )


class ReviewThread(FrozenModel):
    """The comments of a review about one place in a pull request."""

    id: str
    """The forge's id of the thread."""
    first_comment_id: int
    """Id of the first comment. Answers are posted as replies to it."""
    path: str
    line: int | None
    """Line number in the pull request's version of the file. None for a whole file or a removed line."""
    hunk: str
    """Diff lines above the comment; empty if there are none."""
    resolved: bool
    is_trigger: bool = False
    """True if the comment that triggered the job is in this thread."""
    comments: tuple[Comment, ...]


class PullRequest(_ForgeThread):
    """A pull request on the forge."""

    kind: Literal["pull_request"] = "pull_request"
    head_branch: str
    head_sha: str
    base_branch: str
    draft: bool
    is_same_repository: bool
    """False for a pull request from a fork."""
    base_sha: str = ""
    """Commit of the base branch that provides settings and instructions; empty if it was not looked up."""
    head_repo: Repo | None = None
    """Repository of the head branch; None if the repository was deleted or was not looked up."""
    maintainer_can_modify: bool = False
    """True if the fork's owner lets maintainers of the repository push to it."""
    threads: tuple[ReviewThread, ...] = ()
    """Review threads, oldest first."""
    review: Comment | None = None
    """Body of the review that triggered the job. None if the body is empty or no review triggered the job."""


Thread = Annotated[Issue | PullRequest, Field(discriminator="kind")]


class Patch(FrozenModel):
    """A change against one commit."""

    base_sha: str
    """Full commit id."""
    diff: bytes
    """Output of `git diff --binary --full-index`. Only git applies this diff."""

    @property
    def is_empty(self) -> bool:
        return not self.diff.strip()


# --- verification -------------------------------------------------------------------------------------------

VerdictKind = Literal["empty", "regressed", "untested", "unproven", "conditional", "fixed"]
"""From worst to best."""


class ModelReview(FrozenModel):
    """A second model's opinion on a patch, based on the issue and the diff."""

    approved: bool
    reasons: str
    """The reasons for the opinion, written for human reviewers."""
    model: str


class Verdict(FrozenModel):
    """The result of verifying a patch. Only test runs decide it.

    - empty: there is no diff.
    - untested: no test results are available.
    - regressed: a test that passed at base fails twice with the patch, and the patch did not change that
      test.
    - fixed: nothing regressed, and a test that failed at base passes because the patch changes the tested code.
    - conditional: tests show the fix as for `fixed`, and a person has to agree to the `conditions`.
    - unproven: all other cases. For example, no test shows the fix, or a test from the patch fails.

    `review` adds an opinion that does not change the kind of verdict.
    """

    kind: VerdictKind
    fail_to_pass: tuple[str, ...] = ()
    pass_to_fail: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Tests that passed at base but were skipped or not run with the patch."""
    modified_tests_failing: tuple[str, ...] = ()
    """Tests that the patch changes or deletes. Their old version passes at base and fails with the patch."""
    replaced_failing_tests: tuple[str, ...] = ()
    """Tests that the patch changes or deletes. Their old version fails at base and still fails with the patch."""
    new_tests_at_base: dict[str, TestStatus] = Field(default_factory=dict)
    """Results of the patch's new and changed tests on the base code. A changed test is included only if its old
    version did not fail on the base code and its new version has another result than the old one.
    """
    patch_tests_failing: tuple[str, ...] = ()
    """Tests from the patch that failed with the patch in two runs."""
    weakened_tests: tuple[str, ...] = ()
    """One sentence for each existing test file in which the patch weakens checks."""
    deleted_test_files: tuple[str, ...] = ()
    """Test files that the patch deletes."""
    reverted_test_config: tuple[str, ...] = ()
    """Test configuration files that the patch changes. The tests ran without these changes."""
    added_packages: tuple[str, ...] = ()
    """Packages that the patch adds to the dependencies, and that were installed for the runs with the patch."""
    unusual_files: tuple[str, ...] = ()
    """Changed files that are neither source code of the base commit nor tests, if the fix cannot be shown without
    their changes.
    """
    environment_dependent: tuple[str, ...] = ()
    """Tests that show the fix, but pass with the patch only if the code can tell that it is being tested."""
    documentation_only: bool = False
    """True if the patch changes only documentation and no test fails, so that there is nothing to test."""
    partial: bool = False
    """True if only the tests that the patch may affect have run. The whole suite runs later if needed."""
    review: ModelReview | None = None
    """A second model's opinion, if one was requested."""
    conditions: tuple[Condition, ...] = ()
    """What a person has to agree to before the patch is merged. Empty for most patches."""
    reason: str = ""
    """Why the verdict has this kind and not a better one, in one sentence."""
    before: TestRun | None = None
    after: TestRun | None = None


# --- outcomes -----------------------------------------------------------------------------------------------

StopReason = Literal["finished", "input_required", "limit", "stuck", "interrupted", "error"]


class Usage(FrozenModel):
    """The cost, tokens, steps and time that a run has used so far."""

    usd: Decimal = Decimal(0)
    """The part of the cost that is known."""
    unpriced: bool = False
    """True if the price of at least one call is unknown. In that case, `usd` is a lower bound."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
    """Number of steps. A step is a reply of the model with its tool calls."""
    seconds: float = 0.0
    """Working time since the settings were recorded, without the time for waiting and publishing."""

    @property
    def cost(self) -> Cost:
        """The cost in dollars: a MinimumCost if some prices are unknown, None if all are or no model replied."""
        if self.unpriced or not (self.usd or self.steps or self.tokens):
            return MinimumCost(usd=self.usd) if self.usd else None
        return self.usd

    @property
    def has_unknown_cost(self) -> bool:
        """True if a model has replied, and no part of the cost is known."""
        return self.unpriced and not self.usd

    @property
    def tokens(self) -> int:
        """The sum of the tokens of prompts (including cached ones) and completions."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, usage: TokenUsage, *, steps: int = 0, unpriced: bool = False) -> "Usage":
        """Returns the sum of this usage and another one. The times may overlap, so they are not added."""
        return Usage(
            usd=self.usd + known_usd(usage.usd),
            unpriced=self.unpriced or unpriced or not isinstance(usage.usd, Decimal),
            prompt_tokens=self.prompt_tokens + usage.prompt_tokens,
            cached_tokens=self.cached_tokens + usage.cached_tokens,
            completion_tokens=self.completion_tokens + usage.completion_tokens,
            steps=self.steps + steps,
            seconds=self.seconds,
        )


class Published(FrozenModel):
    """The outcome of a job whose pull request is open. The forge confirmed that it is open."""

    kind: Literal["published"] = "published"
    url: str
    number: int
    branch: str
    draft: bool
    verdict: Verdict
    ci_state: Literal["starts", "held", "silent"] = "starts"
    """States whether continuous integration runs on the pull request's commit (`resolver/ci/ci_hold.py`)."""


class Reported(FrozenModel):
    """The outcome of a job that opened or changed no pull request. A comment in the thread explains the reason."""

    kind: Literal["reported"] = "reported"
    url: str
    branch: str | None
    """Branch with the work, if there was any."""
    reason: str
    verdict: Verdict | None = None
    """None if the job was not about a change, for example if it was a question."""


class Rejected(FrozenModel):
    """The outcome of a job that was not admitted. `explanation` is a text for the person who triggered the job."""

    kind: Literal["rejected"] = "rejected"
    explanation: str


class InputRequired(FrozenModel):
    """The outcome of a job that waits for the answer to a question in the thread."""

    kind: Literal["input_required"] = "input_required"
    url: str
    question: str
    confirmation: ConfirmationRequest | None = None
    """The call that waits for approval; None if the job waits for an answer."""


Outcome = Annotated[Published | Reported | Rejected | InputRequired, Field(discriminator="kind")]


class Credentials(FrozenModel):
    """An access token for one repository."""

    token: str = Field(repr=False)
    expires: datetime | None = None
    """Time in UTC when the token expires; None if the token does not expire during the run."""


class SalvagedWork(FrozenModel):
    """Where the work of a stopped run was saved."""

    branch: str | None = None
    """Name of the branch with the work. None if there was no work, or if it could not be pushed."""
    files: tuple[str, ...] = ()
    """Paths of the changed files."""
    excluded_changes: tuple[str, ...] = ()
    """One sentence for each change that the patch policy forbids. These changes are not on the branch."""
    problem: str = ""
    """One sentence that says why there is no branch although there was work. The log still contains the work.
    """
    pasted_patch: str = ""
    """Markdown with the patch, if no branch could be pushed."""
