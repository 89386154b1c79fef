"""What a reply cost, in the words of each provider, and how long one asks us to wait."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver.cost import AtLeast
from resolver.domain import Spent
from resolver.events import Usage
from resolver.llm.bill import bill, together, wait_asked
from resolver.settings.models import Price

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


def billed(used: Any, usd: object = None, own: Price | None = None, table: Any = None) -> Usage:
    return bill("m", used, usd=usd, own=own, table=table or {}, seconds=0)


@pytest.mark.parametrize(
    ("used", "reasoning"),
    [(CHAT, 60), (RESPONSES, 60), (ANTHROPIC, 0)],
    ids=["chat", "responses", "anthropic"],
)
def test_every_provider_counts_the_same_tokens_in_its_own_words(used: Any, reasoning: int) -> None:
    assert billed(used) == Usage(
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
        (CHAT, 0.0, None, {"mode": "chat"}, None),
    ],
    ids="unknown table litellm provider own own-cached nonsense negative free free-table zero-of-no-price".split(),
)
def test_the_nearest_source_of_a_price_counts(
    used: Any, usd: object, own: Price | None, table: Any, dollars: str | None
) -> None:
    cost = billed(used, usd, own, table).usd
    assert cost == (None if dollars is None else Decimal(dollars))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from([*CHAT, *RESPONSES, *ANTHROPIC, "cached_tokens"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*CHAT, *RESPONSES, *ANTHROPIC, "cost"]), anything), anything)
def test_no_nonsense_breaks_the_bill_or_earns_money(used: Any, usd: object) -> None:
    usage = billed(used, usd)
    assert 0 <= usage.cached_tokens <= usage.prompt_tokens and usage.reasoning_tokens >= 0
    assert usage.usd is None or usage.usd >= 0
    assert Usage.model_validate_json(usage.model_dump_json()) == usage


def test_several_bills_are_one_that_says_when_it_is_not_all() -> None:
    known = Usage(model="a", prompt_tokens=1, usd=Decimal("0.5"), seconds=1)
    unknown = Usage(model="b", completion_tokens=2)
    both = together([known, unknown])
    assert both == Usage(
        model="b", prompt_tokens=1, completion_tokens=2, usd=AtLeast(usd=Decimal("0.5")), seconds=1
    )
    assert together([both, known]).usd == AtLeast(usd=Decimal(1))  # what was not all is never all again
    assert together([known, known]).usd == Decimal(1)
    free = Usage(model="c", usd=Decimal(0))
    assert together([free, unknown]).usd is None
    assert Usage.model_validate_json(both.model_dump_json()) == both
    assert Spent().plus(both).cost == both.usd


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
def test_how_long_to_wait_is_read_as_seconds_or_as_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert wait_asked(headers) == seconds


def test_a_date_to_come_is_waited_for() -> None:
    assert wait_asked({"retry-after": date(60)}) == pytest.approx(60, abs=5)
