"""The nouns of the work: what is asked, what was made, how it was judged, and how it ended."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, NewType

from pydantic import Field

from resolver.cost import AtLeast, Bill, Cost, known
from resolver.request.request import Options, Request, request
from runtime.frozen import Frozen

JobId = NewType("JobId", str)
RunId = JobId
"""A run is named by its job: the same trigger goes on where it stopped."""


class Repo(Frozen):
    """A repository on a forge."""

    # `_` stands in the names of an enterprise's managed users: docs.github.com, "Username considerations".
    owner: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,38}$")
    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


class User(Frozen):
    """A person or bot on the forge."""

    id: int
    """The forge's numeric id: a login can be renamed and taken by somebody else."""
    login: str


class Pinned(Frozen):
    """An issue or a pull request as it was when somebody asked for work on it."""

    title: str
    body: str
    at: datetime
    """When that was; UTC."""


class Job(Frozen):
    """One trigger, asked for by one person. The same trigger twice is the same job."""

    id: JobId
    """Identity of the trigger (label event, comment), so a redelivery is the same job. Also the run's name."""
    repo: Repo
    number: int = Field(ge=1)
    requester: User | None
    """Whose permission counts. None: the operator at the command line, who needs none."""
    command: str = ""
    """What was said beyond the issue itself: the text after the mention, with its command word and options."""
    installation: int | None = None
    """App installation that may act on the repository; None with a token, or to be looked up."""
    review: int | None = None
    """Id of the review of a pull request that is the trigger, with all its inline comments; else None."""
    inline: int | None = None
    """Id of the inline comment that is the trigger, where it belongs to no review; else None."""
    checks: str = ""
    """Commit of ours on which checks failed, which is the trigger; else empty. Then nobody on the forge has asked."""
    label: str | None = None
    """The label that was put on; None: somebody's words are the trigger."""
    again: RunId | None = None
    """The run that a `retry` means; None: the last one of the thread."""
    pinned: Pinned | None = None
    """What its thread said then: who may not write changes it in vain from there on. None: nobody has told."""

    @property
    def asked(self) -> Request:
        """What the command asks for."""
        return request(self.command)

    def is_done_by(self, run: "Job") -> bool:
        """Whether a run for that job does what this one asks of the same issue: it names the issue, and says no more.

        A label that is put on once more asks for another run.
        """
        asked = self.asked
        of_checks_or_review = any(one.checks or one.review or one.inline for one in (self, run))
        says_no_more = asked.verb == "work" and not asked.text and asked.options == Options()
        return says_no_more and not of_checks_or_review and not (self.label and run.label)


class Comment(Frozen):
    """One comment of a thread, as it was when the job started."""

    author: User
    body: str
    trusted: bool
    """Whether its author may write to the repository."""


class Issue(Frozen):
    """An issue, pinned when the job started."""

    kind: Literal["issue"] = "issue"
    number: int
    title: str
    body: str
    author: User
    trusted: bool
    open: bool
    url: str
    comments: tuple[Comment, ...] = ()
    reports: tuple[str, ...] = ()
    """Ids of the runs whose reports of ours stand in the thread, oldest first."""
    locked: bool = False
    """Whether only people who may write can still comment; an app counts as none of them."""


class ReviewThread(Frozen):
    """A conversation about one place of a pull request."""

    id: str
    """The forge's own name for it."""
    first: int
    """Id of its first comment, which answers go to."""
    path: str
    line: int | None
    """In the file as the pull request has it; None: about the whole file, or a line that is gone."""
    hunk: str
    """The lines of the diff that lead to it; empty: none are shown."""
    resolved: bool
    asked: bool = False
    """Whether the trigger stands in it."""
    comments: tuple[Comment, ...]


class PullRequest(Frozen):
    """A pull request as the forge shows it."""

    kind: Literal["pull_request"] = "pull_request"
    number: int
    title: str
    body: str
    author: User
    trusted: bool
    open: bool
    url: str
    comments: tuple[Comment, ...] = ()
    head: str
    """Branch name."""
    head_sha: str
    base: str
    """Branch name."""
    draft: bool
    same_repository: bool
    """False for a pull request from a fork."""
    base_sha: str = ""
    """Commit of the base branch whose settings and instructions hold; empty: not looked up."""
    head_repo: Repo | None = None
    """Where the head branch is; None: that repository is gone, or was not asked for."""
    maintainer_can_modify: bool = False
    """Whether a fork's owner lets those push to it who may write to the repository."""
    threads: tuple[ReviewThread, ...] = ()
    """Oldest first."""
    review: Comment | None = None
    """What was written in the review that is the trigger, beside its inline comments; None: nothing, or no review."""
    reports: tuple[str, ...] = ()
    """Ids of the runs whose reports of ours stand in its conversation, oldest first."""
    locked: bool = False
    """As of an issue."""


Thread = Annotated[Issue | PullRequest, Field(discriminator="kind")]


class Patch(Frozen):
    """A change against one commit."""

    base: str
    """Full commit id."""
    diff: bytes
    """`git diff --binary --full-index`; applied by git, never parsed by us except for policy."""

    @property
    def empty(self) -> bool:
        return not self.diff.strip()


# --- proof --------------------------------------------------------------------------------------------------

Result = Literal["passed", "failed", "error", "skipped"]


