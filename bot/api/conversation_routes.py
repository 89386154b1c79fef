"""The routes of `/conversations`: create, message, run, pause, follow and delete conversations with agents."""

import asyncio
import contextlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Response, Security, WebSocket
from fastapi.websockets import WebSocketDisconnect, WebSocketState
from pydantic import ConfigDict, Field, ValidationError

from patchwright.bot.api.authentication import Deps, require_scopes
from patchwright.bot.api.openapi import problems
from patchwright.bot.api.problem_details import invalid_field
from patchwright.bot.conversation_models import ID_PATTERN, ConversationRecord
from patchwright.bot.conversations.conversation_service import ConversationService
from patchwright.bot.redis.api_keys import ApiKey
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.agents import BaseAgent
from patchwright.sdk.conversation import ConversationState

router = APIRouter(prefix="/conversations", tags=["conversations"])

MAX_MESSAGE_LENGTH = 100_000
"""Characters of one message."""
PAGE_SIZE = 1000
"""Entries of one response."""
CONVERSATIONS_PAGE_SIZE = 100


async def get_service(deps: Deps) -> ConversationService:
    """Returns the conversations of this server."""
    if deps.conversations is None:
        raise HTTPException(404, "This server runs no conversations.")
    return deps.conversations


Service = Annotated[ConversationService, Depends(get_service)]
Reader = Annotated[ApiKey, Security(require_scopes, scopes=["conversations:read"])]
Writer = Annotated[ApiKey, Security(require_scopes, scopes=["conversations:write"])]


class NewConversation(FrozenModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str | None = Field(default=None, pattern=ID_PATTERN)
    """The name of the conversation. By default, the server chooses one. If a conversation with this name exists, it is
    returned and works with this agent from its next run on. It must be in the same workspace.
    """
    workspace: str = Field(pattern=ID_PATTERN)
    """Id of the workspace in which the agent works."""
    agent: dict[str, Any]
    """The agent, as `agent.model_dump_json(context={"expose_secrets": True})` writes it: an `Agent`, or one of another
    `kind` that a package on the server declares. API keys are stored encrypted.
    """


class NewMessage(FrozenModel):
    text: str = Field(min_length=1, max_length=MAX_MESSAGE_LENGTH)


class Approval(FrozenModel):
    code: str = Field(pattern=r"^[0-9a-f]{8}$", description="The `call_code` of the call that waits.")
    all_like_this: bool = Field(
        default=False, description="Whether similar calls of this conversation are approved, too."
    )


class Rejection(FrozenModel):
    code: str = Field(pattern=r"^[0-9a-f]{8}$", description="The `call_code` of the call that waits.")
    reason: str = Field(default="", max_length=10_000, description="What the agent should do instead.")


class ConversationPage(FrozenModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    conversations: tuple[ConversationState, ...]
    next: int
    """Value of `after` for the next page. Behind the last conversation, it equals `after`."""


class PageQuery(FrozenModel):
    after: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="`next` of the page before. Of a log, this is the number of entries that you have.",
    )


class EventPage(FrozenModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    entries: tuple[dict[str, Any], ...]
    """Entries of the log: each has `seq`, `timestamp` and `event`."""
    next: int
    """Value of `after` for the next page."""


async def find_conversation(service: Service, id: Annotated[str, Path()]) -> ConversationRecord:
    """Returns the conversation of the path. Raises HTTPException if there is none."""
    if (record := await service.records.get_conversation(id)) is None:
        raise HTTPException(404, "Conversation not found.")
    return record


Found = Annotated[ConversationRecord, Depends(find_conversation)]


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": ConversationState, "description": "The conversation existed already."},
        **problems(400, 404, 408, 409, 413, 415, 422),
    },
)
async def create_conversation(
    body: NewConversation, _: Writer, service: Service, response: Response
) -> ConversationState:
    """Creates a conversation of an agent in a workspace."""
    try:
        agent = BaseAgent.model_validate(body.agent)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in ("agent", *first["loc"]))
        raise invalid_field(field, first["msg"].removeprefix("Value error, ")) from exc
    if await service.records.get_workspace(body.workspace) is None:
        raise HTTPException(404, "Workspace not found.")
    record, is_new = await service.create(body.id, agent, body.workspace)
    response.status_code = 201 if is_new else 200
    return await service.get_state(record)


