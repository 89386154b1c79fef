"""Downloads source releases of published packages, and prepares runs on them."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def download_source(release: tuple[str, str, str], place: Path) -> Path:
    """Downloads and unpacks a source release from the configured package index."""
    name, version, digest = release
    place.mkdir()
    wanted = place / "wanted.txt"
    wanted.write_text(f"{name}=={version} --hash=sha256:{digest}\n")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", name, "--require-hashes"]
    where = ["--dest", str(place), "--requirement", str(wanted)]
    subprocess.run([*pip_command(), "download", *options, *where], check=True, timeout=240)
    # Not with tarfile: in Python 3.11.2 it has no filter that drops the owners of the files.
    unpack = ["tar", "--extract", "--no-same-owner", "--directory", str(place), "--file"]
    subprocess.run([*unpack, str(place / f"{name}-{version}.tar.gz")], check=True, timeout=60)
    return place / f"{name}-{version}"


def pip_command() -> list[str]:
    """Returns the pip command. Skips the test if there is none."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip") or shutil.which("pip3"):  # an environment made by uv has no pip
        return [found]
    pytest.skip("no pip is here to download a source release with: apt-get install python3-pip")


def run_git(tree: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Packager", "-c", "user.email=packager@example.org"]
    subprocess.run(["git", "-C", str(tree), *who, *arguments], check=True, timeout=60, capture_output=True)


def cli_environment(home: Path) -> dict[str, str]:
    known = {key: value for key, value in os.environ.items() if key.startswith(("PATH", "LANG", "DOCKER_"))}
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    trusted = {"PATCHWRIGHT_CA_BUNDLE": str(bundle)} if bundle.exists() else {}
    kept = {
        "HOME": str(home),
        "PATCHWRIGHT_DATA": str(home / "data"),
        "PATCHWRIGHT_MODEL_API_KEY": "sk-published",
    }
    return {**trusted, **known, **kept}
