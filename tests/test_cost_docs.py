"""README.md and docs/models.md state the costs that follow from the recorded runs and today's prices."""

from decimal import Decimal

import pytest

from patchwright.demo.run import MODEL_PRICE
from tests.cost_reference import LEVELS, PAGES, cost, dollars, recorded_runs, with_tables


def test_the_pages_state_the_computed_costs() -> None:
    for page in PAGES:
        text = page.read_text()
        assert "<!-- costs: levels -->" in text
        assert with_tables(text) == text, "write it anew: .venv/bin/python -m tests.cost_reference"


def test_the_cost_of_a_run_follows_from_its_tokens() -> None:
    (run,) = (run for run in recorded_runs() if run.name == "textile")
    assert run.requests[1] == (7377, 6274, 144)
    for level in LEVELS:
        new, repeated, written = (sum(column) for column in zip(*run.requests, strict=True))
        assert run.cost(level, is_cached=False) == cost(level, new, 0, written)
        assert (
            run.cost(level, is_cached=True)
            == cost(level, new, repeated, written)
            < cost(level, new, 0, written)
        )


def test_the_demo_has_the_price_of_the_middle_level() -> None:
    price = {name: Decimal(amount) for name, amount in MODEL_PRICE.items()}
    assert price["input"] == cost("middle", 10**6, 0, 0)
    assert price["cached"] == cost("middle", 10**6, 10**6, 0)
    assert price["output"] == cost("middle", 0, 0, 10**6)


@pytest.mark.parametrize(
    ("least", "most", "shown"), [("0.001", "0.02", "$0.01 to $0.02"), ("0.1", "0.091", "$0.10")]
)
def test_costs_are_rounded_up_to_cents(least: str, most: str, shown: str) -> None:
    assert dollars(Decimal(least), Decimal(most)) == shown