@router.get("", responses=problems(404, 422))
async def list_conversations(
    _: Reader, service: Service, query: Annotated[PageQuery, Query()]
) -> ConversationPage:
    """Returns at most 100 conversations, oldest first. Pass `next` of a page as `after` to get the page after it."""
    records, last = await service.records.list_conversations(query.after, CONVERSATIONS_PAGE_SIZE)
    return ConversationPage(conversations=await service.list_states(records), next=last)


@router.get("/{id}", responses=problems(404))
async def read_conversation(_: Reader, record: Found, service: Service) -> ConversationState:
    """Returns the state of a conversation: its status, its latest answer, and what it has used."""
    return await service.get_state(record)


@router.post("/{id}/messages", status_code=202, responses=problems(400, 404, 408, 409, 413, 415, 422, 503))
async def send_message(_: Writer, record: Found, body: NewMessage, service: Service) -> ConversationState:
    """Sends a message. A working agent reads it before its next step."""
    if not body.text.strip():
        raise invalid_field("text", "The message is empty")
    await service.send(record, body.text)
    return await service.get_state(record)


@router.post("/{id}/run", status_code=202, responses=problems(404, 409, 503))
async def run_conversation(_: Writer, record: Found, service: Service) -> ConversationState:
    """Lets the agent work until it answers, reaches a limit, or is paused."""
    await service.run(record)
    return await service.get_state(record)


@router.post("/{id}/pause", status_code=202, responses=problems(404, 409))
async def pause_conversation(_: Writer, record: Found, service: Service) -> ConversationState:
    """Lets the agent stop before its next step. `run` continues the work."""
    await service.pause(record)
    return await service.get_state(record)


@router.post("/{id}/approve", status_code=202, responses=problems(400, 404, 408, 409, 413, 415, 422, 503))
async def approve_call(_: Writer, record: Found, body: Approval, service: Service) -> ConversationState:
    """Approves the call that waits for confirmation. `run` continues the work."""
    await service.decide(record, body.code, approved=True, all_like_this=body.all_like_this)
    return await service.get_state(record)


@router.post("/{id}/reject", status_code=202, responses=problems(400, 404, 408, 409, 413, 415, 422, 503))
async def reject_call(_: Writer, record: Found, body: Rejection, service: Service) -> ConversationState:
    """Rejects the call that waits for confirmation. `run` continues the work, and the agent reads the reason."""
    await service.decide(record, body.code, approved=False, reason=body.reason)
    return await service.get_state(record)


@router.delete("/{id}", status_code=204, response_class=Response, responses=problems(404, 409))
async def delete_conversation(_: Writer, record: Found, service: Service) -> None:
    """Deletes a conversation with its log. Its workspace stays."""
    await service.delete(record)


@router.get("/{id}/events", responses=problems(404, 422))
async def list_events(
    _: Reader, record: Found, service: Service, query: Annotated[PageQuery, Query()]
) -> EventPage:
    """Returns the log without its first `after` entries, at most 1000 entries.

    A WebSocket on the same path, with the same header and `after`, sends all of these entries and then each new one, in
    order and once. Each message is one `Log.Entry` as JSON. The connection stays open when the agent stops. If it
    drops, connect again, with the number of entries that you have as `after`.
    """
    entries = await service.list_entries(record.log, query.after, PAGE_SIZE)
    return EventPage(entries=entries, next=query.after + len(entries))


@router.websocket("/{id}/events")
async def follow_events(
    websocket: WebSocket, _: Reader, service: Service, id: str, after: Annotated[int, Query(ge=0)] = 0
) -> None:
    """Sends the log without its first `after` entries, and then each new entry, in order and once."""
    record = await find_conversation(service, id)
    await websocket.accept()
    async with service.follow(record.log, after) as entries:

        async def send() -> None:
            async for entry in entries:
                await websocket.send_text(entry)

        sending = asyncio.create_task(send())
        receiving = asyncio.create_task(_wait_for_disconnect(websocket))
        done, pending = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*done, *pending, return_exceptions=True)
    if websocket.application_state is WebSocketState.CONNECTED and sending in done:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # The client has left meanwhile.
            await websocket.close(1011, "The log cannot be read now. Connect again.")


async def _wait_for_disconnect(websocket: WebSocket) -> None:
    """Ignores what the client sends."""
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await websocket.receive_text()
