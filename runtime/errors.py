"""
SandboxError                 carries `retryable`: whether another try makes sense
├── EngineUnavailable        no Docker engine answers, or it refuses us; an operator must act
│   ├── EngineFull           its disk is full; room must be made first
│   ├── MachineFull          too little memory or disk is left for one more; others may give some back
│   ├── EngineStopped        it answered before and does not now; it may come back
│   └── NoSandboxes          this process is not to have any; what needs one is left undone
├── ImageUnavailable         the base image is absent and cannot be pulled, or a layer cannot be built
├── LayerRefused             a set-up left something that must not be kept; the run goes on without it
├── DiskFull                 the sandbox's files outgrew their limit, and it was ended; another try would end alike
├── SandboxLost              the container or its server is gone in mid-run; rebuild from the last checkpoint
│   └── OutOfMemory          it took more than `memory_mb`, and its server was hit; another try would end alike
└── ProtocolBroken           the container answered something that is not our protocol; its run is not to be trusted

None of these is ever shown to the model: a command that fails is an observation, a machine that fails is not.
"""


class SandboxError(Exception):
    """The machine failed, not the command in it."""

    retryable = False


class EngineUnavailable(SandboxError):
    """No Docker engine answers, or it refuses this user."""


class EngineFull(EngineUnavailable):
    """The disk of the Docker engine is full."""


class MachineFull(EngineUnavailable):
    """The machine has too little memory or disk left for another sandbox."""

    retryable = True


class EngineStopped(EngineUnavailable):
    """The Docker engine stopped answering."""

    retryable = True


class NoSandboxes(EngineUnavailable):
    """Nothing is run here."""


class ImageUnavailable(SandboxError):
    """The base image is absent and cannot be pulled, or our layer on it cannot be built."""


class LayerRefused(SandboxError):
    """What a set-up left is not fit to be kept, or this kind of sandbox keeps nothing."""


class DiskFull(SandboxError):
    """The files of a sandbox outgrew `disk_mb`, and it was ended."""


class SandboxLost(SandboxError):
    """The sandbox went away in mid-run; a new one can start from the last checkpoint."""

    retryable = True


class OutOfMemory(SandboxLost):
    """The kernel ended the sandbox because it had no memory left; the run may go on, from its last checkpoint."""

    retryable = False


class ProtocolBroken(SandboxError):
    """The other side sent what our protocol does not allow."""
