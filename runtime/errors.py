"""Errors of the sandbox.

    SandboxError                 carries `retryable`: True if another attempt can succeed
    ├── EngineUnavailable        no Docker engine answers, or it refuses us; an operator must act
    │   ├── EngineDiskFull       its disk is full; free space first
    │   ├── InsufficientResources  too little memory or disk is left for another sandbox; others may free some
    │   ├── EngineStopped        it answered before and does not now; it may come back
    │   └── SandboxesDisabled    this process may not open sandboxes; work that needs one is skipped
    ├── ImageUnavailable         the base image is absent and cannot be pulled, or a layer cannot be built
    ├── LayerRejected            a setup left something that must not be stored; the run goes on without it
    ├── SandboxDiskFull          the sandbox's files exceeded their limit, and it was stopped; a retry would fail, too
    ├── SandboxLost              the container or its server is gone in mid-run; restart from the last checkpoint
    │   └── OutOfMemory          it used more than `memory_mb`, and its server was killed; a retry would fail, too
    └── ProtocolError            the container violated the protocol; its run is not to be trusted

The model never sees any of these: a failing command is an observation, a failing sandbox is an error.
"""


class SandboxError(Exception):
    """The sandbox failed, not the command in it."""

    retryable = False


class EngineUnavailable(SandboxError):
    """No Docker engine answers, or it refuses this user."""


class EngineDiskFull(EngineUnavailable):
    """The disk of the Docker engine is full."""


class InsufficientResources(EngineUnavailable):
    """The engine's machine has too little memory or disk left for another sandbox."""

    retryable = True


class EngineStopped(EngineUnavailable):
    """The Docker engine answered before and does not answer now."""

    retryable = True


class SandboxesDisabled(EngineUnavailable):
    """This process may not open sandboxes. Work that needs one is skipped."""


class ImageUnavailable(SandboxError):
    """The base image is absent and cannot be pulled, or our layer on it cannot be built."""


class LayerRejected(SandboxError):
    """The setup of an image layer left something that must not be stored, or this kind of sandbox stores no
    layers.
    """


class SandboxDiskFull(SandboxError):
    """The files of a sandbox exceeded `disk_mb`, and it was stopped."""


class SandboxLost(SandboxError):
    """The sandbox disappeared during the run; a new one can start from the last checkpoint."""

    retryable = True


class OutOfMemory(SandboxLost):
    """The kernel killed the sandbox at its memory limit; the run may continue from its last checkpoint."""

    retryable = False


class ProtocolError(SandboxError):
    """The container sent a message that the protocol does not allow."""
