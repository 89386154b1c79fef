"""Runs a conversation whose messages and pauses arrive through Redis, from any server."""

from patchwright.bot.conversation_models import ConversationRecord
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.resolver.events import Message, SystemPrompt
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.sdk.agents import BaseAgent
from patchwright.sdk.conversation import ConversationState
from patchwright.sdk.conversation_runner import ConversationRunner, PauseRequested
from patchwright.sdk.sandbox_workspace import SandboxWorkspace


class ServerRunner(ConversationRunner):
    """One conversation on this server."""

    def __init__(
        self,
        record: ConversationRecord,
        agent: BaseAgent,
        workspace: SandboxWorkspace,
        log: RunLog,
        logs: LogStore,
        records: ConversationRecords,
    ) -> None:
        super().__init__(record.id, agent, workspace, log, logs)
        self.record = record
        self.run_id = record.log
        self._records = records

    async def run(self) -> ConversationState:
        if not any(isinstance(event, SystemPrompt) for event in self.log.trajectory):
            await self.record_system_prompt()
        for message in await self._list_undelivered():
            await self.log.append(message)
        state = await super().run()
        # The request is removed last: after a kill, another process has to see it.
        if state.status == "paused":
            await self._records.remove_pause_request(self.run_id)
        return state

    async def get_new_messages(self) -> tuple[Message, ...]:
        if await self._records.has_pause_request(self.run_id):
            raise PauseRequested
        return await self._list_undelivered()

    async def _list_undelivered(self) -> tuple[Message, ...]:
        """Returns the messages that are not in the log yet, and removes the others from Redis."""
        waiting = await self._records.list_messages(self.run_id)
        delivered = {event.trigger_id for event in self.log.trajectory if isinstance(event, Message)}
        in_log = [message for message in waiting if message.trigger_id in delivered]
        await self._records.remove_messages(self.run_id, in_log)
        return tuple(self.mask(message) for message in waiting if message.trigger_id not in delivered)
