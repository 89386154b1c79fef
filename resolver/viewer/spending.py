"""What a run had cost after each reply of its model, as a curve."""

from dataclasses import dataclass
from decimal import Decimal

from resolver.actions import Reported
from resolver.domain import Spent
from resolver.events import Condensed, Consulted, Decided, Observed, Trajectory

WIDTH, HEIGHT = 720, 120
"""Of the curve's own units."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Cumulated cost by step, in dollars where all prices are known, else in tokens."""

    totals: tuple[Decimal, ...]
    """After each step."""
    unit: str
    """`$` or `tokens`."""
    shortened: tuple[int, ...]
    """Steps before which the conversation was condensed."""

    @property
    def line(self) -> str:
        """The points of a polyline in a box of WIDTH by HEIGHT, from its lower left corner."""
        highest = self.totals[-1]
        dots = (
            (self.across(step), HEIGHT - HEIGHT * float(total / highest)) for step, total in self._steps()
        )
        return " ".join(f"{x:g},{y:.1f}" for x, y in ((0, HEIGHT), *dots))

    def across(self, step: int) -> float:
        """Where a step is, from the left."""
        return round(WIDTH * step / len(self.totals), 1)

    def told(self, total: Decimal) -> str:
        """A total in words."""
        return f"${total:.4f}" if self.unit == "$" else f"{total:,} tokens"

    def _steps(self) -> list[tuple[int, Decimal]]:
        return list(enumerate(self.totals, start=1))


def spending(trajectory: Trajectory) -> Spending | None:
    """The curve; None where there is no line to draw."""
    dollars: list[Decimal] = []
    tokens: list[Decimal] = []
    shortened: list[int] = []
    so_far = Spent()
    for event in trajectory:
        match event:
            case Decided(usage=usage) | Consulted(usage=usage):
                so_far = so_far.plus(usage)
            case Observed(observation=Reported(spent=spent)):
                so_far = so_far.plus(spent, unpriced=spent.unpriced)
            case Condensed():
                shortened.append(len(dollars))
            case _:
                continue
        if isinstance(event, Decided):
            dollars.append(so_far.usd)
            tokens.append(Decimal(so_far.tokens))
        elif dollars:
            dollars[-1], tokens[-1] = so_far.usd, Decimal(so_far.tokens)
    in_dollars = so_far.usd and not so_far.unpriced
    totals = dollars if in_dollars else tokens
    if len(totals) < 2 or not totals[-1]:
        return None
    return Spending(tuple(totals), "$" if in_dollars else "tokens", tuple(shortened))
