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


def test_it_has_the_nine_columns_and_the_twenty_four_rows() -> None:
    assert len(ROWS) == 9 + 24


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_shown_by_tests_or_left_out_with_a_reason(row: tuple[str, str, str]) -> None:
    _, here, shown = row
    named = re.findall(r"`([^`]+)`", shown)
    assert named or re.match(r"no: (?!not yet)\w", here)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    tests = [name for name in named if name.startswith("tests/")]
    assert [name for name in tests if "def test_" not in (ROOT / name).read_text()] == []
