"""Where the test runners of other languages are, which these tests start for real."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from resolver.workspace import Workspaces
from runtime.local import LocalSandboxes
from tests.resolver.proofs import Proven, proving
from tests.resolver.repositories import HOST, Repository
from tests.runners.repositories import SAMPLES, Sample

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "patchwright-ci"
NPM = CACHE / "npm" / "node_modules"  # .ci/run puts jest, vitest, mocha and tap there


@functools.cache
def path() -> str:
    """PATH for the sandboxes. rustup's cargo needs a home, which they have not: its toolchain's own goes first."""
    before = HOST["PATH"]
    if rustc := shutil.which("rustc"):
        root = subprocess.run(
            [rustc, "--print", "sysroot"], capture_output=True, text=True, timeout=60
        ).stdout.strip()
        return f"{root}/bin:{before}"
    return before


@pytest.fixture
def proven(tmp_path: Path) -> Proven:
    """With what npm installed beside the sandboxes, where node looks for it: their trees have none of it."""
    parent = tmp_path / "sandboxes"
    parent.mkdir()
    (parent / "node_modules").symlink_to(NPM)
    sandboxes = LocalSandboxes(parent, {**HOST, "PATH": path()})
    return proving(Repository(tmp_path / "repository"), Workspaces(tmp_path / "cache"), sandboxes)


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Sample:
    found = SAMPLES[request.param]
    skip_without(*found.needs)
    return found


def skip_without(*programs: str) -> None:
    """Skip, with the reason, where one of these is not on PATH; `npm:jest` is what npm installed."""
    for program in programs:
        package = program.removeprefix("npm:")
        found = (NPM / package).is_dir() if package != program else shutil.which(program, path=path())
        if not found:
            pytest.skip(f"no {program} here: .ci/run installs it")
