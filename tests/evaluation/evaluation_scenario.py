"""A small data set in the format of SWE-bench, and the command `evaluate` in this process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.cli.main import build_parser
from patchwright.evaluation.results import AttemptResult, ControlResult, ResultDirectory, read_report_inputs
from patchwright.runtime.frozen_model import FrozenModel
from tests.plain_python import get_fast_programs
from tests.resolver.git_repository import Repository

CODE = "def add(a, b):\n    return a - b\n\n\ndef half(a):\n    return a * 2\n"
TESTS = "from calc import add\n\n\ndef test_zero():\n    assert add(2, 0) == 2\n"
HINT = "Look at the minus sign."


class SampleInstance(FrozenModel):
    """A bug of `calc.py`."""

    number: int
    title: str
    old: str
    new: str
    test: str

    @property
    def id(self) -> str:
        return f"acme__calc-{self.number}"


ADD = SampleInstance(
    number=1, title="add() subtracts", old="a - b", new="a + b", test="assert calc.add(2, 3) == 5"
)
HALF = SampleInstance(
    number=2, title="half() doubles", old="a * 2", new="a / 2", test="assert calc.half(4) == 2"
)


@dataclass
class EvaluationScenario:
    """A directory with a repository, a data set, and results."""

    directory: Path
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.repository = Repository(self.directory / "clones" / "acme__calc")
        self.base = self.repository.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
        self.monkeypatch.setenv("PATCHWRIGHT_DATA", str(self.directory / "data"))
        self.monkeypatch.setenv("PATH", f"{get_fast_programs()}:/usr/bin:/bin")
        self.monkeypatch.chdir(self.directory)
        self.results = ResultDirectory(self.directory / "results")

    def make_row(self, instance: SampleInstance, **changes: Any) -> dict[str, Any]:
        """Returns the row of the data set. `changes` replace its fields."""
        test = f"import calc\n\n\ndef test_hidden():\n    {instance.test}\n"
        gold = self.diff({"calc.py": CODE.replace(instance.old, instance.new)})
        return {
            "instance_id": instance.id,
            "repo": "acme/calc",
            "base_commit": self.base,
            "problem_statement": f"{instance.title}\n\nIt returns a wrong number.",
            "hints_text": HINT,
            "patch": gold,
            "test_patch": self.diff({f"tests/test_hidden_{instance.number}.py": test}),
            "FAIL_TO_PASS": json.dumps([f"tests/test_hidden_{instance.number}.py::test_hidden"]),
            "PASS_TO_PASS": json.dumps([]),
            "created_at": "2024-05-01T10:00:00Z",
            **changes,
        }

    def diff(self, files: Mapping[str, str]) -> str:
        """Returns the patch from the base commit to these files."""
        for path, content in files.items():
            self.repository.write(path, content)
        self.repository.git("add", "--all")
        diff = self.repository.git("diff", "--cached", "--full-index")
        self.repository.git("reset", "--quiet", "--hard", self.base)
        return f"{diff}\n"

    def write_rows(self, *rows: Mapping[str, Any]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.directory / "issues.jsonl").write_text(text)

    async def evaluate(self, *arguments: str, source: str = "issues.jsonl", sandbox: str = "local") -> int:
        """Runs `patchwright evaluate`, and returns its exit code."""
        options = build_parser().parse_args(
            [
                *("evaluate", source, "--out", str(self.results.path), "--repositories", "clones"),
                *("--sandbox", sandbox, *arguments),
            ]
        )
        code: int = await options.handler(options)
        return code

    def read_results(self) -> tuple[dict[str, ControlResult], dict[str, AttemptResult]]:
        """Returns the controls by instance, and the attempts by run."""
        _, controls, attempts = read_report_inputs(self.results.path)
        return {each.instance: each for each in controls}, {each.run: each for each in attempts}

    def read_report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.results.path / "report.json").read_text())
        return report
