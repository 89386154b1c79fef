"""A machine with little memory or disk starts no sandbox, and reports the shortage."""

from pathlib import Path

import pytest

from patchwright.runtime.docker import capacity
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.errors import InsufficientResources
from patchwright.runtime.sandbox import SandboxSpec
from tests.runtime.conftest import CA_BUNDLE

ENDLESS = 1 << 40  # MiB


def test_this_machine_has_one_mib_free(tmp_path: Path) -> None:
    capacity.check_capacity(1, 1, tmp_path)


def test_missing_memory_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(
        InsufficientResources, match=r"[\d,]+ MiB of memory are free, but `min_free_memory_mb` is 1,099,"
    ):
        capacity.check_capacity(ENDLESS, 0, tmp_path)


def test_missing_disk_space_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(
        InsufficientResources, match=r"[\d,]+ MiB of disk are free, but `min_free_disk_mb` is 1,099,"
    ):
        capacity.check_capacity(0, ENDLESS, tmp_path)


def test_an_unknown_disk_passes_the_capacity_check(tmp_path: Path) -> None:
    capacity.check_capacity(0, ENDLESS, tmp_path / "in" / "a" / "virtual" / "machine")


def test_insufficient_resources_are_retryable() -> None:
    assert InsufficientResources("full").retryable


@pytest.mark.docker
async def test_no_container_starts_below_the_required_capacity() -> None:
    build = BuildSettings(ca_bundle=CA_BUNDLE if CA_BUNDLE.exists() else None)
    full = DockerSandboxes(SandboxSpec(min_free_memory_mb=ENDLESS), build)
    try:
        with pytest.raises(InsufficientResources, match="no room for another sandbox"):
            async with full.open("headroom-none"):
                pass
    finally:
        await full.close()
    roomy = DockerSandboxes(SandboxSpec(min_free_memory_mb=1, min_free_disk_mb=1), build)
    try:
        async with roomy.open("headroom-some") as sandbox:
            assert sandbox.root == "/workspace"
    finally:
        await roomy.close()
