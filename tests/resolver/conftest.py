"""Fixtures for repositories, workspaces, sandboxes and the verification of patches."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import SandboxSpec
from tests.resolver.git_repository import HOST_ENVIRONMENT, Repository, fast_host_environment
from tests.resolver.patch_verifier import VerifierFactory, make_verifier_factory


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def workspaces(tmp_path: Path) -> WorkspaceFactory:
    return WorkspaceFactory(tmp_path / "cache")


@pytest.fixture
def sandboxes(tmp_path: Path, request: pytest.FixtureRequest) -> LocalSandboxes:
    is_real = request.node.get_closest_marker("real_start")
    return LocalSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT if is_real else fast_host_environment())


@pytest.fixture
def open_verifier(
    repository: Repository, workspaces: WorkspaceFactory, sandboxes: LocalSandboxes
) -> VerifierFactory:
    return make_verifier_factory(repository, workspaces, sandboxes)


def build_docker_sandboxes(egress: EgressConfig | None = None) -> DockerSandboxes:
    bundle = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
    build = BuildSettings(
        ca_bundle=bundle if bundle.exists() else None,
        package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
    )
    return DockerSandboxes(SandboxSpec(memory_mb=1024), build, egress=egress)


@pytest.fixture
async def docker_sandboxes() -> AsyncIterator[DockerSandboxes]:
    """Only for tests that are marked `docker`."""
    sandboxes = build_docker_sandboxes()
    yield sandboxes
    await sandboxes.close()
