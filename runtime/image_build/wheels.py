"""Installs wheels from a package index. Used by builds in images that have no pip."""

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

DOWNLOAD_TIMEOUT = 60  # seconds for one download
UV_PIN = "uv==0.13.8"
# The platform for which uv selects wheels. Like our own libraries, they work with glibc 2.28 and newer.
PLATFORM = "{machine}-manylinux_2_28"


def download_wheel(index: str, pin: str) -> tuple[str, bytes]:
    """Download the wheel for a `name==version` pin. Prefers a pure Python wheel to a wheel for this interpreter.

    Returns the name and the content of the wheel. Source: packaging.python.org/specifications/simple-repository-api
    """
    name, _, version = pin.partition("==")
    page = urljoin(index.rstrip("/") + "/", re.sub(r"[-_.]+", "-", name) + "/")
    with urlopen(page, timeout=DOWNLOAD_TIMEOUT) as answer:  # noqa: S310  # the operator's index
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
                with urlopen(urljoin(page, url), timeout=DOWNLOAD_TIMEOUT) as answer:  # noqa: S310
                    content = bytes(answer.read())
                if digest and hashlib.sha256(content).hexdigest() != digest.partition("&")[0]:
                    sys.exit(f"error: {file} does not match the hash in the package index")
                return file, content
    sys.exit(f"error: the package index {index} has no wheel of {pin} for {abi} on {machine}")


def download_program(index: str, pin: str, name: str) -> Path:
    """Download a wheel, and write the program `name` from this wheel to the current directory."""
    _, content = download_wheel(index, pin)
    place = Path.cwd() / name
    with zipfile.ZipFile(BytesIO(content)) as archive:
        place.write_bytes(archive.read(next(each for each in archive.namelist() if Path(each).name == name)))
    place.chmod(0o700)
    return place


def install_pins(
    uv: Path, index: str, pins: Path, target: Path, version: str, exclude: Iterable[str] = ()
) -> None:
    """Install the packages that the file `pins` lists, for one Python version such as `3.9`. Afterwards,
    delete the installed files that match `exclude`.

    Resolves no dependencies, because the file lists all packages with their versions. Builds no packages,
    because it uses only wheels.
    """
    command = [
        *(str(uv), "pip", "install", "--quiet", "--no-config", "--no-deps"),
        *("--cache-dir", "cache", "--link-mode", "copy"),
        *("--only-binary", ":all:", "--default-index", index, "--target", str(target)),
        *("--python-version", version, "--python-platform", PLATFORM.format(machine=os.uname().machine)),
        *("--requirement", str(pins)),
    ]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"error: the packages of {pins.name} could not be installed for Python {version}")
    for pattern in exclude:
        for path in [*target.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
