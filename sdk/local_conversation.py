"""A conversation whose agent works in this process."""

import contextlib
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import WeakValueDictionary

from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Entry
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.security.risk import RiskPolicy
from patchwright.sdk import environment
from patchwright.sdk.agents import BaseAgent, Confirm
from patchwright.sdk.background_loop import run_blocking, run_in_background
from patchwright.sdk.base_workspace import BaseWorkspace
from patchwright.sdk.conversation import BaseConversation, ConversationState
from patchwright.sdk.conversation_runner import ConversationRunner
from patchwright.sdk.local_workspace import LocalWorkspace
from patchwright.sdk.sandbox_workspace import SandboxWorkspace

_open_conversations: "WeakValueDictionary[str, LocalConversation]" = WeakValueDictionary()
"""The conversations of this process, by the path of their logs."""


class LocalConversation(BaseConversation):
    """A conversation whose agent works in this process. Each event is stored before the next step, so a killed
    conversation continues where its log ends.
    """

    def __init__(
        self,
        agent: BaseAgent,
        workspace: BaseWorkspace | str | Path,
        *,
        id: str | None = None,
        persistence_dir: str | Path | None = None,
        callbacks: Iterable[Callable[[Entry], object]] = (),
    ) -> None:
        if isinstance(workspace, str | Path):
            workspace = LocalWorkspace(workspace)
        if not isinstance(workspace, SandboxWorkspace):
            raise TypeError(f"a local conversation cannot use a {type(workspace).__name__}")
        self.id = id or f"conversation-{secrets.token_hex(8)}"
        self.agent = agent
        self.workspace = workspace
        self._callbacks = tuple(callbacks)
        directory = (
            Path(persistence_dir) if persistence_dir else environment.data_directory() / "conversations"
        )
        key = str(directory.absolute() / self.id)
        if (earlier := _open_conversations.get(key)) is not None and not earlier.is_running:
            earlier.close()  # A notebook may run the same cell twice.
        logs = FileLogStore(directory)
        self._stack = contextlib.AsyncExitStack()
        log = run_blocking(self._stack.enter_async_context(logs.open(RunId(self.id), (self._notify,))))
        self._runner = ConversationRunner(self.id, agent, workspace, log, logs)
        _open_conversations[key] = self

    @property
    def is_running(self) -> bool:
        """True while `run` has not returned."""
        return self._runner.is_running

    @property
    def state(self) -> ConversationState:
        return self._runner.get_state()

    @property
    def events(self) -> tuple[Entry, ...]:
        return self._runner.log.trajectory.entries

    def send_message(self, text: str) -> None:
        run_blocking(self._runner.send(text))

    async def asend_message(self, text: str) -> None:
        await run_in_background(self._runner.send(text))

    def run(self) -> ConversationState:
        return run_blocking(self._runner.run())

    async def arun(self) -> ConversationState:
        return await run_in_background(self._runner.run())

    def pause(self) -> None:
        self._runner.pause_requested = True

    def approve(self, *, all_like_this: bool = False) -> None:
        run_blocking(self._runner.decide(approved=True, all_like_this=all_like_this))

    def reject(self, reason: str = "") -> None:
        run_blocking(self._runner.decide(approved=False, reason=reason))

    def set_confirmation(self, confirm: Confirm | RiskPolicy) -> None:
        self._runner.policy.set(confirm)

    def close(self) -> None:
        run_blocking(self._stack.aclose())

    def _notify(self, entry: Entry) -> None:
        for callback in self._callbacks:
            callback(entry)
