"""Whose fault it is when a job fails: one class for each error, for figures and for words."""

from typing import Literal, get_args

from bot.errors import ArchiveDown, Away, QueueDown
from resolver.errors import (
    ForgeError,
    LogError,
    ModelError,
    ProofUnavailable,
    SettingsError,
    UsageError,
    WorkspaceError,
)
from runtime.errors import EngineUnavailable, ImageUnavailable, SandboxError

Fault = Literal["provider", "forge", "repository", "settings", "engine", "sandbox", "store", "ours"]
"""provider: of the model. forge: GitHub, or what it lets us do. repository: clone, apply, commit or push. settings: an
operator must change something. engine: Docker and its images. sandbox: one that was lost or broke. store: Redis,
the log, or the archive. ours: what nobody thought of, and what never ended."""

FAULTS: tuple[Fault, ...] = get_args(Fault)

FOREIGN: frozenset[Fault] = frozenset({"provider", "settings"})
"""Those that say nothing about how well this machine works."""

_BY_ERROR: tuple[tuple[type[Exception], Fault], ...] = (
    (ModelError, "provider"),
    (ForgeError, "forge"),
    (Away, "forge"),
    (WorkspaceError, "repository"),
    (SettingsError, "settings"),
    (UsageError, "settings"),
    (EngineUnavailable, "engine"),
    (ImageUnavailable, "engine"),
    (SandboxError, "sandbox"),
    (ProofUnavailable, "sandbox"),
    (LogError, "store"),
    (QueueDown, "store"),
    (ArchiveDown, "store"),
)


def fault_of(error: Exception) -> Fault:
    """The one class of an error, by the nearest of its ancestors that has one."""
    return next((fault for kind, fault in _BY_ERROR if isinstance(error, kind)), "ours")
