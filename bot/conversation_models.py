"""What a client asks for, and what the server stores about conversations and workspaces."""

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import Field

from patchwright.resolver.domain import Patch, RunId
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.conversation import ConversationState
from patchwright.sdk.docker_sandbox_setup import Network

ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"


class WorkspaceSpec(FrozenModel):
    """How a workspace is created."""

    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=300,
        description="Base image of the container. By default, the server's own image.",
    )
    network: Network = Field(
        default="allowlist", description="Network access. The server's own setting is the upper limit."
    )


class WorkspaceRecord(FrozenModel):
    """A workspace that the server knows, whether or not it has a container now."""

    id: str
    spec: WorkspaceSpec
    created_at: datetime
    """Time in UTC."""
    server: str = ""
    """Name of the server that has the container; empty if no server has it."""
    patch: Patch | None = None
    """The files as a difference to an empty directory. A new container starts from it."""


class ConversationRecord(FrozenModel):
    """A conversation that the server knows."""

    id: str
    log: RunId
    """Name of its log. It differs from every run and from the log of a deleted conversation with the same id."""
    workspace: str
    """Id of the workspace."""
    agent: str
    """The agent as JSON with its API keys, encrypted."""


class RunRequest(FrozenModel):
    """A call of `run` whose work has not ended. After a kill, another process continues this work."""

    id: str = Field(default_factory=lambda: secrets.token_hex(8))
    after: int
    """Number of entries in the log at the call."""
    tries: int = 0
    """How often another process has taken over the work."""


class StoredState(FrozenModel):
    """The state of a conversation that is not running, kept beside its log so that nobody has to read the log."""

    log_length: int
    """Number of entries in the log. A longer log has another state."""
    state: ConversationState


class ConversationActivity(NamedTuple):
    """What Redis knows of a conversation besides its log."""

    is_running: bool
    """True while an agent works, and after a kill, until another process has continued its work."""
    has_messages: bool
    """True if messages wait for the agent."""
    problem: str
    """Why the latest run failed; empty if it did not."""
    log_length: int
    stored: StoredState | None


OpenConversations = Callable[[str], AbstractAsyncContextManager[Any]]
"""Opens the ConversationService of a server whose Redis has this URL. The receiver must not import the service, so
this type does not name it.
"""
