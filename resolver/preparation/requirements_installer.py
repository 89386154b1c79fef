"""Installs the packages that a Python project names, without those that cannot be installed.

Runs as a program in the sandbox after pip failed as a whole. The arguments are `-r FILE`, `--group NAME` and
`--extra NAME`, each any number of times. The packages on which the project itself depends are installed, too, because
the project may be impossible to build.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_DEPTH = 10  # of files and groups that include others
# What pip writes about a package that the index has only in other versions, or not at all.
LOST = re.compile(r"No matching distribution found for ([\w.-]+)")


def read_requirements_file(path: Path, depth: int = 0) -> Iterator[str]:
    """Yields the lines of a requirements file and of the files that it includes, without comments."""
    if depth > MAX_DEPTH or not path.is_file():
        return
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for line in text.splitlines():
        stripped = re.sub(r"(^|\s)#.*", "", line).strip()
        option = re.match(r"(-r|--requirement|-c|--constraint)[\s=]*(.+)", stripped)
        if option is None:
            yield stripped
            continue
        file = path.parent / option[2]  # pip reads such a path relative to the file that contains it
        if option[1] in ("-r", "--requirement"):
            yield from read_requirements_file(file, depth + 1)
        else:
            yield f"-c {shlex.quote(os.path.abspath(file))}"


def read_group(groups: dict[str, Any], name: str, depth: int = 0) -> Iterator[str]:
    """Yields the requirements of a dependency group and of the groups that it includes."""
    members = {_normalize(each): group for each, group in groups.items()}.get(_normalize(name), [])
    for member in members if depth <= MAX_DEPTH else []:
        if isinstance(member, str):
            yield member
        elif isinstance(member, dict) and "include-group" in member:
            yield from read_group(groups, member["include-group"], depth + 1)


def read_extra(project: dict[str, Any], name: str, depth: int = 0) -> Iterator[str]:
    """Yields the requirements of an extra, and of the extras that it includes by the project's own name."""
    extras = {_normalize(each): extra for each, extra in project.get("optional-dependencies", {}).items()}
    for requirement in extras.get(_normalize(name), []) if depth <= MAX_DEPTH else []:
        own = re.match(r"\s*([\w.-]+)\s*\[([^\]]*)\]", requirement)
        if own is None or _normalize(own[1]) != _normalize(project.get("name", "")):
            yield requirement
            continue
        for included in own[2].split(","):
            yield from read_extra(project, included.strip(), depth + 1)


def install(requirements: list[str], options: list[str], scratch: Path) -> list[str]:
    """Installs the requirements that can be installed, and returns the others."""
    if not requirements:
        return []
    file = scratch / "requirements.txt"
    file.write_text("\n".join([*options, *requirements, ""]), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "-r", str(file)]
    done = subprocess.run(pip, check=False, stderr=subprocess.PIPE)
    if done.returncode == 0:
        return []
    error = done.stderr.decode(errors="replace")
    print(error, file=sys.stderr, flush=True)
    # Each attempt takes time, so the packages that pip names are left out before the others are divided.
    lost_names = set(map(_normalize, LOST.findall(error)))
    lost = [each for each in requirements if _find_name(each) in lost_names]
    if lost:
        return lost + install([each for each in requirements if each not in lost], options, scratch)
    if len(requirements) == 1:
        return requirements
    middle = len(requirements) // 2
    halves = requirements[:middle], requirements[middle:]
    return [each for half in halves for each in install(half, options, scratch)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-r", action="append", default=[], type=Path, dest="files")
    parser.add_argument("--group", action="append", default=[], dest="groups")
    parser.add_argument("--extra", action="append", default=[], dest="extras")
    parsed = parser.parse_args(arguments)
    manifest = _read_pyproject(Path("pyproject.toml"))
    project = manifest.get("project", {})
    lines = [
        *(line for file in parsed.files for line in read_requirements_file(file)),
        *(line for name in parsed.groups for line in read_group(manifest.get("dependency-groups", {}), name)),
        *(line for name in parsed.extras for line in read_extra(project, name)),
        *project.get("dependencies", []),
    ]
    unique = [line for line in dict.fromkeys(lines) if line]
    # An editable path is a requirement; the other options concern all requirements.
    options = [line for line in unique if line.startswith("-") and not re.match(r"-e|--editable", line)]
    requirements = [line for line in unique if line not in options]
    with tempfile.TemporaryDirectory() as scratch:
        missing = install(requirements, options, Path(scratch))
    if missing:
        print("Not installed:", "; ".join(missing), flush=True)
    return 1 if requirements and len(missing) == len(requirements) else 0


def _read_pyproject(path: Path) -> dict[str, Any]:
    # Before Python 3.11, only pip contains a copy of the parser.
    name = "tomllib" if importlib.util.find_spec("tomllib") else "pip._vendor.tomli"
    try:
        manifest: dict[str, Any] = importlib.import_module(name).loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest


def _find_name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    return _normalize(match[0]) if match else ""


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
