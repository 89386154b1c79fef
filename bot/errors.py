"""Errors of the services around a run.

ForgeError (resolver)
├── ForgeUnavailable      no usable response; for a write, it is unknown whether it happened
├── Preempted             a more urgent write goes first; the caller may drop this write
└── UnprocessableRequest  GitHub understood the request and rejects it; a retry does not help
Forbidden (resolver)
└── PermissionNotGranted  the owner has not granted the permission that the request needs
    └── WriteAccessMissing  the credentials cannot publish the result of a run
GitHubDown                GitHub does not respond to any request
QueueDown                 Redis does not respond
ArchiveDown               the archive cannot store, return or list runs
WorkerFailed              the worker process did not start; it has printed the reason
ResolverError (resolver)
├── Unavailable           the server cannot do this now, but may do it later
└── Conflict              the request does not fit the state of the conversation or workspace
"""

from collections.abc import Sequence

from patchwright.resolver.errors import Forbidden, ForgeError, ResolverError


class ForgeUnavailable(ForgeError):
    """No usable response from GitHub: the connection failed or timed out, or the server returned an error."""


class UnprocessableRequest(ForgeError):
    """GitHub understood the request and rejects it, for example because a body is too long."""

    retryable = False


class PermissionNotGranted(Forbidden):
    """GitHub rejected the request, because the owner has not granted the required permission to our App or
    token.
    """


class WriteAccessMissing(PermissionNotGranted):
    """The credentials cannot publish the result of a run."""

    def __init__(self, repo: str, permissions: Sequence[str]) -> None:
        """`permissions` are names such as `pull_requests`. Each is needed at the level `write`."""
        levels = " and ".join(f"`{name}: write`" for name in permissions)
        super().__init__(f"The token for {repo} lacks {levels}, so the run could not publish its result.")


class Preempted(ForgeError):
    """A write to GitHub was not sent, because a more urgent write goes first. The caller may drop the preempted
    write.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("a more urgent write to GitHub comes first")
        self.retry_after = retry_after
        """The number of seconds after which the write may be possible."""


class GitHubDown(Exception):
    """GitHub does not respond to any request. The failure is not limited to one repository, installation or
    webhook.
    """


class QueueDown(Exception):
    """Redis does not respond. It is unknown whether a write was stored."""


class ArchiveDown(Exception):
    """The archive does not respond, or an operation on it failed. Runs that could not be archived stay in Redis
    or on disk.
    """


class WorkerFailed(Exception):
    """The worker process did not start. The worker has printed the reason to its standard error."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"The worker exited with code {exit_code} before it was ready.")


class Unavailable(ResolverError):
    """The server cannot do this now, but may do it later."""


class Conflict(ResolverError):
    """The request does not fit the state of the conversation or workspace."""
