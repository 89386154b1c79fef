"""What something cost in dollars, as far as prices are known."""

from decimal import Decimal
from typing import Protocol

from runtime.frozen import Frozen


class AtLeast(Frozen):
    """Several costs together, some of which nobody knows."""

    usd: Decimal
    """What the others come to."""


Cost = Decimal | AtLeast | None
"""Dollars; None: nothing is known of it."""


class Bill(Protocol):
    """What a reply of a model has cost, or a whole run."""

    @property
    def usd(self) -> Cost: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def completion_tokens(self) -> int: ...


def known(cost: Cost) -> Decimal:
    """What is known of it; 0: nothing."""
    return cost.usd if isinstance(cost, AtLeast) else cost or Decimal(0)


def named(name: str, cost: Cost) -> dict[str, float]:
    """For a program: under this name what it cost, or under `NAME_at_least` what is known of it, or nothing."""
    if cost is None:
        return {}
    return {f"{name}_at_least" if isinstance(cost, AtLeast) else name: float(known(cost))}
