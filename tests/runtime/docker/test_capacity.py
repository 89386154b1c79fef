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


@pytest.mark.parametrize(
    ("resource", "name"), [("memory", "MIN_FREE_MEMORY_MB"), ("disk", "MIN_FREE_DISK_MB")]
)
def test_a_missing_resource_is_named_with_its_minimum(
    resource: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capacity.check_capacity(tmp_path)  # this machine has room
    monkeypatch.setattr(capacity, name, ENDLESS)
    message = rf"only [\d,]+ MiB of {resource} are free, but 1,099,\S+ are necessary; wait"
    with pytest.raises(InsufficientResources, match=message):
        capacity.check_capacity(tmp_path)


def test_an_unknown_disk_passes_the_capacity_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MIN_FREE_DISK_MB", ENDLESS)
    capacity.check_capacity(tmp_path / "in" / "a" / "virtual" / "machine")


def test_insufficient_resources_are_retryable() -> None:
    assert InsufficientResources("full").retryable


@pytest.mark.docker
async def test_no_container_starts_below_the_required_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    sandboxes = DockerSandboxes(
        SandboxSpec(), BuildSettings(ca_bundle=CA_BUNDLE if CA_BUNDLE.exists() else None)
    )
    try:
        async with sandboxes.open("headroom-some") as sandbox:
            assert sandbox.root == "/workspace"
        monkeypatch.setattr(capacity, "MIN_FREE_MEMORY_MB", ENDLESS)
        with pytest.raises(InsufficientResources, match="no room for another sandbox"):
            async with sandboxes.open("headroom-none"):
                pass
    finally:
        await sandboxes.close()
