"""Installs the dependencies of a test environment of tox, nox or hatch into the project's own interpreter.

Runs as a program in the sandbox, with the tool's name and the path of the interpreter as arguments. The tool reads
its own configuration and creates an environment in a temporary directory, but pip and uv install into the interpreter
that PIP_PYTHON and UV_PYTHON name. So the agent and the test runs need only one environment.
Sources: pip.pypa.io/en/stable/topics/python-option, docs.astral.sh/uv/reference/environment
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile

TEST_NAME = re.compile(r"(py|unit)?tests?(ing)?|unit|dev|default")
OTHER_NAME = re.compile(
    r"lint(ing|ers?)?|mypy|pyright|types?|typing|typecheck|pre|docs?|format|fmt|style|flake8|ruff|black|coverage|cov|"
    r"report|clean|build|package|release|publish|security|bench(mark)?s?|min(imal)?"
)
PYTHON_NAME = re.compile(r"((py|python|pypy)\d?)?\d\.?\d+t?")


def choose_environment(names: list[str], version: tuple[int, int]) -> str | None:
    """Returns the first environment that runs tests with this Python version, as far as its name says so. Returns None
    if there is none.

    The names have the form of tox (`py311-tests`), nox (`tests-3.11`) or hatch (`test.py3.11`).
    """
    major, minor = version
    current = re.compile(rf"(py|python)?{major}\.?{minor}")

    def rank(name: str) -> tuple[bool, bool, bool]:
        parts = re.split(r"[-_]|\.(?=py)", re.sub(r"\(.*", "", name.lower()))
        has_version = any(map(current.fullmatch, parts)) or "py" in parts or f"py{major}" in parts
        has_test_name = any(map(TEST_NAME.fullmatch, parts))
        is_other = any(
            OTHER_NAME.fullmatch(part) or (PYTHON_NAME.fullmatch(part) and not current.fullmatch(part))
            for part in parts
        )
        is_fallback = "default" in parts or "dev" in parts
        return (has_version or has_test_name) and not is_other, has_test_name and not is_fallback, has_version

    best = max(names, key=rank, default="")  # of equal names, `max` returns the first
    return best if best and rank(best)[0] else None


def list_environments(tool: str) -> list[str]:
    """Lists the names of the environments as the tool itself prints them."""
    if tool == "tox":
        return _run("tox", "list", "--no-desc", "-q").split()
    if tool == "nox":
        sessions = json.loads(_run("nox", "--list", "--json"))
        # A session for other Python versions only is listed without a version, too.
        return [session[key] for key in ("session", "name") for session in sessions]
    # Hatch's built-in environments contain tools of its own.
    return [
        name for name in json.loads(_run("hatch", "env", "show", "--json")) if not name.startswith("hatch-")
    ]


def install_command(tool: str, name: str | None, version: tuple[int, int], scratch: str) -> list[str]:
    """Returns the tool's command that installs an environment without running the tests."""
    if tool == "tox":
        # The project itself is installed in editable mode by another step.
        return ["tox", "run", "-e", name or "py", "--notest", "--skip-pkg-install", "--workdir", scratch]
    if tool == "nox":
        has_version = name is not None and re.search(r"-\d\.\d", name)
        force = [] if has_version else ["--force-python", "{}.{}".format(*version)]
        environment = ["--envdir", scratch, "--force-venv-backend", "virtualenv"]
        return ["nox", "-s", name or "tests", "--install-only", *environment, *force]
    return ["hatch", "env", "create", name or "default"]


def main(tool: str, python: str) -> int:
    # The tool runs on another interpreter than the project.
    shown = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2])"], check=True, stdout=subprocess.PIPE
    )
    major, minor = map(int, shown.stdout.split())
    with tempfile.TemporaryDirectory() as scratch:
        environment = [f"PIP_PYTHON={python}", f"UV_PYTHON={python}", f"HATCH_DATA_DIR={scratch}"]
        name = choose_environment(list_environments(tool), (major, minor))
        command = install_command(tool, name, (major, minor), scratch)
        print("+", *command, flush=True)
        return subprocess.run(["env", *environment, sys.executable, "-m", *command], check=False).returncode


def _run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
