"""Reading instances from each kind of source."""

import io
import json
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from patchwright.demo.github import FakeGitHub
from patchwright.evaluation.built_repository import BuiltRepository
from patchwright.evaluation.data_sets import DataSetOptions, load_instances
from patchwright.evaluation.history import describe_problem, find_instances
from patchwright.evaluation.package_instances import describe_fix, select_pairs
from patchwright.evaluation.release_pairs import Pair, Registries, Release, read_archive
from patchwright.evaluation.swe_bench import read_row
from patchwright.resolver.errors import UsageError
from patchwright.resolver.git.git_process import run_git
from tests.evaluation.evaluation_scenario import ADD, CODE, HALF, EvaluationScenario
from tests.resolver.git_repository import Repository

ROW = {
    "instance_id": "acme__calc-1",
    "repo": "acme/calc",
    "base_commit": "a" * 40,
    "problem_statement": "add() subtracts\n\nIt should add.",
    "hints_text": "Look at the minus sign.",
    "patch": "diff --git a/calc.py b/calc.py\n",
    "test_patch": "diff --git a/test_calc.py b/test_calc.py\n",
    "FAIL_TO_PASS": '["test_calc.py::test_add"]',
    "PASS_TO_PASS": '["test_calc.py::test_half"]',
    "created_at": "2024-05-01T10:00:00Z",
}
HUMAN_EVAL_ROW = {
    "task_id": "Python/0",
    "declaration": "def add(a, b):\n",
    "buggy_solution": "    return a - b\n",
    "canonical_solution": "    return a + b\n",
    "test": "def check(add):\n    assert add(1, 2) == 3\n\ncheck(add)\n",
    "entry_point": "add",
}


def make_options(directory: Path, **values: Any) -> DataSetOptions:
    return DataSetOptions(directory=directory, registries=Registries(cache=directory / "cache"), **values)


def test_a_row_of_swe_bench_becomes_an_instance_without_hints() -> None:
    instance = read_row(ROW, None)
    assert (instance.url, instance.fail_to_pass, instance.pass_to_pass) == (
        "https://github.com/acme/calc",
        ("test_calc.py::test_add",),
        ("test_calc.py::test_half",),
    )
    assert (instance.issue.title, instance.issue.body, instance.issue.url) == (
        "add() subtracts",
        "It should add.",
        "",
    )
    assert instance.created_at == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert "minus sign" not in instance.model_dump_json()


def test_a_row_of_swe_bench_verified_is_the_same_instance() -> None:
    verified = {"difficulty": "<15 min fix", "environment_setup_commit": "b" * 40, "version": "3.0"}
    instance = read_row(ROW | verified, None)
    assert instance.model_copy(update={"image": ""}) == read_row(ROW, None)


def test_tests_may_be_a_list_as_in_parquet_files() -> None:
    assert read_row({**ROW, "FAIL_TO_PASS": ["a", "b"], "PASS_TO_PASS": None}, None).fail_to_pass == (
        "a",
        "b",
    )


def test_an_image_that_the_issue_does_not_show_is_added() -> None:
    row = {
        **ROW,
        "image_assets": json.dumps({"problem_statement": ["https://example.org/wrong.png"], "patch": []}),
    }
    assert read_row(row, None).issue.body.endswith("![image](https://example.org/wrong.png)")


def test_a_clone_in_the_directory_of_repositories_is_used(tmp_path: Path) -> None:
    (tmp_path / "acme__calc").mkdir()
    assert read_row(ROW, tmp_path).url == str(tmp_path / "acme__calc")


async def test_instances_are_selected_by_pattern_and_number(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD), evaluation.make_row(HALF))
    file = str(evaluation.directory / "issues.jsonl")
    directory = evaluation.directory
    assert len(await load_instances(file, make_options(directory, limit=1))) == 1
    (second,) = await load_instances(file, make_options(directory, filters=("*-2",)))
    assert second.id == HALF.id


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("", "it has no rows"),
        ('{"instance_id": "a"}', "its rows lack repo"),
        ("[1]", "not a JSON object"),
        ("{", "cannot be read"),
        (json.dumps({**ROW, "instance_id": "../a"}), "invalid row"),
        (json.dumps({**ROW, "repo": "--upload-pack=x"}), "not OWNER/NAME"),
        (f"{json.dumps(ROW)}\n{json.dumps(ROW)}", "the same id"),
    ],
)
async def test_a_file_in_another_format_is_rejected(rows: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "issues.jsonl").write_text(rows)
    with pytest.raises(UsageError, match=problem):
        await load_instances(str(tmp_path / "issues.jsonl"), make_options(tmp_path))


async def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        await load_instances(str(tmp_path / "issues.jsonl"), make_options(tmp_path))


async def test_parquet_files_need_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"patchwright\[evaluate\]"):
        await load_instances(str(tmp_path), make_options(tmp_path))


async def test_a_row_of_human_eval_fix_becomes_a_repository_with_the_given_test(tmp_path: Path) -> None:
    (tmp_path / "fix.jsonl").write_text(json.dumps(HUMAN_EVAL_ROW))
    (instance,) = await load_instances(str(tmp_path / "fix.jsonl"), make_options(tmp_path))
    show = await run_git("show", f"{instance.base_commit}:test_solution.py", git_dir=Path(instance.url))
    assert b"def test_solution():\n    def check(add):" in show
    assert "+    return a + b" in instance.gold_patch
    assert instance.fail_to_pass == ("test_solution.py::test_solution",)


