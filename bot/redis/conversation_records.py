"""Stores conversations and workspaces, the messages that wait for an agent, and requests to run and to pause."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from patchwright.bot.conversation_models import (
    ConversationActivity,
    ConversationRecord,
    RunRequest,
    StoredState,
    WorkspaceRecord,
)
from patchwright.bot.errors import Conflict, Unavailable
from patchwright.bot.redis.connection import RedisStore, parse_stored
from patchwright.bot.redis.shared_run_log import stream_key, writer_key
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Message
from patchwright.runtime import VERSION

CONVERSATIONS_KEY = "patchwright:conversations"  # hash: id -> ConversationRecord
ORDER_KEY = "patchwright:conversation_order"  # sorted set: id of the conversation -> its number
WORKSPACES_KEY = "patchwright:workspaces"  # hash: id -> WorkspaceRecord
COUNT_KEY = "patchwright:conversation_count"  # number of the latest conversation
RUN_REQUESTS_KEY = "patchwright:conversation_runs"  # hash: id of the conversation -> RunRequest
MAX_MESSAGES = 100
"""Messages of one conversation that may wait for its agent."""
CLAIM_MS = 20_000  # more than it takes to acquire the lease of a conversation
BLOCK_MS = 2000  # less than the time limit for a response of Redis
STATE_SECONDS = 30 * 24 * 3600  # After that, the log is read once more.
READ_COUNT = 200  # maximum entries of each log in one response
# Replaces a field of a hash, or removes it, if it has the expected value. KEYS: hash. ARGV: field, expected value, new
# value ("" removes the field).
_REPLACE_SCRIPT = """
if redis.call('hget', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '' then return redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('hset', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
# Adds a conversation, unless its id is taken. KEYS: conversations, order, count. ARGV: id, record.
_ADD_SCRIPT = """
if redis.call('hsetnx', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('zadd', KEYS[2], redis.call('incr', KEYS[3]), ARGV[1])
return 1
"""
# Deletes a conversation, unless it was changed or deleted, or an agent works on it. KEYS: conversations, order, run
# requests, lease of its log, keys to delete. ARGV: id, record.
_DELETE_SCRIPT = """
if redis.call('hget', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('exists', KEYS[4]) == 1 then return 0 end
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('zrem', KEYS[2], ARGV[1])
redis.call('hdel', KEYS[3], ARGV[1])
redis.call('del', unpack(KEYS, 5))
return 1
"""
# Executes commands, unless the conversation was deleted, even if another one has its id now. KEYS: conversations, keys
# of the commands. ARGV: id, log, commands as JSON.
_STORE_SCRIPT = """
local record = redis.call('hget', KEYS[1], ARGV[1])
if not record or cjson.decode(record).log ~= ARGV[2] then return 0 end
for _, command in ipairs(cjson.decode(ARGV[3])) do redis.call(unpack(command)) end
return 1
"""
CHANGED_MEANWHILE = "The conversation was started, changed or deleted at the same time. Try again."


class ConversationRecords(RedisStore):
    """The conversations of all servers that use the same Redis. Every method may raise QueueDown."""

    async def add_conversation(self, record: ConversationRecord) -> bool:
        """Returns False if there is already a conversation with this id."""
        arguments = (CONVERSATIONS_KEY, ORDER_KEY, COUNT_KEY, record.id, record.model_dump_json())
        return bool(await cast("Any", self._redis.eval(_ADD_SCRIPT, 3, *arguments)))

    async def replace_conversation(self, old: ConversationRecord, new: ConversationRecord) -> bool:
        """Returns False if another process has deleted or replaced the conversation."""
        return await self._replace(CONVERSATIONS_KEY, old.id, old.model_dump_json(), new.model_dump_json())

    async def get_conversation(self, id: str) -> ConversationRecord | None:
        text = await cast("Any", self._redis.hget(CONVERSATIONS_KEY, id))
        return None if text is None else ConversationRecord.model_validate_json(text)

    async def list_conversations(
        self, after: int = 0, limit: int = -1
    ) -> tuple[tuple[ConversationRecord, ...], int]:
        """Returns the conversations with numbers above `after`, oldest first, and the last one's number, or `after` if
        there are none. A number never changes, and none is used twice. A negative limit is none.
        """
        numbers = await self._redis.zrangebyscore(
            ORDER_KEY, f"({after}", "+inf", start=0, num=limit, withscores=True
        )
        ids = [id for id, _ in numbers]
        texts = await cast("Any", self._redis.hmget(CONVERSATIONS_KEY, ids)) if ids else []
        records = [ConversationRecord.model_validate_json(text) for text in texts if text is not None]
        return tuple(records), int(numbers[-1][1]) if numbers else after

    async def delete_conversation(self, record: ConversationRecord, logs: Iterable[RunId]) -> bool:
        """Deletes the conversation with these logs and its waiting messages. Returns False if another process has
        changed or deleted it, or works on it.
        """
        keys = [CONVERSATIONS_KEY, ORDER_KEY, RUN_REQUESTS_KEY, writer_key(record.log)]
        keys += [name(record.log) for name in (_messages_key, _pause_key, _problem_key)]
        keys += [name(log) for log in logs for name in (stream_key, _state_key)]
        arguments = (*keys, record.id, record.model_dump_json())
        return bool(await cast("Any", self._redis.eval(_DELETE_SCRIPT, len(keys), *arguments)))

    async def save_workspace(self, record: WorkspaceRecord) -> None:
        await cast("Any", self._redis.hset(WORKSPACES_KEY, record.id, record.model_dump_json()))

    async def get_workspace(self, id: str) -> WorkspaceRecord | None:
        text = await cast("Any", self._redis.hget(WORKSPACES_KEY, id))
        return None if text is None else WorkspaceRecord.model_validate_json(text)

    async def delete_workspace(self, id: str) -> None:
        await cast("Any", self._redis.hdel(WORKSPACES_KEY, id))

    async def claim_workspace(self, id: str, server: str) -> bool:
        """Reserves the workspace for a server that takes over its conversations. Returns False if another one has."""
        if await self._redis.set(_claim_key(id), server, nx=True, px=CLAIM_MS):
            return True
        return bool(await self._redis.get(_claim_key(id)) == server.encode())

    async def _store(self, record: ConversationRecord, *commands: tuple[str, ...]) -> None:
        """Executes the commands, whose second part is a key. Raises Conflict if the conversation was deleted."""
        keys = (CONVERSATIONS_KEY, *(command[1] for command in commands))
        arguments = (*keys, record.id, record.log, json.dumps(commands))
        if not await cast("Any", self._redis.eval(_STORE_SCRIPT, len(keys), *arguments)):
            raise Conflict(CHANGED_MEANWHILE)

    async def add_message(self, record: ConversationRecord, message: Message) -> None:
        """Adds a message. Raises Unavailable if MAX_MESSAGES wait, and Conflict if the conversation was deleted."""
        key = _messages_key(record.log)
        if await cast("Any", self._redis.llen(key)) >= MAX_MESSAGES:
            raise Unavailable("Too many messages wait for the agent. Start it, or wait.")
        await self._store(record, ("rpush", key, message.model_dump_json()))

    async def list_messages(self, log: RunId) -> tuple[Message, ...]:
        """Returns the messages that wait, oldest first."""
        texts = await cast("Any", self._redis.lrange(_messages_key(log), 0, -1))
        return tuple(Message.model_validate_json(text) for text in texts)

    async def remove_messages(self, log: RunId, messages: Iterable[Message]) -> None:
        """Removes messages that are in the log now."""
        for message in messages:
            await cast("Any", self._redis.lrem(_messages_key(log), 1, message.model_dump_json()))

    async def request_run(self, record: ConversationRecord, request: RunRequest) -> None:
        """Stores the request in place of an earlier one, and removes a request to pause and the problem of an earlier
        run. Raises Conflict if the conversation was deleted.
        """
        removed = [("del", name(record.log)) for name in (_problem_key, _pause_key)]
        stored = ("hset", RUN_REQUESTS_KEY, record.id, request.model_dump_json())
        await self._store(record, *removed, stored)

    async def get_run_request(self, id: str) -> RunRequest | None:
        text = await cast("Any", self._redis.hget(RUN_REQUESTS_KEY, id))
        return None if text is None else RunRequest.model_validate_json(text)

    async def list_run_requests(self) -> dict[str, RunRequest]:
        """Returns the requests whose work has not ended, by conversation."""
        stored = await cast("Any", self._redis.hgetall(RUN_REQUESTS_KEY))
        return {id.decode(): RunRequest.model_validate_json(text) for id, text in stored.items()}

    async def replace_run_request(self, id: str, old: RunRequest, new: RunRequest | None) -> bool:
        """Replaces a request; None removes it. Returns False if another process has replaced it before."""
        text = new.model_dump_json() if new else ""
        return await self._replace(RUN_REQUESTS_KEY, id, old.model_dump_json(), text)

    async def _replace(self, key: str, *arguments: str) -> bool:
        return bool(await cast("Any", self._redis.eval(_REPLACE_SCRIPT, 1, key, *arguments)))

    async def fail_run(self, record: ConversationRecord, problem: str) -> None:
        """Removes the request, and stores why its work ended without an event in the log."""
        stored = ("set", _problem_key(record.log), problem)
        with contextlib.suppress(Conflict):
            await self._store(record, stored, ("hdel", RUN_REQUESTS_KEY, record.id))

    async def list_activities(self, records: Iterable[ConversationRecord]) -> list[ConversationActivity]:
        """Returns what Redis knows of each conversation besides its log, with one request for all."""
        async with self._redis.pipeline() as pipeline:
            for record in records:
                pipeline.exists(writer_key(record.log))
                pipeline.hexists(RUN_REQUESTS_KEY, record.id)
                pipeline.llen(_messages_key(record.log))
                pipeline.get(_problem_key(record.log))
                pipeline.xlen(stream_key(record.log))
                pipeline.get(_state_key(record.log))
            found = iter(await pipeline.execute())
        return [
            ConversationActivity(
                is_running=bool(writer or request),
                has_messages=bool(messages),
                problem=(problem or b"").decode(),
                log_length=length,
                stored=parse_stored(StoredState, stored),
            )
            for writer, request, messages, problem, length, stored in zip(*[found] * 6, strict=True)
        ]

    async def save_state(self, log: RunId, state: StoredState) -> None:
        await self._redis.set(_state_key(log), state.model_dump_json(), ex=STATE_SECONDS)

    async def request_pause(self, record: ConversationRecord) -> None:
        """Raises Conflict if the conversation was deleted."""
        await self._store(record, ("set", _pause_key(record.log), "1", "ex", str(24 * 3600)))

    async def has_pause_request(self, log: RunId) -> bool:
        return bool(await self._redis.exists(_pause_key(log)))

    async def remove_pause_request(self, log: RunId) -> None:
        await self._redis.delete(_pause_key(log))

    async def has_writer(self, log: RunId) -> bool:
        """Returns True if an agent works on the conversation with this log on any server."""
        return bool(await self._redis.exists(writer_key(log)))

    async def wait_for_entries(self, positions: Mapping[RunId, str]) -> dict[RunId, list[tuple[str, str]]]:
        """Returns entries of these logs after a position in the stream of each ("0" is its start), each entry with its
        own position. If there are none, waits up to BLOCK_MS milliseconds. Uses one connection for all logs.
        """
        logs = {stream_key(log).encode(): log for log in positions}
        streams = await self._redis.xread(
            dict(zip(logs, positions.values(), strict=True)), count=READ_COUNT, block=BLOCK_MS
        )
        return {
            logs[name]: [(key.decode(), fields[b"entry"].decode()) for key, fields in found]
            for name, found in streams
        }


def _messages_key(log: RunId) -> str:
    return f"patchwright:conversation:{log}:messages"


def _claim_key(workspace: str) -> str:
    return f"patchwright:workspace:{workspace}:claim"


def _pause_key(log: RunId) -> str:
    return f"patchwright:conversation:{log}:pause"


def _problem_key(log: RunId) -> str:
    return f"patchwright:conversation:{log}:problem"


def _state_key(log: RunId) -> str:
    # Another version may describe the same log differently.
    return f"patchwright:conversation_state:{VERSION}:{log}"
