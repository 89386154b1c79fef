"""Classifies the errors that end a job, for metrics and messages."""

from typing import Literal, get_args

from patchwright.bot.errors import ArchiveDown, GitHubDown, QueueDown
from patchwright.resolver.errors import (
    ForgeError,
    LogError,
    ModelError,
    ModelUnsuitable,
    SettingsError,
    UsageError,
    VerificationUnavailable,
    WorkspaceError,
)
from patchwright.runtime.errors import EngineUnavailable, ImageUnavailable, SandboxError

Fault = Literal["provider", "forge", "repository", "settings", "engine", "sandbox", "store", "internal"]
"""The cause of a job's failure.

provider: the model's API. forge: GitHub, or missing permissions on GitHub. repository: clone, apply, commit
or push. settings: the operator must change a setting. engine: Docker and its images. sandbox: a sandbox was
lost or is broken. store: Redis, the run log, or the archive. internal: any other error, which is a bug in
Patchwright.
"""

FAULTS: tuple[Fault, ...] = get_args(Fault)

EXTERNAL_FAULTS: frozenset[Fault] = frozenset({"provider", "settings"})
"""Causes of failures outside this deployment. Such failures do not show whether the deployment is reliable."""

_FAULT_BY_ERROR: tuple[tuple[type[Exception], Fault], ...] = (
    (ModelUnsuitable, "settings"),
    (ModelError, "provider"),
    (ForgeError, "forge"),
    (GitHubDown, "forge"),
    (WorkspaceError, "repository"),
    (SettingsError, "settings"),
    (UsageError, "settings"),
    (EngineUnavailable, "engine"),
    (ImageUnavailable, "engine"),
    (SandboxError, "sandbox"),
    (VerificationUnavailable, "sandbox"),
    (LogError, "store"),
    (QueueDown, "store"),
    (ArchiveDown, "store"),
)


def classify_error(error: Exception) -> Fault:
    """Returns the cause of an error. If no cause is listed for the error's class, the cause of a base class
    applies. The default is "internal".
    """
    return next((fault for kind, fault in _FAULT_BY_ERROR if isinstance(error, kind)), "internal")
