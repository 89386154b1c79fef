"""The program in the sandbox that installs a project's packages without those that cannot be installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.resolver.preparation import requirements_installer

# Fails like pip if a requirement contains "lost" or "newer"; else notes the lines that it installs. Each call adds a
# line to calls.txt.
PIP = """
import sys
lines = open(sys.argv[-1]).read().splitlines()
open("calls.txt", "a").write("\\n")
if "newer>=9" in lines:
    sys.exit("ERROR: No matching distribution found for newer>=9")
if any("lost" in line for line in lines):
    sys.exit("ERROR: Failed to build lost")
open("installed.txt", "a").writelines(line + "\\n" for line in lines)
"""
MANIFEST = """
[project]
name = "my-project"
dependencies = ["runtime"]
[project.optional-dependencies]
test = ["My_Project[fast]", "extra"]
fast = ["fast>=1"]
[dependency-groups]
dev = [{include-group = "Linters"}, "lost>=99", "pytest"]
linters = ["lint; python_version>'3'"]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "files", "installed"),
    [
        ("", {}, ["runtime"]),
        ("--group dev", {}, ["lint; python_version>'3'", "pytest", "runtime"]),
        ("--extra test", {}, ["fast>=1", "extra", "runtime"]),
        (
            "-r requirements/dev.txt",
            {
                "requirements/dev.txt": "-r base.txt\n--pre\n# comment\nb[c]==1 \\\n  --hash=x # why\nlost\n-e ./d\n",
                "requirements/base.txt": "a#b\n-r base.txt\n",
            },
            ["--pre", "a#b", "b[c]==1    --hash=x", "--pre", "-e ./d", "runtime"],
        ),
    ],
    ids=["dependencies", "group", "extra", "files"],
)
def test_all_other_requirements_are_installed(
    arguments: str, files: dict[str, str], installed: list[str], tmp_path: Path
) -> None:
    assert run_installer(arguments, {"pyproject.toml": MANIFEST, **files}, tmp_path) == 0
    assert (tmp_path / "installed.txt").read_text().splitlines() == installed


def test_a_package_that_pip_names_is_left_out_at_once(tmp_path: Path) -> None:
    run_installer("-r all.txt", {"all.txt": "a\nb\nc\nd\nnewer>=9\n"}, tmp_path)
    assert (tmp_path / "installed.txt").read_text() == "a\nb\nc\nd\n"
    assert len((tmp_path / "calls.txt").read_text()) == 2


def test_constraints_are_found_from_another_directory(tmp_path: Path) -> None:
    run_installer("-r deps/dev.txt", {"deps/dev.txt": "-c limits.txt\na\n"}, tmp_path)
    assert (tmp_path / "installed.txt").read_text() == f"-c {tmp_path}/deps/limits.txt\na\n"


@pytest.mark.parametrize(("text", "code"), [("lost1\nlost2\n", 1), ("lost\na\n", 0), ("", 0)])
def test_it_fails_if_nothing_can_be_installed(text: str, code: int, tmp_path: Path) -> None:
    assert run_installer("-r requirements.txt", {"requirements.txt": text}, tmp_path) == code


def run_installer(arguments: str, files: dict[str, str], directory: Path) -> int:
    """Runs the program in this directory, with a fake pip. Returns its exit code."""
    for path, text in files.items():
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_text(text)
    (directory / "modules").mkdir()
    (directory / "modules/pip.py").write_text(PIP)
    command = [sys.executable, requirements_installer.__file__, *arguments.split()]
    environment = {**os.environ, "PYTHONPATH": str(directory / "modules")}
    return subprocess.run(command, cwd=directory, env=environment, check=False, timeout=60).returncode
