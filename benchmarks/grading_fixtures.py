"""Reads grading_fixtures.toml, and builds instances in the format of SWE-bench from it."""

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from patchwright.evaluation.built_repository import BuiltRepository


class Function(BaseModel):
    """One function of a repository, its tests, and its bug."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    right: str
    wrong: str
    """The code that replaces the right one."""
    tests: str
    fail_to_pass: tuple[str, ...]
    """The tests that fail because of the wrong code."""


class Fixture(BaseModel):
    """A repository for one test runner."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runner: str
    language: str
    parser: str
    """Name of SWE-bench's parser for the output of this runner."""
    command: str
    source: str
    """File with the functions."""
    code: str
    """Right code of all functions."""
    test_file: str
    header: str
    functions: dict[str, Function]
    footer: str = ""
    others: tuple[str, ...]
    """Tests that always pass."""
    files: dict[str, str] = {}

    async def build_row(self, name: str, clones: Path) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the instance in which this function has its bug, in the format of SWE-bench, and the patches to
        evaluate: the reference fix, no change, and a fix that breaks the other functions.
        """
        others = [other for other in self.functions if other != name]
        config = f"setup = ''\n\n[[tests]]\ncommand = {json.dumps(self.command)}\n"
        base = {
            **self.files,
            ".github/patchwright.toml": config,
            self.source: self._break_functions([name]),
            self.test_file: self._write_tests(others),
        }
        instance = f"{self.runner}__calc-{[*self.functions].index(name) + 1}"
        repository = await BuiltRepository.create(clones / instance, _encode(base))
        gold, wrong, tests = [
            await repository.diff(_encode(base | changed))
            for changed in (
                {self.source: self.code},
                {self.source: self._break_functions(others)},
                {self.test_file: self._write_tests([*self.functions])},
            )
        ]
        kept = [test for other in others for test in self.functions[other].fail_to_pass]
        row = {
            "instance_id": instance,
            "repo": f"acme/{instance}",
            "base_commit": repository.commit,
            "problem_statement": f"{name}() is wrong",
            "patch": gold,
            "test_patch": tests,
            "FAIL_TO_PASS": json.dumps(self.functions[name].fail_to_pass),
            "PASS_TO_PASS": json.dumps([*self.others, *kept]),
        }
        return row, {"gold": gold, "empty": "", "wrong": wrong}

    def _break_functions(self, names: list[str]) -> str:
        code = self.code
        for name in names:
            code = code.replace(self.functions[name].right, self.functions[name].wrong)
        return code

    def _write_tests(self, names: list[str]) -> str:
        return "".join((self.header, *(self.functions[name].tests for name in names), self.footer))


def _encode(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def load_fixtures() -> tuple[Fixture, ...]:
    """Returns the fixtures of all test runners."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return tuple(Fixture.model_validate(row) for row in tomllib.load(file)["fixture"])
