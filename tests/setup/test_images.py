"""The sandbox's images while somebody fills in the set-up's forms."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from bot.setup.images import Images, making
from tests.setup.conftest import Fresh, until

MAKER = """
import os, sys, time
from pathlib import Path

place = Path(sys.argv[1])
(place / "pid").write_text(str(os.getpid()))
print("Making the first ...", file=sys.stderr, flush=True)
while not (place / "go").exists():
    time.sleep(0.05)
if (place / "broken").exists():
    sys.exit("patchwright: there is no engine")
print("They are ready")
"""


def maker(place: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", MAKER, str(place))


@pytest.mark.parametrize(
    ("broken", "said"),
    [(False, ["", "The sandbox's images are made."]), (True, ["patchwright: there is no engine"] * 2)],
    ids=["made", "broken"],
)
async def test_what_is_made_is_told_while_it_is_made_and_why_it_cannot_be(
    tmp_path: Path, broken: bool, said: list[str]
) -> None:
    told: list[str] = []
    async with making(maker(tmp_path), os.environ, told.append) as images:
        await until(lambda: images.said == "Making the first ...")
        if broken:
            (tmp_path / "broken").touch()
        (tmp_path / "go").touch()
        await until(lambda: images.said == said[0])
    assert told == ["The set-up need not wait for what follows:", "Making the first ...", *said[1:]]


async def test_the_maker_ends_with_the_server(tmp_path: Path) -> None:
    begun = time.monotonic()
    async with making(maker(tmp_path), os.environ, lambda _: None) as images:
        await until(lambda: images.said)
    assert time.monotonic() - begun < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_where_workers_are_elsewhere_nothing_is_made() -> None:
    async with making((), {}) as images:
        await asyncio.sleep(0)
        assert images == Images()


async def test_a_setup_goes_on_without_an_engine_and_says_what_lacks(fresh: Fresh) -> None:
    nowhere = {"DOCKER_HOST": "unix:///nowhere/docker.sock", "PATCHWRIGHT_SANDBOX": "docker"}
    async with fresh.serving(**nowhere), fresh.visitor() as http:
        await until(lambda: "no Docker engine answers" in fresh.log)
        page = await http.get("/setup")
        assert page.status_code == 200
        assert "Meanwhile, for the sandboxes of runs: patchwright: no Docker engine answers" in page.text
