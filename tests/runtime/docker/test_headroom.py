"""A machine that has little left starts no sandbox, and says what lacks."""

from pathlib import Path

import pytest

from runtime.docker import headroom
from runtime.docker.docker import DockerSandboxes
from runtime.errors import MachineFull
from runtime.sandbox import SandboxSpec
from tests.runtime.conftest import CA_BUNDLE

ENDLESS = 1 << 40  # MiB


def test_what_is_left_here_is_enough_for_a_floor_of_one(tmp_path: Path) -> None:
    headroom.check(1, 1, tmp_path)


def test_memory_that_lacks_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(
        MachineFull, match=r"[\d,]+ MiB of memory are left, and `free_memory_mb` keeps 1,099,"
    ):
        headroom.check(ENDLESS, 0, tmp_path)


def test_disk_that_lacks_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(MachineFull, match=r"[\d,]+ MiB of disk are left, and `free_disk_mb` keeps 1,099,"):
        headroom.check(0, ENDLESS, tmp_path)


def test_a_disk_that_is_not_to_be_seen_from_here_is_not_held_against_the_machine(tmp_path: Path) -> None:
    headroom.check(0, ENDLESS, tmp_path / "in" / "a" / "virtual" / "machine")


def test_it_may_have_room_again_later() -> None:
    assert MachineFull("full").retryable


@pytest.mark.docker
async def test_no_container_is_started_below_the_floor() -> None:
    bundle = CA_BUNDLE if CA_BUNDLE.exists() else None
    full = DockerSandboxes(SandboxSpec(free_memory_mb=ENDLESS), ca_bundle=bundle)
    try:
        with pytest.raises(MachineFull, match="no room for another sandbox"):
            async with full.open("headroom-none"):
                pass
    finally:
        await full.close()
    roomy = DockerSandboxes(SandboxSpec(free_memory_mb=1, free_disk_mb=1), ca_bundle=bundle)
    try:
        async with roomy.open("headroom-some") as sandbox:
            assert sandbox.root == "/workspace"
    finally:
        await roomy.close()
