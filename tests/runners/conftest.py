"""Fixtures with the real test runners of other languages."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.git_repository import HOST_ENVIRONMENT, Repository
from tests.resolver.patch_verifier import VerifierFactory, make_verifier_factory
from tests.runners.repositories import SAMPLES, Sample

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "patchwright-ci"
NPM = CACHE / "npm" / "node_modules"  # .ci/run installs jest, vitest, mocha and tap there


@functools.cache
def path() -> str:
    """Returns the PATH for the sandboxes, with the toolchain's own cargo first: rustup's needs a home
    directory.
    """
    before = HOST_ENVIRONMENT["PATH"]
    if rustc := shutil.which("rustc"):
        root = subprocess.run(
            [rustc, "--print", "sysroot"], capture_output=True, text=True, timeout=60
        ).stdout.strip()
        return f"{root}/bin:{before}"
    return before


@pytest.fixture
def open_verifier(tmp_path: Path) -> VerifierFactory:
    """Verification with npm's packages next to the sandboxes, where node looks for them, because the trees
    contain none.
    """
    parent = tmp_path / "sandboxes"
    parent.mkdir()
    (parent / "node_modules").symlink_to(NPM)
    sandboxes = LocalSandboxes(parent, {**HOST_ENVIRONMENT, "PATH": path()})
    return make_verifier_factory(
        Repository(tmp_path / "repository"), WorkspaceFactory(tmp_path / "cache"), sandboxes
    )


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Sample:
    found = SAMPLES[request.param]
    skip_without(*found.needs)
    return found


def skip_without(*programs: str) -> None:
    """Skips the test with the reason if one of these programs is not on PATH; `npm:jest` is an npm package."""
    for program in programs:
        package = program.removeprefix("npm:")
        found = (NPM / package).is_dir() if package != program else shutil.which(program, path=path())
        if not found:
            pytest.skip(f"no {program} here: .ci/run installs it")