class SuiteRun(Frozen):
    """What one run of a test command showed."""

    command: str
    """As it is typed at the repository's root."""
    why: str = ""
    """How this command was chosen, in one sentence; empty in logs of before that was kept."""
    results: dict[str, Result]
    """Outcome per test. Empty when the runner gives no report; then `exit_code` alone speaks."""
    exit_code: int | None
    """None: killed at its time limit."""
    seconds: float
    output: str
    """Tail of what it printed, clipped, masked."""
    flaky: tuple[str, ...] = ()
    """Tests that failed and passed when run again, on the same code; they decide nothing."""
    problem: str | None = None
    """Why this is not a test run at all (no tests found, runner absent, killed, report unreadable); else None."""

    @property
    def passed(self) -> int:
        return sum(result == "passed" for result in self.results.values())

    @property
    def failed(self) -> int:
        return len(self.failing)

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the tests that failed."""
        return tuple(test for test, result in self.results.items() if result in ("failed", "error"))


VerdictKind = Literal["empty", "untested", "regressed", "fixed", "unproven"]


class Opinion(Frozen):
    """What a second model thinks of a patch, having read issue and diff."""

    approves: bool
    words: str
    """Its reasons, for a reviewer."""
    model: str


class Verdict(Frozen):
    """What the test runs say about a patch; decided by them alone.

    empty: no diff. untested: no test run could be had. regressed: a test that passed at base fails with the
    patch, twice, and the patch did not change that test. fixed: nothing regressed, and a test that failed at base,
    on the code under test, passes now. unproven: the rest, also when only tests as the patch found them fail with
    it: behaviour that is to change takes its tests along, and a person has to look. `opinion` adds words to that
    and decides nothing.
    """

    kind: VerdictKind
    newly_passing: tuple[str, ...] = ()
    newly_failing: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Passed at base and was not run, or was skipped, with the patch."""
    rewritten: tuple[str, ...] = ()
    """Tests that the patch changes or deletes, and that passed at base and fail with it as they were there."""
    on_old_code: dict[str, Result] = Field(default_factory=dict)
    """How tests that the patch adds, or changes so that it shows, did on the code of before."""
    still_failing: tuple[str, ...] = ()
    """Tests that the patch brings, and that fail with it, twice."""
    weakened: tuple[str, ...] = ()
    """What the patch takes away from tests that stay (checks, or by a skip the whole test), a sentence each."""
    deleted: tuple[str, ...] = ()
    """Test files that the patch deletes."""
    set_aside: tuple[str, ...] = ()
    """Files of the patch that decide how tests run: the tests were run without its change to them."""
    partial: bool = False
    """Only the tests that the change may affect were run; the whole suite is to follow, if it is needed."""
    opinion: Opinion | None = None
    """A second model's, where one was asked."""
    reason: str = ""
    """One sentence: why this kind and not a better one."""
    before: SuiteRun | None = None
    after: SuiteRun | None = None


# --- endings ------------------------------------------------------------------------------------------------

EndingReason = Literal["finished", "asked", "limit", "stuck", "cancelled", "error"]


class Spent(Frozen):
    """What a run has cost so far."""

    usd: Decimal = Decimal(0)
    """Known dollars."""
    unpriced: bool = False
    """True when some call had no known price, so `usd` is a lower bound."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
    """Replies of the model."""
    seconds: float = 0.0
    """Of work: from the run's first event on, but not while it waited or what came of it was published."""

    @property
    def cost(self) -> Cost:
        """In dollars; where some price is not known, that is said with them."""
        if not self.unpriced:
            return self.usd
        return AtLeast(usd=self.usd) if self.usd else None

    @property
    def tokens(self) -> int:
        """Of prompts, cached ones too, and of replies."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, bill: Bill, *, steps: int = 0, unpriced: bool = False) -> "Spent":
        """With what something else has cost, but for its time, which may have passed side by side."""
        return Spent(
            usd=self.usd + known(bill.usd),
            unpriced=self.unpriced or unpriced or not isinstance(bill.usd, Decimal),
            prompt_tokens=self.prompt_tokens + bill.prompt_tokens,
            cached_tokens=self.cached_tokens + bill.cached_tokens,
            completion_tokens=self.completion_tokens + bill.completion_tokens,
            steps=self.steps + steps,
            seconds=self.seconds,
        )


class Proposal(Frozen):
    """A pull request to be: everything the forge needs."""

    repo: Repo
    number: int
    """The issue it answers."""
    base: str
    branch: str
    head_sha: str
    title: str
    body: str
    draft: bool


class Delivered(Frozen):
    """A pull request is open; it was read back."""

    kind: Literal["delivered"] = "delivered"
    url: str
    number: int
    branch: str
    draft: bool
    verdict: Verdict
    ci: Literal["starts", "held", "silent"] = "starts"
    """How continuous integration meets its commit (`resolver/ci/hold.py`)."""


class Commented(Frozen):
    """Nothing worth proposing; the thread was told why."""

    kind: Literal["commented"] = "commented"
    url: str
    branch: str | None
    """Where the work is kept, when there was any."""
    reason: str
    verdict: Verdict


class Refused(Frozen):
    """The job was not admitted; `explanation` is what its author was told."""

    kind: Literal["refused"] = "refused"
    explanation: str


class Asked(Frozen):
    """The run waits for the answer to a question, which was asked in the thread."""

    kind: Literal["asked"] = "asked"
    url: str
    question: str


Outcome = Annotated[Delivered | Commented | Refused | Asked, Field(discriminator="kind")]


class Credentials(Frozen):
    """A token for one repository."""

    token: str = Field(repr=False)
    expires: datetime | None = None
    """UTC; None: it does not expire while we run."""
