"""
ResolverError
├── ForgeError             the forge is down or answers nonsense; the queue may retry
│   ├── RateLimited        carries `until`, UTC
│   ├── Forbidden          our token may not do this; an operator must act
│   │   └── BranchMoved    somebody else has moved the branch; it is left alone
│   ├── Unauthorized       our token is unknown or expired
│   └── NotFound           no such repository, issue or pull request, or none that we may see
├── ModelError             the model gave no usable reply; `retryable` says whether to try again
│   ├── ModelBusy          rate limit or load; `retry_after` says how long the provider wants to be left alone
│   ├── ModelRefused       key or name: trying again will not help; an operator must act
│   │   └── QuotaSpent     the account has no credit
│   ├── ContentFiltered    the provider's filter refuses the prompt or holds back the reply
│   └── ContextOverflow    the prompt is longer than the model takes
├── SettingsError          an operator must change something; names the key and the mend
├── UsageError             the command was given something that it cannot work with
├── LogError               a run's log is damaged or cannot be written; says which and why
│   ├── LogTaken           another process works on the run, and tells what comes of it
│   └── ParcelRefused      what another job left to be published is not what it should be
├── WorkspaceError         clone, apply, commit or push failed; says which and why
│   ├── RepositoryUnusable there is nothing to work on: no repository, or none with a commit
│   ├── NoSuchBranch       nothing of that name to begin from; carries `branch`
│   └── ChangeTooLarge     the work tree differs from base by more than may leave the sandbox
├── ProofUnavailable       the test sandbox could not be used; the machine failed, not the tests
├── Withheld               this job may only read: what comes now is for one that may write
└── Interrupted            the operator pressed Ctrl-C or the worker is going away; the log says where to go on
"""

import copy
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # errors are the one thing that everything may import
    from resolver.events import Usage


class ResolverError(Exception):
    """Something that is not an ending of the work but an accident on the way."""

    retryable = False


class ForgeError(ResolverError):
    """The forge is down or answers nonsense."""

    retryable = True


class RateLimited(ForgeError):
    """The forge asks us to wait."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class Forbidden(ForgeError):
    """Our token may not do this."""

    retryable = False


class BranchMoved(Forbidden):
    """The branch is not where it was: somebody else's work is on it."""


class Unauthorized(ForgeError):
    """Our token is unknown or expired."""

    retryable = False


class NotFound(ForgeError):
    """No such thing, or none that we may see."""

    retryable = False


class ModelError(ResolverError):
    """The model gave no usable reply."""

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: float | None = None,
        usage: "Usage | None" = None,
    ) -> None:
        """`retryable`: None: as failures of the kind are."""
        super().__init__(message)
        if retryable is not None:
            self.retryable = retryable
        self.retry_after = retry_after
        """Seconds that the provider asks us to wait; None: it named none."""
        self.usage = usage
        """What was billed for nothing; None: nothing, as far as is known."""

    def again(self, message: str, usage: "Usage | None") -> "ModelError":
        """The same failure in other words, and with what more was billed."""
        other = copy.copy(self)
        other.args = (message,)
        other.usage = usage
        return other


class ModelBusy(ModelError):
    """Too many requests, or too much load: the same request may work later."""


class ModelRefused(ModelError):
    """The provider refuses the key, the model's name or the account."""

    retryable = False


class QuotaSpent(ModelRefused):
    """The account has no credit."""


class ContentFiltered(ModelError):
    """The provider's filter refuses the prompt, or holds back the reply."""

    retryable = False


class ContextOverflow(ModelError):
    """The prompt is longer than the model takes."""

    retryable = False


class SettingsError(ResolverError):
    """An operator must change something; the message names the key and the mend."""


class LogError(ResolverError):
    """A run's log is damaged, or cannot be written."""


class LogTaken(LogError):
    """Another process works on the run: what comes of it is that one's to tell."""

    retryable = True


class ParcelRefused(LogError):
    """What another job left to be published is missing, of another run, or not what such a job leaves."""


class UsageError(ResolverError):
    """The command was given something that it cannot work with; the message says what to give instead."""


class WorkspaceError(ResolverError):
    """Clone, apply, commit or push failed."""


class RepositoryUnusable(WorkspaceError):
    """There is nothing to work on: no repository at this place, or none with a commit."""


class NoSuchBranch(WorkspaceError):
    """There is no branch of that name to begin from."""

    def __init__(self, message: str, branch: str) -> None:
        super().__init__(message)
        self.branch = branch


class ChangeTooLarge(WorkspaceError):
    """The work tree differs from base by more than may leave the sandbox; the message names the files."""


class ProofUnavailable(ResolverError):
    """The tests' sandbox could not be used."""

    retryable = True


class Withheld(ResolverError):
    """The first thing that a run would have written to the forge: it goes on where that may be done."""


class Interrupted(ResolverError):
    """Stopped from outside; the run can be continued from its log."""
