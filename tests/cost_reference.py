"""Writes the cost tables of README.md and docs/models.md: `python -m tests.cost_reference`.

The tokens are those of the runs in tests/golden/played. The prices are those of litellm's model table, with which
Patchwright counts costs.
"""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from patchwright.resolver.events import Entry, Trajectory
from patchwright.resolver.llm.pricing import parse_usage

ROOT = Path(__file__).parent.parent
PLAYED = ROOT / "tests/golden/played"
PAGES = (ROOT / "README.md", ROOT / "docs/models.md")
LEVELS = {
    "low": "openai/gpt-5-mini",
    "middle": "anthropic/claude-sonnet-5",
    "high": "anthropic/claude-opus-5",
}
CENT = Decimal("0.01")


class RecordedRun(NamedTuple):
    """The tokens of a run with its subagents."""

    name: str
    requests: tuple[tuple[int, int, int], ...]
    """Prompt tokens, those of them that the previous prompt contained, and reply tokens of each model request."""

    def cost(self, level: str, *, is_cached: bool) -> Decimal:
        """Returns the dollars that the run costs with or without prompt caching."""
        costs = (
            cost(level, prompt, repeated if is_cached else 0, reply)
            for prompt, repeated, reply in self.requests
        )
        return sum(costs, Decimal(0))


@cache
def model_info(level: str) -> Mapping[str, Any]:
    """Returns the model's entry in litellm's table. Importing litellm would take seconds."""
    package = importlib.util.find_spec("litellm")
    assert package is not None and package.submodule_search_locations
    table = Path(package.submodule_search_locations[0], "model_prices_and_context_window_backup.json")
    entries = json.loads(table.read_text())
    name = LEVELS[level]
    info: Mapping[str, Any] = entries[name] if name in entries else entries[name.partition("/")[2]]
    return info


def cost(level: str, prompt: int, cached: int, reply: int) -> Decimal:
    """Returns the cost of one reply as Patchwright counts it."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": reply,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    result = parse_usage(
        LEVELS[level], usage, usd=None, configured_price=None, model_info=model_info(level), seconds=0
    )
    assert result.usd is not None
    return result.usd


@cache
def recorded_runs() -> tuple[RecordedRun, ...]:
    names = sorted(path.name for path in PLAYED.iterdir() if path.is_dir())
    return tuple(
        RecordedRun(name, tuple(r for log in sorted((PLAYED / name).glob("*.jsonl")) for r in requests(log)))
        for name in names
    )


def requests(log: Path) -> Iterator[tuple[int, int, int]]:
    """Yields the tokens of a log's model requests. Each prompt starts with the previous one
    (tests/resolver/test_played_runs.py), except those of a browsing agent.
    """
    trajectory = Trajectory(tuple(Entry.model_validate_json(line) for line in log.read_bytes().splitlines()))
    usages = [reply.usage for reply in trajectory.replies()]
    yield usages[0].prompt_tokens, 0, usages[0].completion_tokens
    for before, usage in pairwise(usages):
        repeated = before.prompt_tokens if log.stem == "events" else 0
        yield usage.prompt_tokens, repeated, usage.completion_tokens


def price_table() -> str:
    """The price levels with the cheapest and the most expensive run."""
    fixes = f"Cost of each of the {len(recorded_runs())} recorded fixes"
    head = f"| Price level | For example | Price of a million tokens: input, cached input, output | {fixes} |"
    lines = [head, "| --- | --- | --- | --- |"]
    for level, name in LEVELS.items():
        prices = (cost(level, 10**6, 0, 0), cost(level, 10**6, 10**6, 0), cost(level, 0, 0, 10**6))
        shown = ", ".join(f"${price.normalize():f}" for price in prices)
        costs = [run.cost(level, is_cached=cached) for run in recorded_runs() for cached in (True, False)]
        lines.append(f"| {level} | `{name}` | {shown} | {dollars(min(costs), max(costs))} |")
    return "".join(f"{line}\n" for line in lines)


def run_table() -> str:
    """Each recorded run with its tokens, and its cost with and without prompt caching."""
    lines = [f"| Run | Steps | Tokens read | Tokens written | {' | '.join(LEVELS)} |", "| --- " * 7 + "|"]
    for run in recorded_runs():
        read, _, written = (sum(column) for column in zip(*run.requests, strict=True))
        costs = (
            dollars(run.cost(level, is_cached=True), run.cost(level, is_cached=False)) for level in LEVELS
        )
        cells = (run.name, len(run.requests), f"{read:,}", f"{written:,}", *costs)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "".join(f"{line}\n" for line in lines)


def dollars(least: Decimal, most: Decimal) -> str:
    """Shows a range, rounded up to whole cents."""
    shown = [f"${amount.quantize(CENT, ROUND_CEILING)}" for amount in (least, most)]
    return " to ".join(dict.fromkeys(shown))


def with_tables(page: str) -> str:
    """Returns the page with new tables, each between `<!-- costs: NAME -->` and `<!-- end -->`."""
    for name, table in (("levels", price_table()), ("runs", run_table())):
        before, begin, rest = page.partition(f"<!-- costs: {name} -->\n")
        if begin:
            page = f"{before}{begin}{table}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
