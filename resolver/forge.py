"""The seam to the forge: its verbs in our words, and the wrapper that only shows what it would do."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from resolver.ci.checks import Check, Pushed
from resolver.domain import Credentials, Job, Proposal, PullRequest, Repo, ReviewThread, Thread, User
from resolver.errors import Withheld
from runtime.frozen import Frozen

if TYPE_CHECKING:  # it is shown on what is declared here
    from resolver.delivery.finding import Finding

MAX_BODY = 65_536  # characters; GitHub answers 422 to a longer comment or pull request body

MAX_ATTACHMENT = 3_000_000  # bytes; Anthropic takes pictures of 5 MB, as base64

Permission = Literal["admin", "maintain", "write", "triage", "read", "none"]
MAY_TRIGGER: frozenset[Permission] = frozenset({"admin", "maintain", "write"})


class RepoFacts(Frozen):
    """What a run needs to know of a repository on the forge."""

    default_branch: str
    clone_url: str
    """HTTPS (or HTTP, for a stand-in) URL without credentials."""
    private: bool
    empty: bool
    """True when it has no commit yet."""
    archived: bool = False
    """Whether nobody may write there any more."""


class Published(Frozen):
    """A commit on a branch of the forge, read back: its tree and its parents are those of ours."""

    sha: str
    """As the forge has it: a commit that it signs itself has an id of its own."""
    verified: bool
    """Whether the forge shows it as signed."""
    note: str = ""
    """Why it is not, in a sentence; empty: it is."""
    earlier: bool = False
    """Whether another run, or somebody else, had made the very same change there before."""


class Meanwhile(Frozen):
    """What became of the thread and of the base branch while a run went on."""

    is_open: bool
    has_base: bool
    """Whether the base branch still has the commit that the run began with; False: it was rewritten, or is gone."""


class Forge(Protocol):
    """Where issues live and pull requests go.

    Every method may raise ForgeError (RateLimited, Unauthorized, Forbidden, NotFound). Before an effect it is
    looked up; after a lost response it is looked up before it is tried again; what is returned was read back.
    """

    async def facts(self, repo: Repo) -> RepoFacts: ...

    async def thread(self, job: Job) -> Thread:
        """The issue or pull request as it is now, with its comments, oldest first."""

    async def attachment(self, repo: Repo, url: str) -> bytes | None:
        """The file that somebody attached to a thread, at most MAX_ATTACHMENT bytes.

        None when the address is not one of the forge's own attachments: then nothing was asked of anybody.
        """

    async def permission(self, repo: Repo, user: User) -> Permission:
        """What this user may do, asked by numeric id; anything unknown is "none"."""

    async def credentials(self, repo: Repo) -> Credentials:
        """A token that can clone and push this one repository."""

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        """Put `body` into our one comment with this hidden tag, making it if there is none; its URL.

        A body over MAX_BODY is clipped, and says so. Somebody else's comment with our tag is not ours.
        """

    async def meanwhile(self, repo: Repo, number: int, branch: str, base: str) -> Meanwhile:
        """How the thread and the commit `base` of the base branch `branch` are now."""

    async def identity(self, repo: Repo) -> User | None:
        """The account whose name our writes bear; None: nobody could tell."""

    async def publish(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        into: Repo | None = None,
    ) -> Published:
        """Put `commit` of the bare repository `git_dir` on `branch`, which is at `parent` or not there yet.

        The forge makes and signs a commit of the same tree where it can; else it is pushed as it is. Nothing
        happens when it is there already. A branch that is anywhere else is never overwritten: raises BranchMoved.
        `into`: the branch is one of this fork of `repo`. Raises Forbidden, WorkspaceError when the forge refuses it
        either way.
        """

    async def find_pull(self, repo: Repo, branch: str) -> PullRequest | None:
        """The open pull request whose head is this branch of this repository, if any."""

    async def propose(self, proposal: Proposal) -> PullRequest:
        """Open the pull request, or bring the one that is open for this branch up to date."""

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        """Say `body` in a review thread, once for each hidden tag; its URL."""

    async def settle_thread(self, repo: Repo, thread: ReviewThread) -> None:
        """Mark a review thread as resolved; nothing happens when it is. Raises Forbidden when we may not."""

    async def checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        """What programs say of this commit, or of a branch's last one; what we say of it ourselves is left out."""

    async def check_log(self, repo: Repo, check: Check) -> str:
        """The part of what a check printed, or reports, that tells why it failed; empty: nothing is to be had."""

    async def commits(self, repo: Repo, number: int) -> tuple[Pushed, ...]:
        """Those of a pull request, oldest first, at most 250."""

    async def show(self, repo: Repo, finding: "Finding") -> str:
        """Say what we found of a commit, once for each job; its URL, empty where our token may not."""


async def may_trigger(job: Job, forge: Forge) -> bool:
    """Whether whoever asked for it may have it done, as of now; the operator always may. Raises ForgeError."""
    return job.requester is None or await forge.permission(job.repo, job.requester) in MAY_TRIGGER


