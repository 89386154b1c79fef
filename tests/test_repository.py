"""Checks what a newcomer relies on first: the wheel, the scripts, and the table of the papers' mechanisms."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from patchwright.runtime import VERSION
from tests.test_architecture import imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("bot", "demo", "evaluation", "resolver", "runtime", "sdk", "templates")
COMMANDS = ("bench", "check", "demo", "test", "test-all")


def tracked(*directories: str) -> set[str]:
    """The files below these directories that git keeps."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *directories]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the release workflow makes: from the sdist."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / f"patchwright-{VERSION}"
    for target, place in (("sdist", ROOT), ("wheel", source)):
        build = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            target,
            "--directory",
            str(directory),
        ]
        subprocess.run(build, cwd=place, check=True, capture_output=True)
        if target == "sdist":
            # Python 3.11.2 has no `filter` for tarfile.
            subprocess.run(["tar", "-xf", f"{source}.tar.gz", "-C", str(directory)], check=True)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_contains_every_file_of_the_packages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"patchwright/{name}" for name in tracked(*PACKAGES)} - names == set()


def test_the_wheel_contains_only_the_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"patchwright", f"patchwright-{VERSION}.dist-info"}
    inside = {name.split("/")[1] for name in names if name.startswith("patchwright/")}
    assert inside == {*PACKAGES, "__init__.py", "__main__.py"}
    assert [name for name in names if "__pycache__" in name] == []


def test_the_readme_on_pypi_links_to_the_files_of_this_version(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read(f"patchwright-{VERSION}.dist-info/METADATA").decode()
    readme = metadata.partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    repository = "https://github.com/patchwright/patchwright"
    assert f"{repository}/blob/v{VERSION}/docs/self-hosting.md" in [
        each.partition("#")[0] for each in targets
    ]
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []


# The commands


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the commands need of a checkout, in a directory with a space in its path."""
    copy = tmp_path / "my checkout"
    shutil.copytree(ROOT / "script", copy / "script")
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def machine_with(directory: Path, python: str) -> str:
    """A PATH that has the tools of a minimal Debian, no uv, and this shell script as `python3`."""
    directory.mkdir()
    for tool in ("cat", "cksum", "dirname", "grep", "rm", "sh"):
        (directory / tool).symlink_to(shutil.which(tool) or tool)
    (directory / "python3").write_text(f"#!/bin/sh\n{python}\n")
    (directory / "python3").chmod(0o755)
    return str(directory)


@pytest.mark.parametrize("command", COMMANDS)
def test_without_venv_one_sentence_names_the_package_to_install(
    command: str, checkout: Path, tmp_path: Path
) -> None:
    without = f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec "{sys.executable}" "$@"'
    path = machine_with(tmp_path / "bin", without)
    result = subprocess.run(
        [checkout / "script" / command], env={"PATH": path}, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout, result.stderr) == (
        2,
        "",
        'Python has no pip and venv here: install them with "apt-get install python3-venv".\n',
    )


def test_with_an_old_python_one_sentence_names_the_required_version(checkout: Path, tmp_path: Path) -> None:
    path = machine_with(tmp_path / "bin", "exit 1")
    result = subprocess.run([checkout / "script/test"], env={"PATH": path}, capture_output=True, text=True)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("Python 3.11 or newer is needed: ")


@pytest.mark.slow
@pytest.mark.internet("script/check installs the dependencies")
@pytest.mark.timeout(600)
def test_one_command_is_enough_after_a_clone(tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    first = subprocess.run([clone / "script/test", "--version"], capture_output=True, text=True)
    again = subprocess.run([clone / "script/test", "--version"], capture_output=True, text=True)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert "Installing dependencies (once; takes about a minute) ..." in first.stderr
    assert "Installing" not in again.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_make_target_is_an_alias_of_a_command(command: str) -> None:
    (targets,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command in targets.split()
    assert os.access(ROOT / "script" / command, os.X_OK)


def test_the_package_metadata_is_correct() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["license"], project["requires-python"]) == (
        "patchwright",
        "MIT",
        ">=3.11",
    )
    assert project["scripts"] == {"patchwright": "patchwright.bot.cli.main:main"}
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


# docs/internals/coverage.md

LAST = (
    "A19 B24 C12 D08 E11 F17 G06 H20 I34 J09 K05 L10 M12 N09 O15 P16 Q07 R05 S11 T26 U14 V19 W10 err42"
).split()
"""The last id of each area; H and I begin with 00, the others with 01."""

STATE = re.compile(r"done|done \(as [^|]+\)|partial|not yet|no: [^|]+")


def coverage() -> Iterator[tuple[str, str, str, str]]:
    """The rows of the table: id, state, where, test."""
    for line in (ROOT / "docs/internals/coverage.md").read_text().splitlines():
        if re.match(r"\| ([A-Z]\d\d|err\d\d) \|", line):
            row, state, where, test = (cell.strip() for cell in line.strip("|").split("|"))
            yield row, state, where, test


def named(cell: str) -> list[str]:
    """The files, or the tests in files, that a cell of the table names."""
    return re.findall(r"`([^`]+)`", cell)


def test_the_coverage_table_has_each_row_once_and_in_order() -> None:
    ids = [
        f"{area}{number:02}"
        for area, last in ((last[:-2], int(last[-2:])) for last in LAST)
        for number in range(area not in "HI", last + 1)
    ]
    assert len(ids) == 321 + 42
    assert [row for row, *_ in coverage()] == ids


def test_the_coverage_table_uses_only_the_five_states() -> None:
    assert [(row, state) for row, state, *_ in coverage() if not STATE.fullmatch(state)] == []


def test_every_done_row_of_the_coverage_table_names_files_and_tests() -> None:
    unshown = [
        row
        for row, state, where, test in coverage()
        if (state.startswith("done") and not (named(where) and named(test)))
        or (state == "partial" and not named(where))
        or (state.startswith("no:") and (where or test))
        or (state == "not yet" and test)
    ]
    assert unshown == []


def test_every_open_row_of_the_coverage_table_names_its_issue_or_a_reason() -> None:
    named_issue = r"\bissue \d\b|\ba later issue\b"
    unexplained = [
        row
        for row, state, where, _ in coverage()
        if (state == "not yet" and not re.search(named_issue, where))
        or (state == "partial" and not re.search(rf"{named_issue}|\bbecause \w", where))
    ]
    assert unexplained == []


def test_everything_named_in_the_coverage_table_exists() -> None:
    missing = [
        f"{row}: {name}"
        for row, _, where, test in coverage()
        for name in named(where) + named(test)
        if not is_there(name)
    ]
    assert missing == []


# Merging

MERGES = re.compile(r"""/merge["'?\s]|mergePullRequest|enablePullRequestAutoMerge|enqueuePullRequest""")
"""The requests of GitHub's APIs that merge a pull request, now or later. `/merges` only updates a branch."""


def test_no_code_merges_a_pull_request() -> None:
    requests = (
        'f"/repos/{repo}/pulls/{number}/merge"', "mutation { mergePullRequest(", "enablePullRequestAutoMerge"
    )  # fmt: skip
    assert all(map(MERGES.search, requests))
    code = [path for name in ("bot", "resolver", "sdk", "runtime") for path in (ROOT / name).rglob("*.py")]
    assert len(code) > 400
    assert [str(path) for path in code if MERGES.search(path.read_text())] == []


REQUIRED_BY = {
    "anyio": "mcp", "markupsafe": "jinja2", "pydantic_core": "pydantic", "redis": "arq",
    "referencing": "jsonschema", "zmq": "jupyter-client",
}  # fmt: skip
"""Modules that are installed with a dependency, because they are part of its API."""


@pytest.mark.slow
def test_every_imported_library_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name != "dev"}
    lines = [*project["dependencies"], *(line for needed in extras.values() for line in needed)]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    installed = packages_distributions()
    missing = {
        f"{path} imports {module}"
        for path in tracked("bot", "demo", "evaluation", "resolver", "runtime", "sdk")
        if path.endswith(".py") and not path.startswith("demo/sample/")
        for name, _ in imports(ast.parse((ROOT / path).read_text()))
        if (module := name.partition(".")[0]) not in (*sys.stdlib_module_names, "patchwright")
        if module != "graphql"  # The fake GitHub checks requests with it, only in tests.
        if REQUIRED_BY.get(module) not in declared
        if declared.isdisjoint(map(canonicalize_name, installed.get(module, [module])))
    }
    assert missing == set()


