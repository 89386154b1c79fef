"""What the tests of the proof share: real repositories, workspaces and sandboxes."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolver.workspace import Workspaces
from runtime.docker.docker import DockerSandboxes
from runtime.local import LocalSandboxes
from runtime.sandbox import SandboxSpec
from tests.resolver.proofs import Proven, proving
from tests.resolver.repositories import HOST, Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "cache")


@pytest.fixture
def sandboxes(tmp_path: Path) -> LocalSandboxes:
    return LocalSandboxes(tmp_path / "sandboxes", HOST)


@pytest.fixture
def proven(repository: Repository, workspaces: Workspaces, sandboxes: LocalSandboxes) -> Proven:
    return proving(repository, workspaces, sandboxes)


@pytest.fixture
async def docker_sandboxes() -> AsyncIterator[DockerSandboxes]:
    """Only for tests that are marked `docker`."""
    bundle = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=1024),
        ca_bundle=bundle if bundle.exists() else None,
        package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
    )
    yield sandboxes
    await sandboxes.close()
