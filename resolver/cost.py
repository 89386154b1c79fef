"""Represents costs in dollars. All or some of the prices may be unknown."""

from decimal import Decimal
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
