"""The ways in which providers put a conversation: each read as chat completions, and each answered in its own form.

Chat completions are the endpoint's own; Anthropic's Messages and OpenAI's Responses are translated here. The
reasoning of a turn is written in the form of the dialect in which it is asked for.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """One reply, before it is put into a dialect."""

    text: str
    calls: tuple[tuple[str, str, str], ...]
    """Id, name and arguments of each."""
    reasoning: tuple[Json, ...]
    reason: str
    """Why it ended, in the words of chat completions."""
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    extra: Mapping[str, Any] | None = None
    """More fields of `usage`, as some providers have."""


@dataclass(frozen=True)
class Dialect:
    read: Callable[[Json], list[Json]]
    """The messages of a request, as chat completions would have them."""
    write: Callable[[Made], Json]


# --- chat completions ---------------------------------------------------------------------------------------


def _chat(made: Made) -> Json:
    message: Json = {"role": "assistant", "content": made.text}
    for block in made.reasoning:
        message |= block  # such as DeepSeek's `reasoning_content`
    if made.calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in made.calls
        ]
    return {
        "id": "chatcmpl-recorded",
        "object": "chat.completion",
        "created": 1,
        "model": made.model,
        "choices": [{"index": 0, "message": message, "finish_reason": made.reason}],
        "usage": {
            "prompt_tokens": made.prompt_tokens,
            "completion_tokens": made.completion_tokens,
            "total_tokens": made.prompt_tokens + made.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": made.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": made.reasoning_tokens},
            **(made.extra or {}),
        },
    }


def _chat_messages(request: Json) -> list[Json]:
    messages: list[Json] = request["messages"]
    return messages


# --- Anthropic's Messages -----------------------------------------------------------------------------------
# Source: platform.claude.com/docs/en/api/messages


def _anthropic_messages(request: Json) -> list[Json]:
    messages: list[Json] = [{"role": "system", "content": request.get("system") or ""}]
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            calls = [{"id": block["id"]} for block in blocks if block["type"] == "tool_use"]
            messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                said = block["content"]
                text = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
                messages.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
            else:
                messages.append({"role": "user", "content": block.get("text", "")})
    return messages


def _anthropic(made: Made) -> Json:
    said = [{"type": "text", "text": made.text}] if made.text else []
    calls = [
        {"type": "tool_use", "id": id, "name": name, "input": _object(arguments)}
        for id, name, arguments in made.calls
    ]
    reasons = {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "refusal",
    }
    return {
        "id": "msg_recorded",
        "type": "message",
        "role": "assistant",
        "model": made.model,
        "content": [*made.reasoning, *said, *calls],
        "stop_reason": reasons[made.reason],
        "stop_sequence": None,
        "usage": {
            "input_tokens": made.prompt_tokens - made.cached_tokens,
            "cache_read_input_tokens": made.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": made.completion_tokens,
        },
    }


def _object(arguments: str) -> Json:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# --- OpenAI's Responses -------------------------------------------------------------------------------------
# Source: platform.openai.com/docs/api-reference/responses


def _responses_messages(request: Json) -> list[Json]:
    messages: list[Json] = []
    for item in request["input"]:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        elif kind == "message" and item["role"] != "assistant":
            messages.append({"role": item["role"], "content": item["content"]})
        else:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": "", "tool_calls": []})
            if kind == "function_call":
                messages[-1]["tool_calls"].append({"id": item["call_id"]})
    return messages


def _responses(made: Made) -> Json:
    said = [
        {
            "type": "message",
            "id": "msg_recorded",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": made.text, "annotations": []}],
        }
    ]
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{id}",
            "call_id": id,
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
        for id, name, arguments in made.calls
    ]
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    why = reasons.get(made.reason)
    return {
        "id": "resp_recorded",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if why else "completed",
        "incomplete_details": {"reason": why} if why else None,
        "error": None,
        "model": made.model,
        "output": [*made.reasoning, *(said if made.text else []), *calls],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": made.prompt_tokens,
            "input_tokens_details": {"cached_tokens": made.cached_tokens},
            "output_tokens": made.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": made.reasoning_tokens},
            "total_tokens": made.prompt_tokens + made.completion_tokens,
        },
    }


DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": Dialect(_chat_messages, _chat),
    "/v1/messages": Dialect(_anthropic_messages, _anthropic),
    "/v1/responses": Dialect(_responses_messages, _responses),
}
"""By the path of the request."""


def prompt(request: Json) -> Sequence[Any]:
    """What of a request is the prompt, in the order in which a provider's cache reads it, without cache marks."""
    parts = [request.get("tools"), request.get("system"), request.get("messages", request.get("input"))]
    return [_unmarked(part) for part in parts]


def _unmarked(value: Any) -> Any:
    match value:
        case dict():
            return {key: _unmarked(each) for key, each in value.items() if key != "cache_control"}
        case list():
            return [_unmarked(each) for each in value]
        case _:
            return value
