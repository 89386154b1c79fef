"""Usage and cost in each provider's format, and Retry-After headers."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.cost import MinimumCost, format_usd, round_usd
from patchwright.resolver.domain import Usage
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.pricing import parse_retry_after, parse_usage, sum_usage
from patchwright.resolver.settings.model_settings import Price

CHAT = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 60},
}
RESPONSES = {
    "input_tokens": 1000,
    "output_tokens": 100,
    "input_tokens_details": {"cached_tokens": 400},
    "output_tokens_details": {"reasoning_tokens": 60},
}
ANTHROPIC = {
    "input_tokens": 500,
    "cache_read_input_tokens": 400,
    "cache_creation_input_tokens": 100,
    "output_tokens": 100,
}
TABLE = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-5, "cache_read_input_token_cost": 1e-7}

FREE = {"input_cost_per_token": 0, "output_cost_per_token": 0}


def parse(used: Any, usd: object = None, own: Price | None = None, table: Any = None) -> ReplyUsage:
    return parse_usage("m", used, usd=usd, configured_price=own, model_info=table or {}, seconds=0)


@pytest.mark.parametrize(
    ("used", "reasoning"),
    [(CHAT, 60), (RESPONSES, 60), (ANTHROPIC, 0)],
    ids=["chat", "responses", "anthropic"],
)
def test_usage_of_every_provider_is_parsed_to_the_same_tokens(used: Any, reasoning: int) -> None:
    assert parse(used) == ReplyUsage(
        model="m", prompt_tokens=1000, cached_tokens=400, completion_tokens=100, reasoning_tokens=reasoning
    )


@pytest.mark.parametrize(
    ("used", "usd", "own", "table", "dollars"),
    [
        (CHAT, None, None, {}, None),
        (CHAT, None, None, TABLE, "0.00164"),
        (CHAT, 0.5, None, TABLE, "0.5"),
        (CHAT | {"cost": 0.75}, 0.5, None, TABLE, "0.75"),
        (CHAT | {"cost": 0.75}, 0.5, Price(input=Decimal(1), output=Decimal(2)), TABLE, "0.0012"),
        (CHAT, None, Price(input=Decimal(1), output=Decimal(2), cached=Decimal(0)), {}, "0.0008"),
        (CHAT | {"cost": "none"}, float("nan"), None, {}, None),
        (CHAT | {"cost": -1}, None, None, {}, None),
        (CHAT | {"cost": 0}, None, None, TABLE, "0"),
        (CHAT, 0.0, None, FREE, "0"),
        ({}, 0.0, None, FREE, "0"),
        ({}, 0.0, None, TABLE, None),
        ({}, 0.0, Price(input=Decimal(1), output=Decimal(2)), {}, None),
        (CHAT, 0.0, None, {"mode": "chat"}, None),
    ],
    ids=(
        "unknown table litellm provider own own-cached nonsense negative free free-table free-uncounted "
        "uncounted own-uncounted zero-of-no-price"
    ).split(),
)
def test_the_most_specific_price_is_used(
    used: Any, usd: object, own: Price | None, table: Any, dollars: str | None
) -> None:
    cost = parse(used, usd, own, table).usd
    assert cost == (None if dollars is None else Decimal(dollars))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from([*CHAT, *RESPONSES, *ANTHROPIC, "cached_tokens"]), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*CHAT, *RESPONSES, *ANTHROPIC, "cost"]), anything), anything)
def test_invalid_usage_never_raises_or_yields_negative_cost(used: Any, usd: object) -> None:
    usage = parse(used, usd)
    assert 0 <= usage.cached_tokens <= usage.prompt_tokens and usage.reasoning_tokens >= 0
    assert usage.usd is None or usage.usd >= 0
    assert ReplyUsage.model_validate_json(usage.model_dump_json()) == usage


def test_dollars_are_rounded_half_up_and_a_minimum_down() -> None:
    assert [str(round_usd(usd, 2)) for usd in (0.075, 1.005, 2.675, Decimal("0.065"))] == [
        "0.08", "1.01", "2.68", "0.07",
    ]  # fmt: skip
    assert str(round_usd(0.079, 2, is_minimum=True)) == "0.07"
    assert (format_usd(Decimal("0.00125")), format_usd(Decimal("1.225"))) == ("$0.0013", "$1.23")
    assert format_usd(MinimumCost(usd=Decimal("1.229"))) == "at least $1.22"


def test_summed_usage_is_unpriced_if_one_part_is() -> None:
    known = ReplyUsage(model="a", prompt_tokens=1, usd=Decimal("0.5"), seconds=1)
    unknown = ReplyUsage(model="b", completion_tokens=2)
    both = sum_usage([known, unknown])
    assert both == ReplyUsage(
        model="b", prompt_tokens=1, completion_tokens=2, usd=MinimumCost(usd=Decimal("0.5")), seconds=1
    )
    assert sum_usage([both, known]).usd == MinimumCost(usd=Decimal(1))  # a minimum stays a minimum
    assert sum_usage([known, known]).usd == Decimal(1)
    free = ReplyUsage(model="c", usd=Decimal(0))
    assert sum_usage([free, unknown]).usd is None
    assert ReplyUsage.model_validate_json(both.model_dump_json()) == both
    assert Usage().add(both).cost == both.usd


def date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "-7"}, 0),
        ({"retry-after": "1e9"}, 1e9),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": date(-60)}, 0),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_after_is_parsed_as_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers) == seconds


def test_retry_after_with_a_future_date_is_waited_for() -> None:
    assert parse_retry_after({"retry-after": date(60)}) == pytest.approx(60, abs=5)
