"""A recorded model behind a loopback endpoint that has the APIs of OpenAI and Anthropic.

It serves `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`, without streaming, and `GET
/v1/models`. A reply is selected by the number of the turn, and not by the bytes of the prompt. So a recording
still works after the wording of a prompt has changed.
"""

import asyncio
import inspect
import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from patchwright.demo.api_formats import API_FORMATS, ApiFormat, RecordedReply, extract_prompt
from patchwright.demo.asgi import (
    AsgiMessage,
    ClientDisconnected,
    Receive,
    Send,
    read_body,
    read_headers,
    respond,
)
from patchwright.demo.loopback_server import LoopbackServer
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.domain import Verdict
from patchwright.resolver.llm.probe import PROBE_NUMBER, PROBE_TOOL
from patchwright.resolver.rendering.template_renderer import render, render_prompt
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure

CHARACTERS_PER_TOKEN = 4  # the usual rule of thumb for English and code
CACHE_BLOCK_TOKENS = 128  # tokens; OpenAI caches prompts in blocks of this size

LOST_RESULT = render_observation(
    ActionFailure(
        reason="lost", message=render_prompt("lost_call.md.j2", is_saved=False, is_same_sandbox=False)
    )
)
"""The result that the agent reports for a call that was lost because its process was killed."""
UNIQUE_TEXT = "%ONCE%"
"""Placeholder in a call's arguments. Each reply replaces it by a different text. Tests can then distinguish a call
that was executed twice from a call that was requested twice.
"""
REMINDER = (
    render("prompts/unsettled_verdict.md.j2", verdict=Verdict(kind="unproven")).rstrip().rpartition("\n")[2]
)
"""How the message ends that tells the agent once that its fix is not proven, or that it has conditions."""
FINISH_REJECTED = render_prompt("finish_rejected.md.j2", missing=()).partition(":")[0]
"""How the result of a `finish` call begins if the agent rejects the call because work is missing."""

RequestHook = Callable[[int, dict[str, Any]], Awaitable[None] | None]


class RecordedCall(FrozenModel):
    """A tool call as the model writes it."""

    name: str
    arguments: dict[str, Any] | str
    """The arguments; a string is sent unchanged, so that a recording can contain invalid JSON."""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class RecordedTurn(FrozenModel):
    """One reply, for example `RecordedTurn("Look around.", RunShell(command="ls"))`."""

    thought: str
    calls: tuple[RecordedCall, ...] = ()
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    """The finish reason. None means `tool_calls` if the reply has tool calls, and otherwise `stop`."""
    reasoning: tuple[dict[str, Any], ...] = ()
    """Reasoning in the API format of the request. For chat completions, these are fields of the message."""
    usage: dict[str, Any] = Field(default_factory=dict)
    """Additional fields of `usage` in a chat completion."""

    def __init__(self, thought: str, *actions: FrozenModel, **fields: Any) -> None:
        written = tuple(
            RecordedCall(name=values.pop("kind"), arguments=values)
            for values in (action.model_dump(mode="json", exclude_none=True) for action in actions)
        )
        BaseModel.__init__(self, thought=thought, calls=written or fields.pop("calls", ()), **fields)


class ModelFault(FrozenModel):
    """A faulty response that is sent instead of a recorded reply."""

    status: int = 200
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | bytes = ""
    is_truncated: bool = False
    """True if the connection closes in the middle of the body."""
    byte_delay: float = 0.0
    """Seconds between two bytes of the body."""


def rate_limited(retry_after: float | None = None) -> ModelFault:
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return _error_response(
        429, "Rate limit reached for requests", code="rate_limit_exceeded", headers=headers
    )


def context_overflow() -> ModelFault:
    text = "This model's maximum context length is 128000 tokens. Your messages resulted in 150000 tokens."
    return _error_response(400, text, code="context_length_exceeded")


def html_page(status: int = 200) -> ModelFault:
    """Returns an HTML page instead of a reply, as a proxy or a captive portal would."""
    page = "<!doctype html><html><body><h1>Sign in to continue</h1></body></html>"
    return ModelFault(status=status, headers={"content-type": "text/html"}, body=page)


def server_error(status: int = 500) -> ModelFault:
    return _error_response(
        status, "The server had an error while processing your request", kind="server_error"
    )


def truncated_reply() -> ModelFault:
    return ModelFault(body=json.dumps(_chat_completion("x" * 500)), is_truncated=True)


