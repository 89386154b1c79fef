"""Builds the sandbox feature `kernel`: IPython for Patchwright's own Python, and for the Python of a project.

Runs as root in an image build. The arguments are the install directory and the URL of a package index.

The directory `lib` is for Patchwright's own Python. A directory such as `cp39` is for projects with Python 3.9.
Files that are the same for several versions are stored once.
"""

import filecmp
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from patchwright.runtime.image_build.relocatable import copy_libraries
from patchwright.runtime.image_build.wheels import UV_PIN, download_program, install_pins

PYTHON_VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PINS = Path("patchwright/runtime/image_build/kernel.txt")
EXCLUDED = ("bin", "share", "*/tests", "*/*/tests")
STDLIB_EXTENSIONS = ("_ssl", "_hashlib", "_sqlite3")


def main() -> None:
    install_dir, index = Path(sys.argv[1]), sys.argv[2]
    kernel = install_dir / "kernel"
    installer = download_program(index, UV_PIN, "uv")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lib = kernel / "lib"
    install_pins(installer, index, PINS, lib, own, EXCLUDED)
    for version in PYTHON_VERSIONS:
        place = kernel / f"cp{version.replace('.', '')}"
        if version == own:
            place.symlink_to("lib")
        else:
            install_pins(installer, index, PINS, place, version, EXCLUDED)
            link_shared_files(place, lib)
    add_stdlib_extensions(lib)
    copy_libraries(lib.rglob("*.so"), kernel / "native", provided=[install_dir / "lib", *lib.glob("*.libs")])
    python = install_dir / "python" / "bin" / "python3"
    check = (
        "import sys; sys.path.append(sys.argv[1]); import ipykernel.kernelapp, jupyter_client, ssl, sqlite3"
    )
    subprocess.run([python, "-I", "-c", check, lib], check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", lib], check=True)


def link_shared_files(target: Path, lib: Path) -> None:
    """Replace each file or directory in `target` by a link, if `lib` contains an identical one under the same
    name.
    """
    for entry in [*target.iterdir()]:
        if is_same(entry, lib / entry.name):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            entry.symlink_to(Path("..") / "lib" / entry.name)


def is_same(one: Path, other: Path) -> bool:
    if not one.is_dir():
        return other.is_file() and filecmp.cmp(one, other, shallow=False)
    names = {path.relative_to(one) for path in one.rglob("*")}
    return names == {path.relative_to(other) for path in other.rglob("*")} and all(
        is_same(one / name, other / name) for name in names if not (one / name).is_dir()
    )


def add_stdlib_extensions(lib: Path) -> None:
    """Add modules of the standard library that Patchwright's own Python does not have. The code that runs in
    the kernel may import them.
    """
    standard = Path(sysconfig.get_path("stdlib"))
    for name in STDLIB_EXTENSIONS:
        for extension in (standard / "lib-dynload").glob(f"{name}.*.so"):
            shutil.copy(extension, lib)
    shutil.copytree(
        standard / "sqlite3", lib / "sqlite3", ignore=shutil.ignore_patterns("test", "__pycache__")
    )


if __name__ == "__main__":
    main()