async def test_a_commit_that_fixes_an_issue_becomes_an_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "calc")
    base = repository.commit({"calc.py": "a - b\n", "tests/test_calc.py": "\n"}, "Start")
    fix = repository.commit(
        {"calc.py": "a + b\n", "tests/test_calc.py": "assert 1\n"},
        "Add instead of subtracting (fixes #7)\n\nAda saw it.",
    )
    repository.commit({"calc.py": "a+b\n"}, "Tidy up. Fixes #8")  # changes no test
    repository.commit({"tests/test_calc.py": "assert 2\n"}, "Test more. Fixes #9")  # changes no code
    monkeypatch.setenv("HOME", str(tmp_path))
    (instance,) = await load_instances("history:~/calc", make_options(tmp_path))
    assert (instance.id, instance.base_commit) == (f"calc-7-{fix[:8]}", base)
    assert instance.problem == "Add instead of subtracting\n\nAda saw it."
    assert ("+a + b" in instance.gold_patch, "test_calc" in instance.gold_patch) == (True, False)
    assert ("+assert 1" in instance.test_patch, "+a + b" in instance.test_patch) == (True, False)


@pytest.mark.parametrize(
    ("subject", "is_found"),
    [
        ("Fix the sign (#7)", True),
        ("fix(calc): the sign (#7)", True),
        ("Add a sign (#7)", False),
        ("Fix it", False),
    ],
)
async def test_the_fix_of_a_squashed_pull_request_becomes_an_instance(
    subject: str, is_found: bool, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": "a - b\n"}, "Start")
    repository.commit({"calc.py": "a + b\n", "tests/test_calc.py": "assert 1\n"}, subject)
    found = [each async for each in find_instances(repository.path, None)]
    assert bool(found) is is_found


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Fix add. Closes: #12.", "Fix add."),
        ("Add (#3)\n\nresolves acme/calc#4\n\nSigned-off-by: Ada <ada@example.org>", "Add"),
        ("Fixes #1", "Fix the failing behavior"),
    ],
)
def test_a_message_becomes_the_text_of_an_issue(message: str, problem: str) -> None:
    assert describe_problem(message) == problem


def test_the_changelog_of_a_release_is_the_problem() -> None:
    pair = Pair(
        registry="pypi",
        name="calc",
        old=Release(version="1.0", sha256="a"),
        new=Release(version="1.1", sha256="b"),
    )
    old, new = {"CHANGES.md": b"1.0\n"}, {"CHANGES.md": b"1.1\n* add() adds\n1.0\n"}
    assert describe_fix(pair, old, new) == (
        "Fix what calc 1.1 fixes\n\nVersion 1.0 of calc has a bug, which version 1.1 fixes. "
        "Its changelog says:\n\n1.1\n* add() adds"
    )


def test_pairs_are_selected_by_name() -> None:
    (pair,) = select_pairs(["npm:ini"])
    assert (pair.registry, pair.name) == ("npm", "ini")
    assert len(select_pairs([])) > 30
    with pytest.raises(UsageError, match="no pair of releases for unknown-name"):
        select_pairs(["unknown-name"])


def test_a_submodules_file_of_git_in_a_release_is_left_out() -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("calc-1.0/suite/.git", "gitdir: ../.git/modules/suite\n")
        packed.writestr("calc-1.0/.gitignore", "*.pyc\n")
    assert read_archive(archive.getvalue()) == {".gitignore": b"*.pyc\n"}


async def test_a_built_repository_is_the_same_each_time(tmp_path: Path) -> None:
    files = {"a.py": b"a\n", 'with "quotes" and\nbreak.bin': b"\0\xff", "d/e.py": b"e"}
    one, other = [await BuiltRepository.create(tmp_path / name, files, "v1") for name in ("one", "other")]
    assert one.commit == other.commit
    diff = await one.diff({**files, "a.py": b"b\n"})
    assert diff.splitlines()[-2:] == ["-a", "+b"]
    assert diff.count("diff --git") == 1


@pytest.mark.slow
async def test_the_history_of_a_repository_on_github_has_the_text_of_its_issues(
    fake_github: FakeGitHub, evaluation: EvaluationScenario
) -> None:
    repo = fake_github.create_repository("acme/calc", {"calc.py": CODE}, permissions={"maintainer": "write"})
    issue = fake_github.create_issue(repo, title="add() subtracts", body="It should add.", by="reporter")
    test = "import calc\n\n\ndef test_add():\n    assert calc.add(2, 3) == 5\n"
    files = {"calc.py": CODE.replace("a - b", "a + b"), "tests/test_add.py": test}
    repo.bare.commit("main", files, f"Use the plus sign (fixes #{issue.number})")
    token = fake_github.create_token("maintainer")
    environment = {
        "GITHUB_TOKEN": token, "GITHUB_SERVER_URL": fake_github.server_url,
    }  # fmt: skip
    for name, value in environment.items():
        evaluation.monkeypatch.setenv(name, value)
    assert await evaluation.evaluate("--model", "gold", source="history:acme/calc") == 0
    (instance,) = evaluation.results.read_instances()
    assert (instance.repo, instance.issue.title, instance.issue.body) == (
        "acme/calc", "add() subtracts", "It should add.",
    )  # fmt: skip
    (result,) = evaluation.read_results()[1].values()
    assert result.resolved


async def test_instances_before_a_day_or_without_a_date_are_left_out(tmp_path: Path) -> None:
    days = {"1": "2026-02-28T23:59:59Z", "2": "2026-03-01T00:00:00Z", "3": None}
    file = tmp_path / "issues.jsonl"
    rows = [{**ROW, "instance_id": f"acme__calc-{name}", "created_at": day} for name, day in days.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = make_options(tmp_path, since=datetime(2026, 3, 1, tzinfo=UTC), limit=1)
    assert [each.id for each in await load_instances(str(file), options)] == ["acme__calc-2"]
    with pytest.raises(UsageError, match="instances made from packages have none"):
        await load_instances("packages:", options)
