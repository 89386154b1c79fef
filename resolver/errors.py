"""The exceptions of the resolver.

ResolverError
├── ForgeError             the forge is down or sends invalid responses; the queue may retry
│   ├── RateLimited        carries `until`, UTC
│   ├── Forbidden          our token lacks a permission; an operator must act
│   │   └── BranchMoved    another user or program moved the branch
│   ├── Unauthorized       our token is unknown or expired
│   └── NotFound           no such repository, issue or pull request, or our token cannot see it
├── ModelError             the model gave no usable reply; `retryable` says whether to try again
│   ├── ModelConnectionFailed no connection to the provider can be opened
│   │   └── NotAModel      a web page or another service answers
│   ├── ModelBusy          rate limit or overload; `retry_after` is the provider's requested wait
│   ├── ModelAccessDenied  wrong key or model name; retrying does not help, an operator must act
│   │   ├── ModelUnreachable the endpoint's address did not respond before the first reply
│   │   ├── ToolsUnsupported the server cannot call tools with this model
│   │   ├── ModelUnsuitable the model calls no tools, or its context window is too small
│   │   └── QuotaExceeded  the account has no credit
│   ├── ContentFiltered    the provider's filter rejects the prompt or withholds the reply
│   └── ContextOverflow    the prompt is longer than the model's context window
├── SettingsError          an operator must change a setting; the message names the key and the fix
│   ├── UnknownName        no agent or tool has the name that a person or a repository gave
│   └── EndpointDown       nothing listens at the URL of the model's endpoint
├── UsageError             an invalid command-line argument
├── LogError               a run's log is damaged or cannot be written
│   ├── LogLocked          another process works on the run and reports its result
│   └── InvalidArtifact    the artifact of an earlier workflow job is missing or invalid
├── WorkspaceError         clone, apply, commit or push failed
│   ├── RepositoryUnusable no repository, or one without commits
│   ├── RemoteUnavailable  the Git server did not respond or failed; the queue may retry
│   ├── BranchNotFound     no such base branch; carries `branch`
│   └── ChangeTooLarge     the change is too large to leave the sandbox
├── VerificationUnavailable the test sandbox could not be used: a failure of the machine, not of the tests
├── WriteBlocked           this job may only read; a job with write access continues the run
└── Interrupted            the operator pressed Ctrl-C or the worker shuts down; the run can be resumed
"""

import copy
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Every module may import this one. To avoid cycles, it imports no other module at runtime.
    from patchwright.resolver.events import ReplyUsage


class ResolverError(Exception):
    """Base class of the resolver's exceptions. A job that fails with one of them has no `Outcome`."""

    retryable = False


def describe_read_error(error: OSError | ValueError) -> str:
    """Returns why a file cannot be read. The texts of the exceptions contain a number and the file's name again."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


class ForgeError(ResolverError):
    """The forge is down or sends invalid responses."""

    retryable = True


class RateLimited(ForgeError):
    """The forge rejects requests until the time `until` (UTC)."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class Forbidden(ForgeError):
    """Our token lacks a permission."""

    retryable = False


class BranchMoved(Forbidden):
    """Another user or program moved the branch, so it is left unchanged."""


class Unauthorized(ForgeError):
    """Our token is unknown or expired."""

    retryable = False


class NotFound(ForgeError):
    """The resource does not exist, or our token cannot see it."""

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
        usage: "ReplyUsage | None" = None,
    ) -> None:
        """`retryable` overrides the class's default; None keeps the default."""
        super().__init__(message)
        if retryable is not None:
            self.retryable = retryable
        self.retry_after = retry_after
        """Seconds to wait before the next request, as requested by the provider; None if the provider names
        no time.
        """
        self.usage = usage
        """Tokens that were billed although the call failed; None if unknown."""

    def with_message(self, message: str, usage: "ReplyUsage | None") -> "ModelError":
        """Returns the same failure with another message and the given usage."""
        other = copy.copy(self)
        other.args = (message,)
        other.usage = usage
        return other


class ModelBusy(ModelError):
    """The provider is overloaded or limits our request rate. The same request may succeed later."""


class ModelAccessDenied(ModelError):
    """The provider rejects the key, the model name or the account."""

    retryable = False


class ModelConnectionFailed(ModelError):
    """No connection to the model's endpoint can be opened, or another service answers. A later attempt may succeed."""


class NotAModel(ModelConnectionFailed):
    """The endpoint answers with a web page or with other JSON."""


class ModelUnreachable(ModelAccessDenied):
    """The model's endpoint could not be reached before the model's first reply. The URL is probably wrong."""


class ToolsUnsupported(ModelAccessDenied):
    """The server rejects requests with tools for this model. Tool calls as text may work."""


class ModelUnsuitable(ModelAccessDenied):
    """The model calls no tools, or its context window is too small. Found before the work starts."""


class QuotaExceeded(ModelAccessDenied):
    """The provider account has no credit."""


class ContentFiltered(ModelError):
    """The provider's filter rejects the prompt or withholds the reply."""

    retryable = False


class ContextOverflow(ModelError):
    """The prompt is longer than the model's context window."""

    retryable = False


class SettingsError(ResolverError):
    """An operator must change a setting. The message names the key and the fix."""


class UnknownName(SettingsError):
    """No agent or tool has the name that a person or a repository gave. The message is for that person."""


class EndpointDown(SettingsError):
    """Nothing listens at the URL of the model's endpoint. The URL is wrong, or the endpoint is not running."""


class LogError(ResolverError):
    """A run's log is damaged or cannot be written."""


class LogLocked(LogError):
    """Another process works on the run and reports its result."""

    retryable = True


class InvalidArtifact(LogError):
    """The artifact of an earlier workflow job is missing, belongs to another run, or has invalid content."""


class UsageError(ResolverError):
    """An invalid command-line argument. The message says what to use instead."""


class WorkspaceError(ResolverError):
    """A clone, apply, commit or push failed."""


class RepositoryUnusable(WorkspaceError):
    """There is no repository at this URL or path, or the repository has no commit."""


class BranchNotFound(WorkspaceError):
    """The base branch does not exist."""

    def __init__(self, message: str, branch: str) -> None:
        super().__init__(message)
        self.branch = branch


class RemoteUnavailable(WorkspaceError):
    """The Git server did not respond, or failed with a server error."""

    retryable = True


class ChangeTooLarge(WorkspaceError):
    """The difference between the work tree and the base is too large to leave the sandbox. The message names
    the files.
    """


class VerificationUnavailable(ResolverError):
    """The sandbox for the tests could not be used."""

    retryable = True


class WriteBlocked(ResolverError):
    """A read-only job reached its first write to the forge. A job with write access continues the run."""


class Interrupted(ResolverError):
    """The run was stopped from outside and can be resumed from its log."""
