"""A recorded model behind an endpoint on loopback that speaks as OpenAI's and Anthropic's do.

It serves `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`, without streaming, and `GET
/v1/models`. A recording is keyed by turn, not by the bytes of the prompt: an edit of a sentence does not break it.
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

from demo.dialects import DIALECTS, Dialect, Made, prompt
from demo.loopback import Loopback
from demo.world.asgi import HungUp, Message, Receive, Send, fields, respond, whole_body
from resolver import prose
from resolver.render import result
from runtime.frozen import Frozen
from runtime.observations import Failed

CHARACTERS_PER_TOKEN = 4  # the usual rule of thumb for English and code
CACHED_BLOCK = 128  # tokens; OpenAI caches prompts in blocks of this size

LOST = result(Failed(reason="lost", message=prose.lost(saved=False)))
"""How the agent answers a call that was killed in mid-run and left nothing."""
ONCE = "%ONCE%"
"""In a call: a text that it has in no other reply, so that what is done twice is told from what is asked for twice."""
SENT_BACK = prose.not_yet(()).partition(":")[0]
"""How it answers a finish for which something is missing."""

Hook = Callable[[int, dict[str, Any]], Awaitable[None] | None]


class WrittenCall(Frozen):
    """A tool call as the model writes it."""

    name: str
    arguments: dict[str, Any] | str
    """Text is sent as it is, so that a recording can be wrong on purpose."""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Turn(Frozen):
    """One reply: `Turn("Look around.", RunShell(command="ls"))`."""

    thought: str
    calls: tuple[WrittenCall, ...] = ()
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    """None: as the calls make it."""
    reasoning: tuple[dict[str, Any], ...] = ()
    """In the form of the dialect in which it is asked for; for chat completions, fields of the message."""
    usage: dict[str, Any] = Field(default_factory=dict)
    """More fields of `usage`, for chat completions."""

    def __init__(self, thought: str, *actions: Frozen, **fields: Any) -> None:
        written = tuple(
            WrittenCall(name=values.pop("kind"), arguments=values)
            for values in (action.model_dump(mode="json", exclude_none=True) for action in actions)
        )
        BaseModel.__init__(self, thought=thought, calls=written or fields.pop("calls", ()), **fields)


class Fault(Frozen):
    """What one request gets instead of its turn."""

    status: int = 200
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | bytes = ""
    cut: bool = False
    """The connection ends in the middle of the body."""
    drip: float = 0.0
    """Seconds between each two bytes of the body."""


def rate_limited(retry_after: float | None = None) -> Fault:
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return _error(429, "Rate limit reached for requests", code="rate_limit_exceeded", headers=headers)


def context_overflow() -> Fault:
    text = "This model's maximum context length is 128000 tokens. Your messages resulted in 150000 tokens."
    return _error(400, text, code="context_length_exceeded")


def html(status: int = 200) -> Fault:
    """What a proxy or a captive portal answers."""
    page = "<!doctype html><html><body><h1>Sign in to continue</h1></body></html>"
    return Fault(status=status, headers={"content-type": "text/html"}, body=page)


def server_error(status: int = 500) -> Fault:
    return _error(status, "The server had an error while processing your request", kind="server_error")


def cut_off() -> Fault:
    return Fault(body=json.dumps(_spoken("x" * 500)), cut=True)


def drips(seconds: float = 1.0) -> Fault:
    """A reply that comes byte by byte."""
    return Fault(body=json.dumps(_spoken("Slowly.")), drip=seconds)


def unparsable() -> Fault:
    """A reply that was billed and holds nothing that a client can use."""
    return Fault(body=json.dumps(_spoken("", prompt_tokens=1000, completion_tokens=50) | {"choices": []}))


class Endpoint:
    """Serves a recording while entered; every request with its right key is kept in `requests`.

    `delay`: seconds before each answer. `on_request(turn, body)` is called before each answer, and awaited
    when it is a coroutine. `fail(...)` gives the next requests a fault each.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        key: str | None = None,
        delay: float = 0.0,
        on_request: Hook | None = None,
    ) -> None:
        self._turns = tuple(turns)
        self._key = key
        self._delay = delay
        self._on_request = on_request
        self._faults: deque[Fault] = deque()
        self._sent_before = ""
        self.requests: list[dict[str, Any]] = []
        self._loopback = Loopback(self._serve)
        self.base_url = f"{self._loopback.url}/v1"

    def fail(self, *faults: Fault) -> None:
        """The next requests get these instead of their turns."""
        self._faults.extend(faults)

    async def __aenter__(self) -> Self:
        await self._loopback.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loopback.stop()

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            body = await whole_body(receive)
        except HungUp:
            return
        given = fields(scope)
        key = given.get("x-api-key") or (given.get("authorization") or "").removeprefix("Bearer ")
        fault = await self._answer(scope["method"], scope["path"], key, body)
        headers = {"content-type": "application/json", **fault.headers}
        content = fault.body if isinstance(fault.body, bytes) else fault.body.encode()
        if not (fault.cut or fault.drip):
            await respond(send, fault.status, headers, content)
            return
        start = [(name.encode(), value.encode()) for name, value in headers.items()]
        length = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": fault.status, "headers": start + length})
        if fault.cut:
            await send(
                {"type": "http.response.body", "body": content[: len(content) // 2], "more_body": True}
            )
            await self._loopback.hang_up(scope, at_once=False)
            return
        for byte in content:
            if self._loopback.is_stopping:
                break
            await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
            await asyncio.sleep(fault.drip)
        await self._loopback.hang_up(scope, at_once=False)

    async def _answer(self, method: str, path: str, key: str, body: bytes) -> Fault:
        if self._key is not None and key != self._key:
            return _error(401, "Incorrect API key provided.", code="invalid_api_key")
        match method, path:
            case "GET", "/v1/models":
                models: list[Any] = [
                    {"id": "recorded", "object": "model", "created": 0, "owned_by": "patchwright"}
                ]
                return Fault(body=json.dumps({"object": "list", "data": models}))
            case "POST", path if path in DIALECTS:
                return await self._complete(json.loads(body), DIALECTS[path])
            case _:
                return _error(404, f"Unknown request URL: {method} {path}.", code="unknown_url")

    async def _complete(self, request: dict[str, Any], dialect: Dialect) -> Fault:
        messages = dialect.read(request)
        if problem := unpaired(messages):
            return _error(400, problem)
        turn, calls = next_calls(messages, self._turns)
        self.requests.append(request)
        if self._on_request is not None and inspect.isawaitable(waiting := self._on_request(turn, request)):
            await waiting
        if self._faults:
            return self._faults.popleft()
        if turn >= len(self._turns):
            return _error(400, f"The recording has {len(self._turns)} turns, and was asked for one more.")
        await asyncio.sleep(self._delay)
        made = self._reply(request, len(messages), self._turns[turn], calls)
        return Fault(body=json.dumps(dialect.write(made)))

    def _reply(self, request: dict[str, Any], count: int, turn: Turn, calls: Sequence[WrittenCall]) -> Made:
        sent = json.dumps(prompt(request))[:-2]
        same = same_prefix(self._sent_before, sent)
        self._sent_before = sent
        made = tuple(
            (f"call_{count}_{n}", call.name, call.text.replace(ONCE, secrets.token_hex(4)))
            for n, call in enumerate(calls)
        )
        return Made(
            text=turn.thought,
            calls=made,
            reasoning=turn.reasoning,
            reason=turn.finish_reason or ("tool_calls" if made else "stop"),
            model=request.get("model", "recorded"),
            prompt_tokens=len(sent) // CHARACTERS_PER_TOKEN,
            cached_tokens=same // CHARACTERS_PER_TOKEN // CACHED_BLOCK * CACHED_BLOCK,
            completion_tokens=len(json.dumps([turn.thought, made])) // CHARACTERS_PER_TOKEN,
            reasoning_tokens=len(json.dumps(turn.reasoning)) // CHARACTERS_PER_TOKEN if turn.reasoning else 0,
            extra=turn.usage,
        )


def next_calls(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[Turn]
) -> tuple[int, Sequence[WrittenCall]]:
    """Which turn is next in a conversation, and which of its calls.

    As a real model would, the recording repeats the calls that were answered as lost, and a finish that was sent
    back; of those that may have been done, the edits: one that was done is refused, and nothing is done twice.
    """
    results = {
        message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"
    }
    turn = 0
    calls: Sequence[WrittenCall] = turns[0].calls if turns else ()
    for message in messages:
        if message["role"] != "assistant":
            continue
        answers = (results.get(call["id"]) for call in message.get("tool_calls") or ())
        lost = [call for call, answer in zip(calls, answers, strict=False) if _is_to_repeat(answer or "")]
        if not lost:
            turn += 1
        calls = lost or (turns[turn].calls if turn < len(turns) else ())
    return turn, calls


def _is_to_repeat(answer: str) -> bool:
    return answer.endswith(LOST) or SENT_BACK in answer


def same_prefix(one: str, other: str) -> int:
    """How many characters at the start are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def unpaired(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong with the order of calls and answers, in the words in which OpenAI refuses it."""
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


def _spoken(text: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> dict[str, Any]:
    """A chat completion that says this."""
    made = Made(
        text=text,
        calls=(),
        reasoning=(),
        reason="stop",
        model="recorded",
        prompt_tokens=prompt_tokens,
        cached_tokens=0,
        completion_tokens=completion_tokens,
    )
    return DIALECTS["/v1/chat/completions"].write(made)


def _error(
    status: int,
    message: str,
    *,
    code: str | None = None,
    kind: str = "invalid_request_error",
    headers: dict[str, str] | None = None,
) -> Fault:
    # Source: platform.openai.com/docs/guides/error-codes
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Fault(status=status, headers=headers or {}, body=json.dumps(body))
