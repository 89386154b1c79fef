"""docs/internals/checklists.md: each row names what shows it, or says why it is left out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/internals/checklists.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| column |", "| row |"))
]


NINE_COLUMNS = """\
graphical user interface, standardized tool library, built-in sandbox and code execution, built-in web browser,
multi-agent collaboration, human-AI collaboration, hub of agents, evaluation framework, quality control of agents"""
TWENTY_FOUR_ROWS = """\
MCP, custom tools, history: persistence and restore, sub-agent delegation, model agnostic, routing among models,
cost and tokens of a conversation, pause and resume, models without function calling, security analyzer,
confirmation policies, context files, agent skills, condensing the context, automatic masking of secrets,
detecting a stuck agent, REST and WebSocket server, authentication by session, remote agent execution,
sandboxing of the environment, programmatic tests, strong type checking, frequent tests with models,
academic benchmarks built in"""


def test_it_has_the_nine_columns_and_the_twenty_four_rows() -> None:
    columns, rows = (re.split(r",\s+", names) for names in (NINE_COLUMNS, TWENTY_FOUR_ROWS))
    assert (len(columns), len(rows)) == (9, 24)
    assert [name for name, _, _ in ROWS] == [*columns, *rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_shown_by_tests_or_left_out_with_a_reason(row: tuple[str, str, str]) -> None:
    _, here, shown = row
    named = re.findall(r"`([^`]+)`", shown)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    tests = [name for name in named if name.startswith("tests/")]
    assert tests or re.match(r"no: (?!not yet)\w", here)
    assert [name for name in tests if "def test_" not in (ROOT / name).read_text()] == []