class _Wrapped:
    """Passes everything on; a wrapper overrides what it changes."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge

    async def facts(self, repo: Repo) -> RepoFacts:
        return await self._forge.facts(repo)

    async def thread(self, job: Job) -> Thread:
        return await self._forge.thread(job)

    async def attachment(self, repo: Repo, url: str) -> bytes | None:
        return await self._forge.attachment(repo, url)

    async def permission(self, repo: Repo, user: User) -> Permission:
        return await self._forge.permission(repo, user)

    async def credentials(self, repo: Repo) -> Credentials:
        return await self._forge.credentials(repo)

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        return await self._forge.say(repo, number, tag, body)

    async def meanwhile(self, repo: Repo, number: int, branch: str, base: str) -> Meanwhile:
        return await self._forge.meanwhile(repo, number, branch, base)

    async def identity(self, repo: Repo) -> User | None:
        return await self._forge.identity(repo)

    async def publish(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        into: Repo | None = None,
    ) -> Published:
        return await self._forge.publish(repo, git_dir, commit, branch, parent, into)

    async def find_pull(self, repo: Repo, branch: str) -> PullRequest | None:
        return await self._forge.find_pull(repo, branch)

    async def propose(self, proposal: Proposal) -> PullRequest:
        return await self._forge.propose(proposal)

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        return await self._forge.answer(repo, number, thread, tag, body)

    async def settle_thread(self, repo: Repo, thread: ReviewThread) -> None:
        await self._forge.settle_thread(repo, thread)

    async def checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        return await self._forge.checks(repo, commit)

    async def check_log(self, repo: Repo, check: Check) -> str:
        return await self._forge.check_log(repo, check)

    async def commits(self, repo: Repo, number: int) -> tuple[Pushed, ...]:
        return await self._forge.commits(repo, number)

    async def show(self, repo: Repo, finding: "Finding") -> str:
        return await self._forge.show(repo, finding)


class Masked(_Wrapped):
    """Hides the run's secrets from everything that is written to the forge."""

    def __init__(self, forge: Forge, mask: Callable[[str], str]) -> None:
        super().__init__(forge)
        self._mask = mask

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        return await self._forge.say(repo, number, tag, self._mask(body))

    async def propose(self, proposal: Proposal) -> PullRequest:
        masked = {"title": self._mask(proposal.title), "body": self._mask(proposal.body)}
        return await self._forge.propose(proposal.model_copy(update=masked))

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        return await self._forge.answer(repo, number, thread, tag, self._mask(body))

    async def show(self, repo: Repo, finding: "Finding") -> str:
        masked = {"title": self._mask(finding.title), "summary": self._mask(finding.summary)}
        return await self._forge.show(repo, finding.model_copy(update=masked))


class ReadOnly(_Wrapped):
    """Reads from the forge; before the first thing that would be written for its run, that breaks off: Withheld.

    Whoever may write goes on with the log from there, as after a crash. What a run says by the way is left to it too.
    """

    def __init__(self, forge: Forge, run: str) -> None:
        super().__init__(forge)
        self._run = run

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        if tag == self._run:
            raise Withheld(f"a comment on {repo}#{number}")
        return ""

    async def publish(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        into: Repo | None = None,
    ) -> Published:
        raise Withheld(f"a commit on {branch}")

    async def propose(self, proposal: Proposal) -> PullRequest:
        raise Withheld(f"a pull request of {proposal.branch}")

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        raise Withheld(f"an answer on {repo}#{number}")

    async def settle_thread(self, repo: Repo, thread: ReviewThread) -> None:
        raise Withheld(f"the end of a review thread of {repo}")

    async def show(self, repo: Repo, finding: "Finding") -> str:
        raise Withheld(f"a check run on {finding.commit[:12]}")


DRY = "dry-run"
"""The address of what was shown instead of being written."""


class DryRun(_Wrapped):
    """Reads from the forge; what would be written is shown instead."""

    def __init__(self, forge: Forge, show: Callable[[str, str], None]) -> None:
        super().__init__(forge)
        self._show = show

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        self._show(f"comment on {repo}#{number}", body)
        return DRY

    async def publish(
        self,
        repo: Repo,
        git_dir: Path,
        commit: str,
        branch: str,
        parent: str,
        into: Repo | None = None,
    ) -> Published:
        self._show(f"commit {commit[:12]} to {branch}{f' of {into}' if into else ''}", "")
        return Published(sha=commit, verified=False, note="nothing was published")

    async def answer(self, repo: Repo, number: int, thread: ReviewThread, tag: str, body: str) -> str:
        self._show(f"answer at {thread.path} of {repo}#{number}", body)
        return DRY

    async def settle_thread(self, repo: Repo, thread: ReviewThread) -> None:
        self._show(f"resolve the thread at {thread.path}", "")

    async def show(self, repo: Repo, finding: "Finding") -> str:
        self._show(f"check run on {finding.commit[:12]}: {finding.title}", finding.summary)
        return DRY

    async def propose(self, proposal: Proposal) -> PullRequest:
        self._show(f"pull request: {proposal.title}", proposal.body)
        return PullRequest(
            number=proposal.number,
            title=proposal.title,
            body=proposal.body,
            author=User(id=0, login="patchwright"),
            trusted=True,
            open=True,
            url=DRY,
            head=proposal.branch,
            head_sha=proposal.head_sha,
            base=proposal.base,
            draft=proposal.draft,
            same_repository=True,
        )
