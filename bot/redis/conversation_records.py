"""Stores conversations and workspaces, the messages that wait for an agent, and requests to run and to pause."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from patchwright.bot.conversation_models import ConversationRecord, RunRequest, WorkspaceRecord
from patchwright.bot.redis.connection import RedisStore, redis_errors
from patchwright.bot.redis.shared_run_log import stream_key, writer_key
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Message

CONVERSATIONS_KEY = "patchwright:conversations"  # hash: id -> ConversationRecord
WORKSPACES_KEY = "patchwright:workspaces"  # hash: id -> WorkspaceRecord
RUN_REQUESTS_KEY = "patchwright:conversation_runs"  # hash: id of the conversation -> RunRequest
MAX_MESSAGES = 100
"""Messages of one conversation that may wait for its agent."""
CLAIM_MS = 20_000  # more than it takes to acquire the lease of a conversation
BLOCK_MS = 2000  # less than the time limit for a response of Redis
READ_COUNT = 200  # maximum entries of each log in one response
# Replaces a field of a hash, or removes it, if it has the expected value. KEYS: hash. ARGV: field, expected value, new
# value ("" removes the field).
_REPLACE_SCRIPT = """
if redis.call('hget', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '' then return redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('hset', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


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
            await cast("Any", self._redis.hdel(RUN_REQUESTS_KEY, id))
            await self._redis.delete(
                _messages_key(id), _pause_key(id), _problem_key(id), *map(stream_key, logs)
            )

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

    async def claim_workspace(self, id: str, server: str) -> bool:
        """Reserves the workspace for a server that takes over its conversations. Returns False if another one has."""
        with redis_errors():
            if await self._redis.set(_claim_key(id), server, nx=True, px=CLAIM_MS):
                return True
            return bool(await self._redis.get(_claim_key(id)) == server.encode())

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

    async def request_run(self, id: str, request: RunRequest) -> None:
        """Stores the request in place of an earlier one, and removes the problem of an earlier run."""
        with redis_errors():
            await self._redis.delete(_problem_key(id))
            await cast("Any", self._redis.hset(RUN_REQUESTS_KEY, id, request.model_dump_json()))

    async def get_run_request(self, id: str) -> RunRequest | None:
        with redis_errors():
            text = await cast("Any", self._redis.hget(RUN_REQUESTS_KEY, id))
        return None if text is None else RunRequest.model_validate_json(text)

    async def list_run_requests(self) -> dict[str, RunRequest]:
        """Returns the requests whose work has not ended, by conversation."""
        with redis_errors():
            stored = await cast("Any", self._redis.hgetall(RUN_REQUESTS_KEY))
        return {id.decode(): RunRequest.model_validate_json(text) for id, text in stored.items()}

    async def replace_run_request(self, id: str, old: RunRequest, new: RunRequest | None) -> bool:
        """Replaces a request; None removes it. Returns False if another process has replaced it before."""
        texts = (old.model_dump_json(), new.model_dump_json() if new else "")
        with redis_errors():
            return bool(await cast("Any", self._redis.eval(_REPLACE_SCRIPT, 1, RUN_REQUESTS_KEY, id, *texts)))

    async def fail_run(self, id: str, problem: str) -> None:
        """Removes the request, and stores why its work ended without an event in the log."""
        with redis_errors():
            await self._redis.set(_problem_key(id), problem)
            await cast("Any", self._redis.hdel(RUN_REQUESTS_KEY, id))

    async def get_problem(self, id: str) -> str:
        """Returns why the latest run failed; empty if it did not."""
        with redis_errors():
            return (await self._redis.get(_problem_key(id)) or b"").decode()

    async def request_pause(self, id: str) -> None:
        with redis_errors():
            await self._redis.set(_pause_key(id), "1", ex=24 * 3600)

    async def has_pause_request(self, id: str) -> bool:
        with redis_errors():
            return bool(await self._redis.exists(_pause_key(id)))

    async def remove_pause_request(self, id: str) -> None:
        with redis_errors():
            await self._redis.delete(_pause_key(id))

    async def has_writer(self, log: RunId) -> bool:
        """Returns True if an agent works on the conversation with this log on any server."""
        with redis_errors():
            return bool(await self._redis.exists(writer_key(log)))

    async def wait_for_entries(self, positions: Mapping[RunId, str]) -> dict[RunId, list[tuple[str, str]]]:
        """Returns entries of these logs after a position in the stream of each ("0" is its start), each entry with its
        own position. If there are none, waits up to BLOCK_MS milliseconds. Uses one connection for all logs.
        """
        logs = {stream_key(log).encode(): log for log in positions}
        with redis_errors():
            streams = await self._redis.xread(
                dict(zip(logs, positions.values(), strict=True)), count=READ_COUNT, block=BLOCK_MS
            )
        return {
            logs[name]: [(key.decode(), fields[b"entry"].decode()) for key, fields in found]
            for name, found in streams
        }


def _messages_key(id: str) -> str:
    return f"patchwright:conversation:{id}:messages"


def _claim_key(workspace: str) -> str:
    return f"patchwright:workspace:{workspace}:claim"


def _pause_key(id: str) -> str:
    return f"patchwright:conversation:{id}:pause"


def _problem_key(id: str) -> str:
    return f"patchwright:conversation:{id}:problem"
