"""Reads HumanEvalFix: functions with a bug, and the tests that show it.

The tests are part of the repository, as in the paper: the model fixes a function with given tests.
Source: huggingface.co/datasets/bigcode/humanevalpack (the Python subset)
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchwright.evaluation.built_repository import BuiltRepository
from patchwright.evaluation.instances import Instance

REQUIRED = ("task_id", "declaration", "buggy_solution", "canonical_solution", "test", "entry_point")


def is_human_eval(row: Mapping[str, Any]) -> bool:
    return all(name in row for name in REQUIRED)


async def read_row(row: Mapping[str, Any], directory: Path) -> Instance:
    """Converts one row. Its repository is created in `directory`."""
    name = str(row["task_id"]).replace("/", "-")
    entry_point = str(row["entry_point"])
    declaration = f"{row.get('import') or ''}\n{row['declaration']}".lstrip()
    files = {
        "solution.py": f"{declaration}{row['buggy_solution']}".encode(),
        "test_solution.py": _test_file(str(row["test"]), str(row.get("test_setup") or "")).encode(),
    }
    repository = await BuiltRepository.create(directory / f"{name}.git", files)
    fixed = {**files, "solution.py": f"{declaration}{row['canonical_solution']}".encode()}
    return Instance(
        id=name,
        repo=f"HumanEvalFix/{name.partition('-')[0]}",
        url=str(repository.path),
        base_commit=repository.commit,
        problem=f"Fix the bug in {entry_point}\n\n`{entry_point}` in `solution.py` does not pass its test.",
        gold_patch=await repository.diff(fixed),
        test_patch="",
        fail_to_pass=("test_solution.py::test_solution",),
    )


def _test_file(test: str, setup: str) -> str:
    """Wraps the checks, which are statements of a script, in one test."""
    body = "".join(f"    {line}".rstrip() + "\n" for line in f"{setup}\n{test}".strip().splitlines())
    return f"from solution import *\n\n\ndef test_solution():\n{body}"
