"""What is removed, what is spared, and for how long; the engine here is a list."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime import lease
from runtime.docker.engine import Container
from runtime.docker.place import Place
from runtime.docker.reaper import DEADLINE, KEPT, OWNER, PLACE, Reaper, again_and_again
from runtime.errors import EngineStopped

LATER = str(int(time.time()) + 86_400)  # later than the last of all tests


class Containers:
    """An engine as the reaper knows it."""

    def __init__(self, **containers: tuple[dict[str, str], bool]) -> None:
        self.left = {
            id: Container(id, labels, running, ended=not running)
            for id, (labels, running) in containers.items()
        }

    async def containers(self, label: str) -> list[Container]:
        return [each for each in self.left.values() if label in each.labels]

    async def remove(self, container: str) -> None:
        del self.left[container]


@pytest.fixture
def dead() -> str:
    """A process of this machine that has ended."""
    checkout = Path(__file__).parents[3]
    source = (
        f"import sys; sys.path.insert(0, {str(checkout)!r}); from runtime import lease; print(lease.owner())"
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


async def test_only_ours_without_an_owner_or_past_their_time_are_removed(dead: str) -> None:
    engine = Containers(
        foreign=({"somebody": "else"}, True),
        ours=({OWNER: lease.owner(), DEADLINE: LATER}, True),
        elsewhere=({OWNER: "another.machine.1.2.3", DEADLINE: LATER}, True),
        orphan=({OWNER: dead, DEADLINE: LATER}, True),
        late=({OWNER: lease.owner(), DEADLINE: "1"}, True),
    )
    assert await left_after(engine, Reaper()) == {"foreign", "ours", "elsewhere"}


async def test_a_kept_one_is_spared_while_it_runs_and_its_grace_lasts(dead: str) -> None:
    labels = {OWNER: dead, DEADLINE: LATER, KEPT: "yes"}
    engine = Containers(running=(labels, True), stopped=(labels, False))
    reaper = Reaper(grace=0.3)
    assert await left_after(engine, reaper) == {"running"}
    await asyncio.sleep(0.1)
    assert await left_after(engine, reaper) == {"running"}
    await asyncio.sleep(0.3)
    assert await left_after(engine, reaper) == set()


async def test_what_has_ended_goes_after_a_while_though_nobody_here_knows_its_owner() -> None:
    """A worker in a container has pids of its own; when it is killed, no other can see that it is dead."""
    other = lease.owner().split(".")
    labels = {OWNER: ".".join((*other[:2], "4026500000", *other[3:])), DEADLINE: LATER, KEPT: "yes"}
    ours = {OWNER: lease.owner(), DEADLINE: LATER}
    engine = Containers(ended=(labels, False), running=(labels, True), ours=(ours, False))
    reaper = Reaper(ended=0.3)
    assert await left_after(engine, reaper) == {"ended", "running", "ours"}
    await asyncio.sleep(0.4)
    assert await left_after(engine, reaper) == {"running", "ours"}


async def test_an_heir_is_an_owner(dead: str, places: Path) -> None:
    left = Place(places / f"pw-{dead}-0123abcd")
    left.door.mkdir(parents=True)
    left.keep_key("secret")
    ours = left.inherit()
    assert ours is not None and ours.owner == lease.owner() and ours.key() == "secret"
    assert left.inherit() is None  # it is gone
    assert ours.inherit() is None  # its owner lives
    engine = Containers(adopted=({OWNER: dead, DEADLINE: LATER, PLACE: ours.name, KEPT: "yes"}, True))
    assert await left_after(engine, Reaper(grace=0.0)) == {"adopted"}
    assert ours.directory.exists()


async def test_places_of_the_dead_are_removed_but_not_those_of_the_spared(dead: str, places: Path) -> None:
    for name in ("0000000a", "0000000b"):
        (places / f"pw-{dead}-{name}" / "d").mkdir(parents=True)
    engine = Containers(kept=({OWNER: dead, DEADLINE: LATER, PLACE: "0000000a", KEPT: "yes"}, True))
    await left_after(engine, Reaper())
    assert [path.name[-8:] for path in places.iterdir()] == ["0000000a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="to give a directory to another user takes root")
async def test_what_another_user_put_there_is_nobodys_place(dead: str, places: Path) -> None:
    planted = Place(places / f"pw-{dead}-0000000c")
    planted.directory.mkdir()
    os.chown(planted.directory, 12345, 12345)
    (places / f"pw-{dead}-0000000d").symlink_to("/etc")
    linked = Place(places / f"pw-{dead}-0000000d")
    assert (planted.inherit(), linked.inherit()) == (None, None)
    await left_after(Containers(), Reaper())
    assert planted.directory.exists() and linked.directory.is_symlink()


@pytest.mark.parametrize("name", ["", "../..", "*", "0000000", "0000000G"])
def test_a_name_that_is_none_finds_no_place(name: str) -> None:
    assert Place.find(name) is None


async def test_sweeping_goes_on_when_the_engine_is_away() -> None:
    sweeps = 0

    async def sweep() -> None:
        nonlocal sweeps
        sweeps += 1
        if sweeps == 1:
            raise EngineStopped("gone")

    sweeping = asyncio.create_task(again_and_again(sweep, every=0.01))
    await asyncio.sleep(0.2)
    sweeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
    assert sweeps > 2
