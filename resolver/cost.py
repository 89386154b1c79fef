"""Represents costs in dollars. All or some of the prices may be unknown."""

from decimal import ROUND_FLOOR, Decimal
from typing import Protocol

from patchwright.runtime.frozen_model import FrozenModel


class MinimumCost(FrozenModel):
    """A sum of costs, some of which are unknown."""

    usd: Decimal
    """Sum of the known costs."""


Cost = Decimal | MinimumCost | None
"""A cost in dollars; None if no part of it is known."""


class TokenUsage(Protocol):
    """The cost and tokens of one model reply or of a whole run."""

    @property
    def usd(self) -> Cost: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def completion_tokens(self) -> int: ...


def known_usd(cost: Cost) -> Decimal:
    """Returns the known part of a cost; 0 if nothing is known."""
    return cost.usd if isinstance(cost, MinimumCost) else cost or Decimal(0)


def cost_fields(name: str, cost: Cost) -> dict[str, float]:
    """Returns a cost as JSON fields. If the whole cost is known, the key of the field is `name`. If only a
    part is known, `_at_least` is appended to this key. If nothing is known, there is no field.
    """
    if cost is None:
        return {}
    return {f"{name}_at_least" if isinstance(cost, MinimumCost) else name: float(known_usd(cost))}


def format_usd(cost: Decimal | MinimumCost) -> str:
    """Formats dollars as `$0.1234` or `$1.23`, or as `at least $0.1234` if some prices are unknown. A cost that is
    not zero is never shown as zero.
    """
    usd = known_usd(cost)
    places = Decimal("0.0001") if 0 < usd < 1 else Decimal("0.01")
    if isinstance(cost, MinimumCost):  # The cost is a minimum, so it is rounded down.
        return f"at least ${least}" if (least := usd.quantize(places, ROUND_FLOOR)) else "more than $0.00"
    return f"${shown}" if (shown := usd.quantize(places)) or not usd else f"less than ${places}"
