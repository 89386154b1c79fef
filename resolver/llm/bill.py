"""What a reply cost, and when the provider wants to be asked again: read from what the provider says."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from typing import Any

from resolver.domain import Spent
from resolver.errors import ModelError
from resolver.events import Usage
from resolver.llm.model import Message, Reply
from resolver.settings.models import Price

CHARACTERS_PER_TOKEN = 4  # the usual rule of thumb for English and code
LONGEST = 32_000  # tokens; a reply of a model whose limit is unknown
MILLION = Decimal(1_000_000)


def bill(
    model: str,
    used: Mapping[str, Any],
    *,
    usd: object,
    own: Price | None,
    table: Mapping[str, Any],
    seconds: float,
) -> Usage:
    """Tokens and dollars of one reply; `used` in the words of OpenAI's APIs or Anthropic's.

    Dollars: by the operator's own prices; else as the provider says (`cost`, as OpenRouter does); else `usd`, which
    litellm reckons (as 0 where its table has no price, which says nothing); else by that `table`; else unknown.
    """
    asked = _mapping(used, "prompt_tokens_details", "input_tokens_details")
    given = _mapping(used, "completion_tokens_details", "output_tokens_details")
    kept = _count(used, "cache_read_input_tokens")
    prompt = _count(used, "prompt_tokens", "input_tokens")
    if "prompt_tokens" not in used and "input_tokens_details" not in used:
        prompt += kept + _count(used, "cache_creation_input_tokens")  # Anthropic counts them apart
    cached = min(prompt, _count(asked, "cached_tokens") or kept)
    completion = _count(used, "completion_tokens", "output_tokens")
    price = own or _of_table(table)
    reckoned = None if price is None else _cost(price, prompt, cached, completion)
    says = (used.get("cost"), usd if usd or price else None)
    said = next((money for value in says if (money := _money(value)) is not None), None)
    return Usage(
        model=model,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        reasoning_tokens=min(completion, _count(given, "reasoning_tokens")),
        usd=reckoned if own is not None or said is None else said,
        seconds=seconds,
    )


def estimate(messages: Sequence[Message], received: int, longest: object = None) -> dict[str, int]:
    """Tokens of a reply that was cut off after so many bytes, and said nothing of what it cost.

    `longest`: the model's output limit in tokens, if it is known.
    """
    sent = sum(len(message.model_dump_json(exclude={"pictures"})) for message in messages)
    most = longest if isinstance(longest, int) and longest > 0 else LONGEST
    return {
        "prompt_tokens": sent // CHARACTERS_PER_TOKEN,
        "completion_tokens": min(most, received // CHARACTERS_PER_TOKEN),
    }


def together(usages: Sequence[Usage]) -> Usage:
    """Several as one, in the name of the last."""
    spent = Spent()
    for usage in usages:
        spent = spent.plus(usage)
    return Usage(
        model=usages[-1].model,
        prompt_tokens=spent.prompt_tokens,
        cached_tokens=spent.cached_tokens,
        completion_tokens=spent.completion_tokens,
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
        usd=spent.cost,
        seconds=sum(usage.seconds for usage in usages),
    )


def wasted(failures: Sequence[ModelError]) -> Usage | None:
    """What was billed for nothing."""
    billed = [failure.usage for failure in failures if failure.usage is not None]
    return together(billed) if billed else None


def with_wasted(reply: Reply, failures: Sequence[ModelError]) -> Reply:
    """The reply, and what failed before it counted with it."""
    lost = wasted(failures)
    return reply if lost is None else reply.model_copy(update={"usage": together([lost, reply.usage])})


def wait_asked(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks us to wait, from headers with names in small letters; None: it says nothing.

    Source: RFC 9110 (seconds or a date); `retry-after-ms` is OpenAI's.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            if math.isfinite(seconds := float(headers[name])):
                return max(0.0, seconds * unit)
        except (KeyError, ValueError):
            continue
    try:
        until = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _cost(price: Price, prompt: int, cached: int, completion: int) -> Decimal:
    kept = price.input if price.cached is None else price.cached
    return ((prompt - cached) * price.input + cached * kept + completion * price.output) / MILLION


def _of_table(table: Mapping[str, Any]) -> Price | None:
    """litellm's price of a model; it gives dollars per token."""
    asked, given = _money(table.get("input_cost_per_token")), _money(table.get("output_cost_per_token"))
    if asked is None or given is None:
        return None
    kept = _money(table.get("cache_read_input_token_cost"))
    return Price(
        input=asked * MILLION, output=given * MILLION, cached=None if kept is None else kept * MILLION
    )


def _money(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        money = Decimal(str(value))
    except InvalidOperation:
        return None
    return money if money.is_finite() and money >= 0 else None


def _mapping(used: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((value for name in names if isinstance(value := used.get(name), Mapping)), {})


def _count(used: Mapping[str, Any], *names: str) -> int:
    """A number of tokens; what is none, or negative, counts as none."""
    for name in names:
        value = used.get(name)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and value > 0
        ):
            return int(value)
    return 0
