"""Represents costs in dollars. All or some of the prices may be unknown."""

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
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


def round_usd(usd: Decimal | float, places: int, *, is_minimum: bool = False) -> Decimal:
    """Rounds dollars to this number of decimal places: half up, or down if the cost is a minimum."""
    # Binary fractions are often below the number that people see: 0.075 would become 0.07.
    return Decimal(str(usd)).quantize(
        Decimal(1).scaleb(-places), ROUND_FLOOR if is_minimum else ROUND_HALF_UP
    )


def format_usd(cost: Decimal | MinimumCost) -> str:
    """Formats dollars as `$0.1234` or `$1.23`, or as `at least $0.1234` if some prices are unknown. A cost that is
    not zero is never shown as zero.
    """
    usd = known_usd(cost)
    places = 4 if 0 < usd < 1 else 2
    if isinstance(cost, MinimumCost):
        least = round_usd(usd, places, is_minimum=True)
        return f"at least ${least}" if least else "more than $0.00"
    shown = round_usd(usd, places)
    return f"${shown}" if shown or not usd else f"less than ${Decimal(1).scaleb(-places)}"
