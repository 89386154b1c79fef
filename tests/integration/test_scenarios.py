"""Scenarios with recorded models: each prompt must be the recorded one, and the result must be right."""

from pathlib import Path

import pytest

from patchwright import Tool
from patchwright.sdk.tools import tool
from tests.integration.scenario import BaseIntegrationTest, GoldTest

CASES = Path(__file__).parent
PRICES = {"tea": "3", "milk": "1"}


def look_up_price(product: str) -> str:
    """Look up the price of a product in dollars."""
    return PRICES[product]


class PriceTest(BaseIntegrationTest):
    """The agent needs a function of this process."""

    def setup(self) -> None:
        self.root.mkdir()
        (self.root / "order.txt").write_text("2 tea\n1 milk\n")

    def tools(self) -> list[Tool]:
        tool(look_up_price)
        return [Tool(name=name) for name in ("run_shell", "create_file", "look_up_price", "finish")]

    def verify_result(self) -> bool:
        return (self.root / "total.txt").read_text().strip() == "7"


SCENARIOS = {"generate": GoldTest, "price": PriceTest, "rename": GoldTest, "typos": GoldTest}


def run(scenario: type[BaseIntegrationTest], case: Path, root: Path) -> None:
    scenario(case, root).run((case / "task.md").read_text())


def test_every_directory_belongs_to_a_scenario() -> None:
    assert sorted(path.parent.name for path in CASES.glob("*/task.md")) == sorted(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_agent_does_the_task(name: str, tmp_path: Path) -> None:
    run(SCENARIOS[name], CASES / name, tmp_path / "root")
