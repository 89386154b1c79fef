"""Converts requests and replies of model APIs: OpenAI's chat completions and Responses, and Anthropic's
Messages.

The recorded model works with chat completions. Requests in the other formats are converted to chat
completions, and each reply is converted to the format of its request. The model's reasoning is passed on
unchanged.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class RecordedReply:
    """A reply of the recorded model, before it is converted to an API format."""

    text: str
    calls: tuple[tuple[str, str, str], ...]
    """Id, name and arguments of each tool call."""
    reasoning: tuple[Json, ...]
    finish_reason: str
    """Finish reason of the chat completions API, such as `stop` or `tool_calls`."""
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    extra: Mapping[str, Any] | None = None
    """Additional fields of `usage`, which some providers send."""


@dataclass(frozen=True)
class ApiFormat:
    parse_messages: Callable[[Json], list[Json]]
    """Converts the messages of a request to the format of chat completions."""
    format_reply: Callable[[RecordedReply], Json]


# --- chat completions ---------------------------------------------------------------------------------------


def _format_chat(reply: RecordedReply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text}
    for block in reply.reasoning:
        message |= block  # for example DeepSeek's `reasoning_content`
    if reply.calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in reply.calls
        ]
    return {
        "id": "chatcmpl-recorded",
        "object": "chat.completion",
        "created": 1,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
            **(reply.extra or {}),
        },
    }


def _parse_chat(request: Json) -> list[Json]:
    messages: list[Json] = request["messages"]
    return messages


# --- Anthropic's Messages -----------------------------------------------------------------------------------
# Source: platform.claude.com/docs/en/api/messages


def _parse_anthropic(request: Json) -> list[Json]:
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


def _format_anthropic(reply: RecordedReply) -> Json:
    said = [{"type": "text", "text": reply.text}] if reply.text else []
    calls = [
        {"type": "tool_use", "id": id, "name": name, "input": _parse_object(arguments)}
        for id, name, arguments in reply.calls
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
        "model": reply.model,
        "content": [*reply.reasoning, *said, *calls],
        "stop_reason": reasons[reply.finish_reason],
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.prompt_tokens - reply.cached_tokens,
            "cache_read_input_tokens": reply.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": reply.completion_tokens,
        },
    }


def _parse_object(arguments: str) -> Json:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# --- OpenAI's Responses -------------------------------------------------------------------------------------
# Source: platform.openai.com/docs/api-reference/responses


def _parse_responses(request: Json) -> list[Json]:
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


def _format_responses(reply: RecordedReply) -> Json:
    said = [
        {
            "type": "message",
            "id": "msg_recorded",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": reply.text, "annotations": []}],
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
        for id, name, arguments in reply.calls
    ]
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    why = reasons.get(reply.finish_reason)
    return {
        "id": "resp_recorded",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if why else "completed",
        "incomplete_details": {"reason": why} if why else None,
        "error": None,
        "model": reply.model,
        "output": [*reply.reasoning, *(said if reply.text else []), *calls],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens},
            "output_tokens": reply.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        },
    }


API_FORMATS: Mapping[str, ApiFormat] = {
    "/v1/chat/completions": ApiFormat(_parse_chat, _format_chat),
    "/v1/messages": ApiFormat(_parse_anthropic, _format_anthropic),
    "/v1/responses": ApiFormat(_parse_responses, _format_responses),
}
"""Maps each request path to the converters of its API format."""


def extract_prompt(request: Json) -> Sequence[Any]:
    """Returns the parts of a request that a provider caches: tools, system prompt and messages.

    The parts are in the order in which a cache compares them. Cache breakpoints are removed.
    """
    parts = [request.get("tools"), request.get("system"), request.get("messages", request.get("input"))]
    return [_strip_cache_control(part) for part in parts]


def _strip_cache_control(value: Any) -> Any:
    match value:
        case dict():
            return {key: _strip_cache_control(each) for key, each in value.items() if key != "cache_control"}
        case list():
            return [_strip_cache_control(each) for each in value]
        case _:
            return value
