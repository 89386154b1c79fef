"""Which containers are removed, which stay, and for how long; the engine is a list."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchwright.runtime import ownership
from patchwright.runtime.docker.engine import ContainerInfo
from patchwright.runtime.docker.reaper import (
    ADOPTABLE_LABEL,
    DEADLINE_LABEL,
    OWNER_LABEL,
    SOCKET_DIR_LABEL,
    Reaper,
    sweep_periodically,
)
from patchwright.runtime.docker.socket_dir import SocketDir
from patchwright.runtime.errors import EngineStopped

LATER = str(int(time.time()) + 86_400)  # after the end of all tests


class Containers:
    """A fake engine for the reaper."""

    def __init__(self, **containers: tuple[dict[str, str], bool]) -> None:
        self.left = {
            id: ContainerInfo(id, labels, running, has_exited=not running)
            for id, (labels, running) in containers.items()
        }

    async def list_containers(self, label: str) -> list[ContainerInfo]:
        return [each for each in self.left.values() if label in each.labels]

    async def remove(self, container: str) -> None:
        del self.left[container]


@pytest.fixture
def dead() -> str:
    """Return the owner id of a process of this machine that has ended."""
    checkout = Path(__file__).parents[3]
    source = (
        f"import sys; sys.path.insert(0, {str(checkout)!r}); "
        "from patchwright.runtime import ownership; print(ownership.current_owner())"
    )
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(autouse=True)
def places(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(short_tmp))
    return short_tmp


async def left_after(engine: Containers, reaper: Reaper) -> set[str]:
    await reaper.reap(engine)  # type: ignore[arg-type]
    return set(engine.left)


async def test_only_our_orphaned_or_expired_containers_are_removed(dead: str) -> None:
    engine = Containers(
        foreign=({"somebody": "else"}, True),
        ours=({OWNER_LABEL: ownership.current_owner(), DEADLINE_LABEL: LATER}, True),
        elsewhere=({OWNER_LABEL: "another.machine.1.2.3", DEADLINE_LABEL: LATER}, True),
        orphan=({OWNER_LABEL: dead, DEADLINE_LABEL: LATER}, True),
        late=({OWNER_LABEL: ownership.current_owner(), DEADLINE_LABEL: "1"}, True),
    )
    assert await left_after(engine, Reaper()) == {"foreign", "ours", "elsewhere"}


async def test_an_adoptable_sandbox_stays_while_it_runs_and_its_grace_lasts(dead: str) -> None:
    labels = {OWNER_LABEL: dead, DEADLINE_LABEL: LATER, ADOPTABLE_LABEL: "yes"}
    engine = Containers(running=(labels, True), stopped=(labels, False))
    reaper = Reaper(adoption_grace=0.3)
    assert await left_after(engine, reaper) == {"running"}
    await asyncio.sleep(0.1)
    assert await left_after(engine, reaper) == {"running"}
    await asyncio.sleep(0.3)
    assert await left_after(engine, reaper) == set()


async def test_an_exited_container_of_an_unknown_owner_is_removed_after_a_while() -> None:
    """A worker in a container has its own pid namespace, so others cannot see that it was killed."""
    other = ownership.current_owner().split(".")
    labels = {
        OWNER_LABEL: ".".join((*other[:2], "4026500000", *other[3:])),
        DEADLINE_LABEL: LATER,
        ADOPTABLE_LABEL: "yes",
    }
    ours = {OWNER_LABEL: ownership.current_owner(), DEADLINE_LABEL: LATER}
    engine = Containers(ended=(labels, False), running=(labels, True), ours=(ours, False))
    reaper = Reaper(exited_grace=0.3)
    assert await left_after(engine, reaper) == {"ended", "running", "ours"}
    await asyncio.sleep(0.4)
    assert await left_after(engine, reaper) == {"running", "ours"}


async def test_an_adopting_process_is_the_owner(dead: str, places: Path) -> None:
    left = SocketDir(places / f"pw-{dead}-0123abcd")
    left.mounted_dir.mkdir(parents=True)
    left.save_key("secret")
    ours = left.claim()
    assert ours is not None and ours.owner == ownership.current_owner() and ours.read_key() == "secret"
    assert left.claim() is None  # it is gone
    assert ours.claim() is None  # its owner is alive
    engine = Containers(
        adopted=(
            {OWNER_LABEL: dead, DEADLINE_LABEL: LATER, SOCKET_DIR_LABEL: ours.id, ADOPTABLE_LABEL: "yes"},
            True,
        )
    )
    assert await left_after(engine, Reaper(adoption_grace=0.0)) == {"adopted"}
    assert ours.path.exists()


async def test_socket_directories_of_dead_owners_are_removed_unless_retained(dead: str, places: Path) -> None:
    for name in ("0000000a", "0000000b"):
        (places / f"pw-{dead}-{name}" / "d").mkdir(parents=True)
    engine = Containers(
        kept=(
            {OWNER_LABEL: dead, DEADLINE_LABEL: LATER, SOCKET_DIR_LABEL: "0000000a", ADOPTABLE_LABEL: "yes"},
            True,
        )
    )
    await left_after(engine, Reaper())
    assert [path.name[-8:] for path in places.iterdir()] == ["0000000a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="to give a directory to another user takes root")
async def test_a_directory_of_another_user_is_not_claimed(dead: str, places: Path) -> None:
    planted = SocketDir(places / f"pw-{dead}-0000000c")
    planted.path.mkdir()
    os.chown(planted.path, 12345, 12345)
    (places / f"pw-{dead}-0000000d").symlink_to("/etc")
    linked = SocketDir(places / f"pw-{dead}-0000000d")
    assert (planted.claim(), linked.claim()) == (None, None)
    await left_after(Containers(), Reaper())
    assert planted.path.exists() and linked.path.is_symlink()


@pytest.mark.parametrize("name", ["", "../..", "*", "0000000", "0000000G"])
def test_an_invalid_id_finds_no_socket_directory(name: str) -> None:
    assert SocketDir.find(name) is None


async def test_sweeping_continues_when_the_engine_is_unavailable() -> None:
    sweeps = 0

    async def sweep() -> None:
        nonlocal sweeps
        sweeps += 1
        if sweeps == 1:
            raise EngineStopped("gone")

    sweeping = asyncio.create_task(sweep_periodically(sweep, interval=0.01))
    await asyncio.sleep(0.2)
    sweeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
    assert sweeps > 2
