"""The cumulative cost of a run after each model reply, as a curve."""

from dataclasses import dataclass
from decimal import Decimal

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.cost import round_usd
from patchwright.resolver.domain import Usage
from patchwright.resolver.events import AuxiliaryModelCall, ModelReply, ToolResult, Trajectory
from patchwright.resolver.run_events import Condensation

WIDTH, HEIGHT = 720, 120
"""Size of the curve in SVG units."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """The cumulative cost by step, in US dollars if all prices are known, else in tokens."""

    totals: tuple[Decimal, ...]
    """Total after each step."""
    unit: str
    """`$` or `tokens`."""
    condensed_steps: tuple[int, ...]
    """Steps that follow a condensation of the conversation."""

    @property
    def polyline(self) -> str:
        """The points of an SVG polyline in a box of WIDTH by HEIGHT, starting at the lower left corner."""
        highest = self.totals[-1]
        points = (
            (self.get_x(step), HEIGHT - HEIGHT * float(total / highest))
            for step, total in self._number_totals()
        )
        return " ".join(f"{x:g},{y:.1f}" for x, y in ((0, HEIGHT), *points))

    def get_x(self, step: int) -> float:
        """Returns the x coordinate of a step."""
        return round(WIDTH * step / len(self.totals), 1)

    def format_total(self, total: Decimal) -> str:
        """Returns a total with its unit."""
        return f"${round_usd(total, 4)}" if self.unit == "$" else f"{total:,} tokens"

    def _number_totals(self) -> list[tuple[int, Decimal]]:
        return list(enumerate(self.totals, start=1))


def build_cost_curve(trajectory: Trajectory) -> CostCurve | None:
    """Returns the curve, or None if there are fewer than two points or no cost."""
    dollars: list[Decimal] = []
    tokens: list[Decimal] = []
    condensed_steps: list[int] = []
    total_usage = Usage()
    for event in trajectory:
        match event:
            case ModelReply(usage=usage) | AuxiliaryModelCall(usage=usage):
                total_usage = total_usage.add(usage)
            case ToolResult(observation=SubagentResult(usage=subagent_usage)):
                total_usage = total_usage.add(subagent_usage, unpriced=subagent_usage.unpriced)
            case Condensation():
                condensed_steps.append(len(dollars))
            case _:
                continue
        if isinstance(event, ModelReply):
            dollars.append(total_usage.usd)
            tokens.append(Decimal(total_usage.tokens))
        elif dollars:
            dollars[-1], tokens[-1] = total_usage.usd, Decimal(total_usage.tokens)
    in_dollars = total_usage.usd and not total_usage.unpriced
    totals = dollars if in_dollars else tokens
    if len(totals) < 2 or not totals[-1]:
        return None
    return CostCurve(tuple(totals), "$" if in_dollars else "tokens", tuple(condensed_steps))