def slow_reply(seconds: float = 1.0) -> ModelFault:
    """Returns a reply that is sent byte by byte."""
    return ModelFault(body=json.dumps(_chat_completion("Slowly.")), byte_delay=seconds)


def reply_without_choices() -> ModelFault:
    """Returns a reply whose usage is billed, but whose `choices` are empty."""
    return ModelFault(
        body=json.dumps(_chat_completion("", prompt_tokens=1000, completion_tokens=50) | {"choices": []})
    )


class RecordedModel:
    """Serves a recording while its context is open. `requests` contains every request with a valid key.

    Probes of the model (`resolver/llm/probe.py`) get the right answer and are no part of `requests`, unless
    `answers_probes` is False.

    `delay` is the number of seconds before each response. `on_request(turn, body)` is called before each
    response, and awaited if it is a coroutine. `add_faults(...)` replaces the next responses with faults.
    """

    def __init__(
        self,
        turns: Sequence[RecordedTurn],
        *,
        key: str | None = None,
        delay: float = 0.0,
        on_request: RequestHook | None = None,
        answers_probes: bool = True,
    ) -> None:
        self._answers_probes = answers_probes
        self._turns = tuple(turns)
        self._key = key
        self._delay = delay
        self._on_request = on_request
        self._faults: deque[ModelFault] = deque()
        self._previous_prompt = ""
        self.requests: list[dict[str, Any]] = []
        self._server = LoopbackServer(self._serve)
        self.base_url = f"{self._server.url}/v1"

    def select_turns(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[RecordedTurn]:
        """Returns the recording that answers this conversation. A subclass may serve several recordings."""
        return self._turns

    def add_faults(self, *faults: ModelFault) -> None:
        """Adds faults. Each of the next requests gets one fault instead of a recorded reply."""
        self._faults.extend(faults)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()

    async def _serve(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive)
        except ClientDisconnected:
            return
        given = read_headers(scope)
        key = given.get("x-api-key") or (given.get("authorization") or "").removeprefix("Bearer ")
        fault = await self._respond(scope["method"], scope["path"], key, body)
        headers = {"content-type": "application/json", **fault.headers}
        content = fault.body if isinstance(fault.body, bytes) else fault.body.encode()
        if not (fault.is_truncated or fault.byte_delay):
            await respond(send, fault.status, headers, content)
            return
        start = [(name.encode(), value.encode()) for name, value in headers.items()]
        length = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": fault.status, "headers": start + length})
        if fault.is_truncated:
            await send(
                {"type": "http.response.body", "body": content[: len(content) // 2], "more_body": True}
            )
            await self._server.close_connection(scope, abort=False)
            return
        for byte in content:
            if self._server.is_stopping:
                break
            await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
            await asyncio.sleep(fault.byte_delay)
        await self._server.close_connection(scope, abort=False)

    async def _respond(self, method: str, path: str, key: str, body: bytes) -> ModelFault:
        if self._key is not None and key != self._key:
            return _error_response(401, "Incorrect API key provided.", code="invalid_api_key")
        match method, path:
            case "GET", "/v1/models":
                models: list[Any] = [
                    {"id": "recorded", "object": "model", "created": 0, "owned_by": "patchwright"}
                ]
                return ModelFault(body=json.dumps({"object": "list", "data": models}))
            case "POST", path if path in API_FORMATS:
                request, api_format = json.loads(body), API_FORMATS[path]
                if self._answers_probes and PROBE_TOOL.name in str(api_format.parse_messages(request)[-1:]):
                    return _answer_probe(request, api_format)
                return await self._complete(request, api_format)
            case _:
                return _error_response(404, f"Unknown request URL: {method} {path}.", code="unknown_url")

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        messages = api_format.parse_messages(request)
        if problem := find_unpaired_call(messages):
            return _error_response(400, problem)
        turns = self.select_turns(messages)
        turn, calls = find_next_calls(messages, turns)
        self.requests.append(request)
        if self._on_request is not None and inspect.isawaitable(waiting := self._on_request(turn, request)):
            await waiting
        if self._faults:
            return self._faults.popleft()
        if turn >= len(turns):
            return _error_response(
                400, f"The recording has only {len(turns)} turns, but the agent requested another one."
            )
        await asyncio.sleep(self._delay)
        made = self._build_reply(request, len(messages), turns[turn], calls)
        return ModelFault(body=json.dumps(api_format.format_reply(made)))

    def _build_reply(
        self, request: dict[str, Any], count: int, turn: RecordedTurn, calls: Sequence[RecordedCall]
    ) -> RecordedReply:
        sent = json.dumps(extract_prompt(request))[:-2]
        same = common_prefix_length(self._previous_prompt, sent)
        self._previous_prompt = sent
        made = tuple(
            (f"call_{count}_{n}", call.name, call.text.replace(UNIQUE_TEXT, secrets.token_hex(4)))
            for n, call in enumerate(calls)
        )
        return RecordedReply(
            text=turn.thought,
            calls=made,
            reasoning=turn.reasoning,
            finish_reason=turn.finish_reason or ("tool_calls" if made else "stop"),
            model=request.get("model", "recorded"),
            prompt_tokens=len(sent) // CHARACTERS_PER_TOKEN,
            cached_tokens=same // CHARACTERS_PER_TOKEN // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS,
            completion_tokens=len(json.dumps([turn.thought, made])) // CHARACTERS_PER_TOKEN,
            reasoning_tokens=len(json.dumps(turn.reasoning)) // CHARACTERS_PER_TOKEN if turn.reasoning else 0,
            extra=turn.usage,
        )


def _answer_probe(request: Mapping[str, Any], api_format: ApiFormat) -> ModelFault:
    """Returns the call that a probe asks for. As text, if the request offers no tools."""
    arguments, is_native = json.dumps({"number": PROBE_NUMBER}), bool(request.get("tools"))
    text = f'<call name="{PROBE_TOOL.name}">\n<number>\n{PROBE_NUMBER}\n</number>\n</call>'
    reply = RecordedReply(
        text="" if is_native else text,
        calls=(("call_probe", PROBE_TOOL.name, arguments),) if is_native else (),
        reasoning=(),
        finish_reason="tool_calls" if is_native else "stop",
        model=request.get("model", "recorded"),
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
    )
    return ModelFault(body=json.dumps(api_format.format_reply(reply)))


def find_next_calls(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[RecordedTurn]
) -> tuple[int, Sequence[RecordedCall]]:
    """Returns the index of the next turn in a conversation, and the calls to send in that turn.

    Like a real model, the recording repeats a call whose result was lost, and a `finish` call that was rejected.
    If the recording is over and the agent is told that its fix is not proven, it calls `finish` once more.
    Repeating an edit is harmless, because the tool refuses an edit that was already applied.
    """
    results = {
        message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"
    }
    turn = 0
    calls: Sequence[RecordedCall] = turns[0].calls if turns else ()
    for message in messages:
        if message["role"] != "assistant":
            continue
        answers = (results.get(call["id"]) for call in message.get("tool_calls") or ())
        lost = [call for call, answer in zip(calls, answers, strict=False) if _should_repeat(answer or "")]
        if not lost:
            turn += 1
        calls = lost or (turns[turn].calls if turn < len(turns) else ())
    if turns and turn == len(turns) and REMINDER in str(messages[-1].get("content")):
        return turn - 1, turns[-1].calls
    return turn, calls


def _should_repeat(result: str) -> bool:
    return result.endswith(LOST_RESULT) or FINISH_REJECTED in result


def common_prefix_length(one: str, other: str) -> int:
    """Returns the number of characters that both strings have in common at their start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def find_unpaired_call(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns OpenAI's error message if a call has no result, or a result has no call; otherwise None."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return (
                    "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                )
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            break
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. These did not have response messages: {', '.join(waiting)}"
        )
    return None


def _chat_completion(text: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> dict[str, Any]:
    """Returns a chat completion with this text."""
    made = RecordedReply(
        text=text,
        calls=(),
        reasoning=(),
        finish_reason="stop",
        model="recorded",
        prompt_tokens=prompt_tokens,
        cached_tokens=0,
        completion_tokens=completion_tokens,
    )
    return API_FORMATS["/v1/chat/completions"].format_reply(made)


def _error_response(
    status: int,
    message: str,
    *,
    code: str | None = None,
    kind: str = "invalid_request_error",
    headers: dict[str, str] | None = None,
) -> ModelFault:
    # Source: platform.openai.com/docs/guides/error-codes
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return ModelFault(status=status, headers=headers or {}, body=json.dumps(body))
