"""Counts what the requests of a run cost: their tokens, how many a provider has cached, and the written tokens."""

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CACHED, WRITTEN = 0.1, 5  # price of a cached and of a written token, where a fresh one costs 1


class Bill(NamedTuple):
    """What a run sent to its model, and what the model wrote."""

    requests: int
    fresh: int
    """Tokens that were sent for the first time."""
    cached: int
    """Tokens at the start of a request that are the same as in the previous request."""
    written: int
    changed_bytes: int
    """Bytes of a request that the next request does not repeat, so that the rest is read again at the full price."""

    @property
    def billed(self) -> float:
        return self.fresh + CACHED * self.cached + WRITTEN * self.written


def bill(requests: Sequence[Mapping[str, Any]], replies: Sequence[str]) -> Bill:
    """Returns the bill of chat completions. Each reply is the text and the calls that the model wrote."""
    fresh = cached = changed = 0
    previous: list[str] = []
    for request in requests:
        parts = split_request(request)
        pairs = zip(parts, previous, strict=False)
        kept = next((at for at, (new, old) in enumerate(pairs) if new != old), min(len(parts), len(previous)))
        cached += sum(map(count_tokens, parts[:kept]))
        fresh += sum(map(count_tokens, parts[kept:]))
        changed += sum(len(part.encode()) for part in previous[kept:])
        previous = parts
    return Bill(len(requests), fresh, cached, sum(map(count_tokens, replies)), changed)


def split_request(request: Mapping[str, Any]) -> list[str]:
    """Returns the text of the tools and of each message, in the order in which providers compare them."""
    tools = json.dumps(request.get("tools") or [], separators=(",", ":"), ensure_ascii=False)
    return [tools, *(f"{message['role']}\n{_text_of(message)}" for message in request["messages"])]


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return format_reply(text, [(each["name"], each["arguments"]) for each in functions])


def format_reply(text: str, calls: Sequence[tuple[str, str]]) -> str:
    return text + "".join(f"\n{name}\n{arguments}" for name, arguments in calls)


def count_tokens(text: str) -> int:
    """Returns the number of tokens in the encoding of GPT-4, which litellm brings with it."""
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def _encoding() -> Any:
    spec = importlib.util.find_spec("litellm")
    assert spec is not None and spec.origin is not None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(spec.origin).parent / "litellm_core_utils" / "tokenizers")
    return importlib.import_module("tiktoken").get_encoding("cl100k_base")
