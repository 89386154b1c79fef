"""Computes the usage and the cost of replies. Parses Retry-After headers."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from typing import Any

from patchwright.resolver.domain import Usage
from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import ChatMessage, Reply
from patchwright.resolver.settings.model_settings import Price

CHARACTERS_PER_TOKEN = 4  # the usual rule of thumb for English and code
DEFAULT_MAX_OUTPUT_TOKENS = 32_000  # tokens; assumed for models whose output limit is unknown
TOKENS_PER_PRICE_UNIT = Decimal(1_000_000)


def parse_usage(
    model: str,
    raw_usage: Mapping[str, Any],
    *,
    usd: object,
    configured_price: Price | None,
    model_info: Mapping[str, Any],
    seconds: float,
) -> ReplyUsage:
    """Returns the token counts and the cost of one reply. `raw_usage` has the field names of OpenAI's or
    Anthropic's APIs.

    The cost in US dollars comes from the first available source, or is unknown if there is none. The sources,
    in order, are:

    - `configured_price`, which the operator sets
    - the `cost` field of the provider's usage, which OpenRouter sends
    - `usd`, which litellm computes; 0 is ignored, because it means that litellm knows no price or no tokens
    - the prices in `model_info`, the model's entry in litellm's model table

    If the reply contains no token counts, a price cannot be used, except a price of zero.
    """
    prompt_details = _get_mapping(raw_usage, "prompt_tokens_details", "input_tokens_details")
    completion_details = _get_mapping(raw_usage, "completion_tokens_details", "output_tokens_details")
    cache_read = _get_token_count(raw_usage, "cache_read_input_tokens")
    prompt = _get_token_count(raw_usage, "prompt_tokens", "input_tokens")
    if "prompt_tokens" not in raw_usage and "input_tokens_details" not in raw_usage:
        # Anthropic counts cached tokens separately.
        prompt += cache_read + _get_token_count(raw_usage, "cache_creation_input_tokens")
    cached = min(prompt, _get_token_count(prompt_details, "cached_tokens") or cache_read)
    completion = _get_token_count(raw_usage, "completion_tokens", "output_tokens")
    price = configured_price or _parse_listed_price(model_info)
    computed_cost = None
    if price is not None and (prompt or completion or not (price.input or price.output)):
        computed_cost = _calculate_cost(price, prompt, cached, completion)
    cost_sources = (raw_usage.get("cost"), usd or None)
    reported_cost = next(
        (amount for value in cost_sources if (amount := _parse_amount(value)) is not None), None
    )
    return ReplyUsage(
        model=model,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        reasoning_tokens=min(completion, _get_token_count(completion_details, "reasoning_tokens")),
        usd=computed_cost if configured_price is not None or reported_cost is None else reported_cost,
        seconds=seconds,
    )


def estimate_usage(
    messages: Sequence[ChatMessage], received_bytes: int, max_output_tokens: object = None
) -> dict[str, int]:
    """Estimates the token counts of a reply that ended after `received_bytes` bytes without a usage report.

    `max_output_tokens` is the model's output limit, if it is known.
    """
    prompt_length = sum(len(message.model_dump_json(exclude={"images"})) for message in messages)
    max_tokens = (
        max_output_tokens
        if isinstance(max_output_tokens, int) and max_output_tokens > 0
        else DEFAULT_MAX_OUTPUT_TOKENS
    )
    return {
        "prompt_tokens": prompt_length // CHARACTERS_PER_TOKEN,
        "completion_tokens": min(max_tokens, received_bytes // CHARACTERS_PER_TOKEN),
    }


def sum_usage(usages: Sequence[ReplyUsage]) -> ReplyUsage:
    """Adds up several usages. The result contains the model name of the last usage."""
    total = Usage()
    for usage in usages:
        total = total.add(usage)
    return ReplyUsage(
        model=usages[-1].model,
        prompt_tokens=total.prompt_tokens,
        cached_tokens=total.cached_tokens,
        completion_tokens=total.completion_tokens,
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
        usd=total.cost,
        seconds=sum(usage.seconds for usage in usages),
    )


def sum_failed_usage(failures: Sequence[ModelError]) -> ReplyUsage | None:
    """Returns the total usage of the failed requests that the provider billed. Returns None if the provider
    billed no failed request.
    """
    billed = [failure.usage for failure in failures if failure.usage is not None]
    return sum_usage(billed) if billed else None


def add_failed_usage(reply: Reply, failures: Sequence[ModelError]) -> Reply:
    """Returns a copy of the reply whose usage includes the usage of earlier failed attempts."""
    failed_usage = sum_failed_usage(failures)
    return (
        reply
        if failed_usage is None
        else reply.model_copy(update={"usage": sum_usage([failed_usage, reply.usage])})
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds to wait before a retry, or None if the headers do not contain them. Header names
    must be lowercase.

    Source: RFC 9110 (seconds or a date); OpenAI sends `retry-after-ms`.
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


def _calculate_cost(price: Price, prompt: int, cached: int, completion: int) -> Decimal:
    cached_price = price.input if price.cached is None else price.cached
    return (
        (prompt - cached) * price.input + cached * cached_price + completion * price.output
    ) / TOKENS_PER_PRICE_UNIT


def _parse_listed_price(model_info: Mapping[str, Any]) -> Price | None:
    """Returns the price of a model from litellm's price table, whose unit is dollars per token."""
    input_price, output_price = (
        _parse_amount(model_info.get("input_cost_per_token")),
        _parse_amount(model_info.get("output_cost_per_token")),
    )
    if input_price is None or output_price is None:
        return None
    cached_price = _parse_amount(model_info.get("cache_read_input_token_cost"))
    return Price(
        input=input_price * TOKENS_PER_PRICE_UNIT,
        output=output_price * TOKENS_PER_PRICE_UNIT,
        cached=None if cached_price is None else cached_price * TOKENS_PER_PRICE_UNIT,
    )


def _parse_amount(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _get_mapping(raw_usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((value for name in names if isinstance(value := raw_usage.get(name), Mapping)), {})


def _get_token_count(raw_usage: Mapping[str, Any], *names: str) -> int:
    """Returns the first positive token count in the named fields, or 0 if no field contains one."""
    for name in names:
        value = raw_usage.get(name)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and value > 0
        ):
            return int(value)
    return 0
