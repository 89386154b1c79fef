"""The tables in docs/action.md are those of action.yml."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/action.md").read_text()
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def table(named: dict[str, dict[str, Any]], head: str) -> str:
    rows = [f"| `{name}` | {' '.join(facts['description'].split())} |" for name, facts in named.items()]
    return "\n".join([f"| {head} | |", "| --- | --- |", *rows])


def test_every_input_and_output_is_described_as_in_action_yml() -> None:
    for named, head in ((ACTION["inputs"], "input"), (ACTION["outputs"], "output")):
        assert table(named, head) in PAGE, f"put this into docs/action.md:\n{table(named, head)}"


def test_every_example_is_mentioned() -> None:
    examples = [path.name for path in (ROOT / ".github/examples").glob("*.yml")]
    assert len(examples) == 7
    assert not [name for name in examples if f"/.github/examples/{name})" not in PAGE]


def test_every_step_output_in_the_page_exists() -> None:
    snippets = "".join(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    used = re.findall(r"\b(\w+)\.([\w-]+)\.outputs\.([\w-]+)", snippets)
    assert used
    assert {(context, step) for context, step, _ in used} == {("steps", "patchwright")}
    assert "`id: patchwright`" in PAGE
    assert {output for _, _, output in used} <= set(ACTION["outputs"])
