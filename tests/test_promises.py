"""docs/internals/promises.md: existing tests show each promise and each fault, with measured figures."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/internals/promises.md").read_text()


def read_rows(text: str, header: str) -> list[tuple[str, ...]]:
    """Returns the rows of the table whose first row begins with `header`."""
    table = text.partition(f"\n| {header} |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in rows]


PROMISES = read_rows(TEXT, "guarantee")
FAULTS = read_rows(TEXT, "failure")


def test_the_page_lists_eight_guarantees_and_all_known_failures() -> None:
    assert [row[0].partition(":")[0] for row in PROMISES] == [f"R{number}" for number in range(1, 9)]
    assert len(FAULTS) >= 20


@pytest.mark.parametrize(
    ("text", "shown"), [(row[0], row[1]) for row in PROMISES] + [(row[0], row[2]) for row in FAULTS]
)
def test_every_guarantee_and_failure_names_existing_tests(text: str, shown: str) -> None:
    named = re.findall(r"`(tests/[^`:]+)::(\w+)`", shown)
    assert named and len(named) == shown.count("`") // 2, text
    for path, test in named:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE), (path, test)


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[0][:2])
def test_every_figure_of_a_guarantee_is_measured(row: tuple[str, str, str]) -> None:
    for figure in re.findall(r"`(\w+)`", row[2]):
        module, _, rest = figure.partition("_")
        measure = (ROOT / "benchmarks" / f"{module}.py").read_text()
        assert f'"{figure}"' in measure or f'"{rest}"' in measure, figure
