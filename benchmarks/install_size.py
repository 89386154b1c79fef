"""Measures the size of the core: this project without extras, installed into an empty environment.

Counts the bytes of all files except compiled caches, pip, and setuptools. Floor: the empty environment.
Peers: mini-swe-agent 2.4.6, OpenHands 1.58.2, and pr-agent, measured with the same rule.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result, report

ROOT = Path(__file__).parent.parent
NOT_COUNTED = re.compile(r"__pycache__|(pip|setuptools|_distutils_hack|pkg_resources)(-.*)?")


def measure() -> list[Result]:
    """Returns megabytes, 10^6 bytes."""
    with tempfile.TemporaryDirectory(prefix="patchwright-size-") as directory:
        environment = Path(directory) / "environment"
        _make(environment)
        floor = _megabytes(environment)
        _install(environment)
        return [
            Result(
                name="install_size",
                value=_megabytes(environment),
                unit="MB",
                floor=floor,
                peers={"mini-swe-agent": 523, "OpenHands": 541, "pr-agent": 271},
                target=300,
            )
        ]


def _make(environment: Path) -> None:
    if shutil.which("uv"):
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, environment], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)


def _install(environment: Path) -> None:
    python = str(environment / "bin/python")
    pip = (
        ["uv", "pip", "install", "--python", python]
        if shutil.which("uv")
        else [python, "-m", "pip", "install"]
    )
    subprocess.run([*pip, "--quiet", str(ROOT)], check=True)


def _megabytes(environment: Path) -> float:
    return sum(path.lstat().st_size for path in _files(environment)) / 1e6


def _files(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            if not NOT_COUNTED.fullmatch(path.name):
                yield from _files(path)
        else:
            yield path


if __name__ == "__main__":
    report(measure())
