"""Base images of several kinds, made from Debian's archive and cached where .ci/run caches its own."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "patchwright-ci"
WITH_PYTHON = ("--include=python3,git,ca-certificates",)
RECIPES = {
    "trixie": ("trixie", WITH_PYTHON),
    "bullseye": ("bullseye", WITH_PYTHON),
    "bare": ("bookworm", ()),
    "node": ("bookworm", ("--include=nodejs,ca-certificates",)),
}


@functools.cache
def base_image(name: str) -> str:
    """Return the name of a local image: bookworm, trixie, bullseye, bare (no Python), node (no Python) or musl."""
    if name == "bookworm":
        return "debian:bookworm-slim"
    image = f"patchwright-test-base:{name}"
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode:
        subprocess.run(["docker", "import", str(_tarball(name)), image], check=True, capture_output=True)
    return image


def _tarball(name: str) -> Path:
    tarball = CACHE / f"{name}.tar"
    if not tarball.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            tree = Path(place) / "tree"
            _musl(tree) if name == "musl" else _debian(name, tree)
            pack = [
                "tar",
                "-C",
                tree,
                "--exclude=./var/cache/apt/archives/*.deb",
                "-cf",
                f"{tarball}.new",
                ".",
            ]
            subprocess.run(pack, check=True)
            Path(f"{tarball}.new").rename(tarball)  # atomic
    return tarball


def _debian(name: str, tree: Path) -> None:
    if shutil.which("debootstrap") is None or os.geteuid():
        pytest.skip("debootstrap, as root, is needed to make this base image")
    suite, options = RECIPES[name]
    _run("debootstrap", "--variant=minbase", *options, suite, str(tree))


def _musl(tree: Path) -> None:
    """Create busybox and musl's loader, and nothing else: no glibc, bash, Python, git, or user database."""
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is needed to make this base image")
    tree.mkdir()
    _run("apt-get", "-o", "APT::Sandbox::User=root", "download", "busybox-static", "musl", cwd=tree.parent)
    for package in tree.parent.glob("*.deb"):
        _run("dpkg-deb", "-x", str(package), str(tree))
    shutil.rmtree(tree / "usr", ignore_errors=True)
    for applet in _run(str(tree / "bin/busybox"), "--list").split():
        if not (link := tree / "bin" / applet).exists():
            link.symlink_to("busybox")


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=280, check=False)
    if done.returncode:
        pytest.fail(f"{command[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout
