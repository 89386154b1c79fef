"""Makes the plugin `kernel`: IPython for our own interpreter, and for the Pythons of projects.

Runs as root in a build on the bundle's image. `lib` is for our own interpreter and has the standard library's
extensions too that the bundle leaves out; `cp39` and its like are for a project's Python of that version. What is
the same for several versions is there once. A layer compiles it for the Python of its base image.

Arguments: our directory, the URL of a package index.
"""

import filecmp
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from runtime.recipes.independent import gather
from runtime.recipes.wheels import INSTALLER, fetch_program, install

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PINS = Path("runtime/recipes/kernel.txt")
LEFT_OUT = ("bin", "share", "*/tests", "*/*/tests")
OF_THE_STANDARD_LIBRARY = ("_ssl", "_hashlib", "_sqlite3")


def main() -> None:
    ours, index = Path(sys.argv[1]), sys.argv[2]
    kernel = ours / "kernel"
    installer = fetch_program(index, INSTALLER, "uv")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lib = kernel / "lib"
    install(installer, index, PINS, lib, own, LEFT_OUT)
    for version in VERSIONS:
        place = kernel / f"cp{version.replace('.', '')}"
        if version == own:
            place.symlink_to("lib")
        else:
            install(installer, index, PINS, place, version, LEFT_OUT)
            share(place, lib)
    complete(lib)
    gather(lib.rglob("*.so"), kernel / "native", known=[ours / "lib", *lib.glob("*.libs")])
    python = ours / "python" / "bin" / "python3"
    check = (
        "import sys; sys.path.append(sys.argv[1]); import ipykernel.kernelapp, jupyter_client, ssl, sqlite3"
    )
    subprocess.run([python, "-I", "-c", check, lib], check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", lib], check=True)


def share(place: Path, lib: Path) -> None:
    """Links in the place of what is in `lib` as well."""
    for entry in [*place.iterdir()]:
        if same(entry, lib / entry.name):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            entry.symlink_to(Path("..") / "lib" / entry.name)


def same(one: Path, other: Path) -> bool:
    if not one.is_dir():
        return other.is_file() and filecmp.cmp(one, other, shallow=False)
    names = {path.relative_to(one) for path in one.rglob("*")}
    return names == {path.relative_to(other) for path in other.rglob("*")} and all(
        same(one / name, other / name) for name in names if not (one / name).is_dir()
    )


def complete(lib: Path) -> None:
    """What of the standard library our own interpreter lacks, and a project may want in a cell."""
    standard = Path(sysconfig.get_path("stdlib"))
    for name in OF_THE_STANDARD_LIBRARY:
        for extension in (standard / "lib-dynload").glob(f"{name}.*.so"):
            shutil.copy(extension, lib)
    shutil.copytree(
        standard / "sqlite3", lib / "sqlite3", ignore=shutil.ignore_patterns("test", "__pycache__")
    )


if __name__ == "__main__":
    main()
