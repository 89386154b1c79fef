"""Conversations with an agent: the same interface in this process and on a server."""

import asyncio
from abc import ABC, abstractmethod
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from pydantic import ConfigDict

from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.agents import BaseAgent, Confirm

if TYPE_CHECKING:
    from patchwright.resolver.events import Entry
    from patchwright.resolver.security.risk import RiskPolicy

Status = Literal[
    "idle", "running", "paused", "waiting_for_confirmation", "finished", "limit", "stuck", "error"
]


class ConversationState(FrozenModel):
    """The state of a conversation at one time."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    status: Status
    """- idle: a message waits for `run`, or there is none yet.
    - running: the agent works.
    - paused: `run` continues the work.
    - waiting_for_confirmation: `call` waits for `approve` or `reject`.
    - finished: the agent has answered.
    - limit, stuck, error: the agent stopped without an answer; `detail` says why.
    """
    detail: str = ""
    """One sentence about the status."""
    call: str = ""
    """The exact call that waits for approval; empty if there is none."""
    call_code: str = ""
    """Identifies this call."""
    answer: str = ""
    """The agent's latest answer to a person."""
    steps: int = 0
    tokens: int = 0
    """Tokens of all prompts and replies."""
    cost: Decimal = Decimal(0)
    """Cost in dollars, as far as the prices are known."""
    workspace: str = ""
    """Id of the workspace on the server; empty for a conversation in this process."""


class BaseConversation(ABC):
    """A conversation of a person with an agent in a workspace. `Conversation` creates it."""

    id: str
    agent: BaseAgent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    @property
    def cost(self) -> Decimal:
        """Cost so far in dollars, as far as the prices are known."""
        return self.state.cost

    @property
    @abstractmethod
    def state(self) -> ConversationState:
        """The state now."""

    @property
    @abstractmethod
    def events(self) -> "tuple[Entry, ...]":
        """The log so far: each entry has a number, a time and an event."""

    @abstractmethod
    def send_message(self, text: str) -> None:
        """Sends a message to the agent. A working agent reads it before its next step; otherwise, `run` starts the
        work.
        """

    @abstractmethod
    def run(self) -> ConversationState:
        """Lets the agent work until it answers, reaches a limit, or is paused. Continues a paused conversation.

        If the model fails, the status is `error`, and `detail` says why. In this process, ModelAccessDenied is raised
        instead if the provider rejects the key or the model or cannot be reached, and SandboxError if the machine
        fails. The log is kept in any case, and another call continues the work.
        """

    @abstractmethod
    async def arun(self) -> ConversationState:
        """The same as `run`, for programs that use asyncio."""

    @abstractmethod
    def pause(self) -> None:
        """Lets `run` return before the agent's next step. May be called from another thread or a callback."""

    @abstractmethod
    def approve(self, *, all_like_this: bool = False) -> None:
        """Approves the call that waits, and with `all_like_this` similar calls of this conversation, too. `run` then
        continues the work. Raises UsageError if no call waits.
        """

    @abstractmethod
    def reject(self, reason: str = "") -> None:
        """Rejects the call that waits. `run` continues the work, and the agent reads the reason. Raises UsageError if
        no call waits.
        """

    @abstractmethod
    def set_confirmation(self, confirm: "Confirm | RiskPolicy") -> None:
        """Changes which calls wait for approval, from the agent's next call on. On a server, from the next `run` on,
        and only by name.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases the log. The conversation can be continued later by its id."""