@pytest.mark.parametrize(
    ("library", "directories"),
    [
        ("litellm", ("resolver",)),
        ("pydantic", ("resolver", "bot")),
        ("docker", ("runtime",)),
        ("pytest", ("tests",)),
    ],
)
def test_the_libraries_of_the_brief_are_imported_and_bounded(
    library: str, directories: tuple[str, ...]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    bounds = [requirement.specifier for requirement in map(Requirement, lines) if requirement.name == library]
    assert bounds and all("<" in str(bound) or "==" in str(bound) for bound in bounds)
    for directory in directories:
        files = (ROOT / path for path in tracked(directory) if path.endswith(".py"))
        trees = (ast.parse(file.read_text()) for file in files)
        assert any(name.partition(".")[0] == library for tree in trees for name, _ in imports(tree))


def is_there(name: str) -> bool:
    """Whether a file, or `file::test` in it, exists."""
    path, _, test = name.partition("::")
    if not (ROOT / path).exists():
        return False
    return not test or re.search(rf"def {re.escape(test)}\b", (ROOT / path).read_text()) is not None


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("tests/test_repository.py", True),
        ("tests/test_repository.py::is_there", True),
        ("tests/test_repository.py::is_not_there", False),
        ("tests/test_nothing.py", False),
    ],
)
def test_a_missing_file_or_test_is_detected(name: str, there: bool) -> None:
    assert is_there(name) == there


def test_ci_runs_on_several_systems_with_and_without_an_engine() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    workflow = yaml.safe_load(text)
    job = workflow["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    assert len(matrix["os"]) > 1 and len(matrix["python"]) > 2
    assert {*matrix["engine"], *(extra["engine"] for extra in matrix["include"])} == {"docker", "none"}
    assert job["steps"][-1]["run"] == "script/test"
    oldest = {extra["python"] for extra in matrix["include"]}
    assert oldest >= {f"{version}.0" for version in matrix["python"]}
    slow, bare = (workflow["jobs"][name]["steps"][-1]["run"] for name in ("slow-test", "bare-test"))
    assert (slow, bare) == ("script/test-all", "script/test-bare")
    # YAML 1.1 reads the key `on` as true.
    assert set(workflow[True]) == {"push", "pull_request", "workflow_call"}
    assert "secrets." not in text, "no test on a commit needs a key"


def test_ci_checks_the_types_of_all_packages_strictly() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    commands = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert "script/check" in commands
    assert '"$bin/mypy" || status=1' in (ROOT / "script/check").read_text().splitlines()
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert (mypy["strict"], mypy["packages"]) == (True, ["patchwright"])
    assert mypy["exclude"] == ["^patchwright/demo/sample/repository/"]
    weaker = [o for o in mypy["overrides"] if any(name.startswith("patchwright") for name in o["module"])]
    assert weaker == []


def test_the_image_is_built_from_every_package() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == {*PACKAGES, "patchwright"}
    assert copied <= sent
