"""Stores conversations and workspaces, the messages that wait for an agent, and requests to pause."""

from collections.abc import Iterable
from typing import Any, cast

from patchwright.bot.conversation_models import ConversationRecord, WorkspaceRecord
from patchwright.bot.redis.connection import RedisStore, redis_errors
from patchwright.bot.redis.shared_run_log import stream_key, writer_key
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Message

CONVERSATIONS_KEY = "patchwright:conversations"  # hash: id -> ConversationRecord
WORKSPACES_KEY = "patchwright:workspaces"  # hash: id -> WorkspaceRecord
MAX_MESSAGES = 100
"""Messages of one conversation that may wait for its agent."""
BLOCK_MS = 2000  # less than the time limit for a response of Redis


class ConversationRecords(RedisStore):
    """The conversations of all servers that use the same Redis. Every method may raise QueueDown."""

    async def add_conversation(self, record: ConversationRecord) -> bool:
        """Returns False if there is already a conversation with this id."""
        with redis_errors():
            return bool(
                await cast("Any", self._redis.hsetnx(CONVERSATIONS_KEY, record.id, record.model_dump_json()))
            )

    async def save_conversation(self, record: ConversationRecord) -> None:
        with redis_errors():
            await cast("Any", self._redis.hset(CONVERSATIONS_KEY, record.id, record.model_dump_json()))

    async def get_conversation(self, id: str) -> ConversationRecord | None:
        with redis_errors():
            text = await cast("Any", self._redis.hget(CONVERSATIONS_KEY, id))
        return None if text is None else ConversationRecord.model_validate_json(text)

    async def list_conversations(self) -> tuple[ConversationRecord, ...]:
        """Returns all conversations, oldest first."""
        with redis_errors():
            texts = await cast("Any", self._redis.hvals(CONVERSATIONS_KEY))
        records = [ConversationRecord.model_validate_json(text) for text in texts]
        return tuple(sorted(records, key=lambda record: (record.created_at, record.id)))

    async def delete_conversation(self, id: str, logs: Iterable[RunId]) -> None:
        """Deletes the conversation with these logs and its waiting messages."""
        with redis_errors():
            await cast("Any", self._redis.hdel(CONVERSATIONS_KEY, id))
            await self._redis.delete(_messages_key(id), _pause_key(id), *map(stream_key, logs))

    async def save_workspace(self, record: WorkspaceRecord) -> None:
        with redis_errors():
            await cast("Any", self._redis.hset(WORKSPACES_KEY, record.id, record.model_dump_json()))

    async def get_workspace(self, id: str) -> WorkspaceRecord | None:
        with redis_errors():
            text = await cast("Any", self._redis.hget(WORKSPACES_KEY, id))
        return None if text is None else WorkspaceRecord.model_validate_json(text)

    async def delete_workspace(self, id: str) -> None:
        with redis_errors():
            await cast("Any", self._redis.hdel(WORKSPACES_KEY, id))

    async def add_message(self, id: str, message: Message) -> bool:
        """Adds a message for the agent. Returns False if MAX_MESSAGES are waiting."""
        with redis_errors():
            if await cast("Any", self._redis.llen(_messages_key(id))) >= MAX_MESSAGES:
                return False
            await cast("Any", self._redis.rpush(_messages_key(id), message.model_dump_json()))
        return True

    async def list_messages(self, id: str) -> tuple[Message, ...]:
        """Returns the messages that wait, oldest first."""
        with redis_errors():
            texts = await cast("Any", self._redis.lrange(_messages_key(id), 0, -1))
        return tuple(Message.model_validate_json(text) for text in texts)

    async def remove_messages(self, id: str, messages: Iterable[Message]) -> None:
        """Removes messages that are in the log now."""
        with redis_errors():
            for message in messages:
                await cast("Any", self._redis.lrem(_messages_key(id), 1, message.model_dump_json()))

    async def request_pause(self, id: str) -> None:
        with redis_errors():
            await self._redis.set(_pause_key(id), "1", ex=24 * 3600)

    async def take_pause_request(self, id: str) -> bool:
        """Returns True if there was a request since the last call."""
        with redis_errors():
            return bool(await self._redis.delete(_pause_key(id)))

    async def has_writer(self, log: RunId) -> bool:
        """Returns True if an agent works on the conversation with this log on any server."""
        with redis_errors():
            return bool(await self._redis.exists(writer_key(log)))

    async def read_entries(self, log: RunId, position: str, *, wait: bool) -> list[tuple[str, str]]:
        """Returns the entries of the log after a position of the stream ("0" is its start), each with its own
        position. If there is none and `wait` is True, waits up to BLOCK_MS milliseconds.
        """
        with redis_errors():
            streams = await self._redis.xread({stream_key(log): position}, block=BLOCK_MS if wait else None)
        return [(key.decode(), fields[b"entry"].decode()) for _, found in streams for key, fields in found]


def _messages_key(id: str) -> str:
    return f"patchwright:conversation:{id}:messages"


def _pause_key(id: str) -> str:
    return f"patchwright:conversation:{id}:pause"
