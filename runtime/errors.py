"""Errors of the sandbox.

    SandboxError                 carries `retryable`: True if another attempt can succeed
    ├── EngineUnavailable        no Docker engine responds, or it refuses access; an operator must act
    │   ├── EngineDiskFull       the engine's disk is full; free space first
    │   ├── InsufficientResources  too little memory or disk is left for another sandbox; wait for other runs
    │   ├── EngineStopped        the engine no longer responds, but did earlier; it may come back
    │   └── SandboxesDisabled    this process may not open sandboxes; work that needs one is skipped
    ├── ImageUnavailable         the base image is absent and cannot be pulled, or a layer cannot be built
    ├── LayerRejected            the result of a setup cannot be stored; the run continues without the layer
    ├── SandboxDiskFull          the sandbox was stopped because its files exceeded their limit; do not retry
    ├── SandboxLost              the container or its server is lost; restart from the last checkpoint
    │   └── OutOfMemory          the sandbox used more than `memory_mb`, so its server was killed; do not retry
    └── ProtocolError            the container violated the protocol; do not trust its run

The model never sees these errors. It sees a failing command as an observation.
"""

from typing import Self


class SandboxError(Exception):
    """The sandbox failed, not the command in it."""

    retryable = False


class EngineUnavailable(SandboxError):
    """No Docker engine responds, or it refuses access to this user."""

    @classmethod
    def no_response(cls, url: str | None, error: BaseException) -> Self:
        """Returns the error for a failed connection to the engine at `url`. If `url` is None, the message names
        no address.
        """
        where = f" at {url}" if url else ""
        fix = "start it and give this user access" + (", or correct DOCKER_HOST" if url else "")
        return cls(f"no Docker engine responds{where} ({_find_os_reason(error)}): {fix}")


class EngineDiskFull(EngineUnavailable):
    """The disk of the Docker engine is full."""


class InsufficientResources(EngineUnavailable):
    """The engine's machine has too little memory or disk left for another sandbox."""

    retryable = True


class EngineStopped(EngineUnavailable):
    """The Docker engine responded earlier but no longer does."""

    retryable = True


class SandboxesDisabled(EngineUnavailable):
    """This process may not open sandboxes. Work that needs a sandbox is skipped."""


class ImageUnavailable(SandboxError):
    """The base image is absent and cannot be pulled, or the runtime layer for it cannot be built."""


class LayerRejected(SandboxError):
    """The result of a setup cannot be stored as an image layer. Either the setup has left something that must
    not be stored, or this kind of sandbox cannot store layers.
    """


class SandboxDiskFull(SandboxError):
    """The files of a sandbox took more than `disk_mb`, so the sandbox was stopped."""


class SandboxLost(SandboxError):
    """The sandbox disappeared during the run. A new sandbox can start from the last checkpoint."""

    retryable = True


class OutOfMemory(SandboxLost):
    """The kernel killed the sandbox at its memory limit. A retry would reach the limit again."""

    retryable = False


class ProtocolError(SandboxError):
    """The container sent a message that the protocol does not allow."""


def _find_os_reason(error: BaseException) -> str:
    """Returns the operating system's reason for a failed connection. Libraries wrap this reason in several
    other errors.

    If there is no such reason, returns the message of the error itself.
    """
    pending: list[object] = [error]
    for current in pending:  # the list grows while the loop searches it
        if isinstance(current, OSError) and isinstance(current.strerror, str):
            return current.strerror
        if isinstance(current, BaseException):
            wrapped = (*current.args, current.__cause__, current.__context__)
            pending += [one for one in wrapped if not any(one is known for known in pending)]
    return str(error)
