"""A conversation whose agent works on a Patchwright server."""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from patchwright.resolver.errors import UsageError
from patchwright.resolver.events import ENTRY_ADAPTER, Entry, Trajectory
from patchwright.resolver.run_calls import get_confirmation
from patchwright.resolver.security.risk import RiskPolicy
from patchwright.sdk.agents import BaseAgent, Confirm
from patchwright.sdk.background_loop import run_blocking, run_in_background, submit_in_background
from patchwright.sdk.conversation import BaseConversation, ConversationState
from patchwright.sdk.llm import EXPOSE_SECRETS
from patchwright.sdk.remote_workspace import RemoteWorkspace

RECONNECT_SECONDS = 0.5
STATE_SECONDS = 1.0
"""How often the state is read while no event arrives."""


class RemoteConversation(BaseConversation):
    """A conversation on a server. If the connection drops, it is opened again; each event arrives once and in order.

    If the server is killed while the agent works, another server or a worker continues the work. `run` raises
    ServerError if the server's address does not answer for 15 seconds.
    """

    def __init__(
        self,
        agent: BaseAgent,
        workspace: RemoteWorkspace,
        *,
        id: str | None = None,
        callbacks: Iterable[Callable[[Entry], object]] = (),
    ) -> None:
        self.id = id or f"conversation-{secrets.token_hex(8)}"
        self.agent = agent
        self.workspace = workspace
        self._callbacks = tuple(callbacks)
        self._entries: list[Entry] = []
        self._client = workspace.client
        run_blocking(self._create())
        run_blocking(self._load_entries())

    @property
    def state(self) -> ConversationState:
        return run_blocking(self._read_state())

    @property
    def events(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def send_message(self, text: str) -> None:
        if not text.strip():
            raise ValueError("the message is empty")
        run_blocking(self._post("messages", {"text": text}))

    def run(self) -> ConversationState:
        return run_blocking(self._run())

    async def arun(self) -> ConversationState:
        return await run_in_background(self._run())

    def pause(self) -> None:
        submit_in_background(self._post("pause"))

    def approve(self, *, all_like_this: bool = False) -> None:
        self._decide("approve", {"all_like_this": all_like_this})

    def reject(self, reason: str = "") -> None:
        self._decide("reject", {"reason": reason})

    def _decide(self, decision: str, body: dict[str, Any]) -> None:
        """Decides about the call that this object has seen, not about a later one."""
        if (waiting := get_confirmation(Trajectory(tuple(self._entries)))) is None:
            raise UsageError("No call waits for approval.")
        run_blocking(self._post(decision, {"code": waiting.code, **body}))

    def set_confirmation(self, confirm: Confirm | RiskPolicy) -> None:
        if not isinstance(confirm, str):
            raise TypeError("a server knows only the policies never, risky and always")
        self.agent = type(self.agent).model_validate({**dict(self.agent), "confirm": confirm})
        run_blocking(self._create())

    async def _create(self) -> None:
        """Creates the conversation, or gives it this agent from its next run on."""
        agent = self.agent.model_dump(mode="json", context=EXPOSE_SECRETS)
        body = {"id": self.id, "workspace": self.workspace.id, "agent": agent}
        await self._client.request("POST", "conversations", json=body, retry=True)

    def close(self) -> None:
        """Does nothing: the server keeps the conversation, and the workspace owns the connection."""

    async def _post(self, action: str, body: object = None) -> None:
        await self._client.request("POST", "conversations", self.id, action, json=body)

    async def _read_state(self) -> ConversationState:
        response = await self._client.request("GET", "conversations", self.id)
        return ConversationState.model_validate_json(response.content)

    async def _load_entries(self) -> None:
        while True:
            response = await self._client.request(
                "GET", "conversations", self.id, "events", params={"after": len(self._entries)}
            )
            entries = response.json()["entries"]
            if not entries:
                return
            for entry in entries:
                self._add(ENTRY_ADAPTER.validate_python(entry))

    async def _run(self) -> ConversationState:
        from websockets.exceptions import WebSocketException

        await self._client.request("POST", "conversations", self.id, "run", retry=True)
        while True:
            try:
                async with self._client.connect_websocket(
                    "conversations", self.id, "events", query=f"?after={len(self._entries)}"
                ) as socket:
                    if state := await self._follow(socket):
                        return state
            except (OSError, WebSocketException):
                await asyncio.sleep(RECONNECT_SECONDS)
                state = await self._read_state()  # Raises ServerError if the server stays away.
                if state.status != "running":
                    await self._load_entries()
                    return state

    async def _follow(self, socket: Any) -> ConversationState | None:
        """Receives entries until the agent has stopped."""
        while True:
            try:
                async with asyncio.timeout(STATE_SECONDS):
                    text = await socket.recv()
                self._add(ENTRY_ADAPTER.validate_json(text))
                if self._entries[-1].event.kind not in ("agent_stopped", "paused"):
                    continue
            except TimeoutError:
                pass
            state = await self._read_state()
            if state.status != "running":
                await self._load_entries()
                return state

    def _add(self, entry: Entry) -> None:
        if entry.seq != len(self._entries):
            return  # It arrived already.
        self._entries.append(entry)
        for callback in self._callbacks:
            callback(entry)
