"""Building the sandbox images during the setup."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from patchwright.bot.setup.image_preparation import ImagePreparation, prepare_images
from patchwright.runtime import processes
from tests.bot.setup.conftest import UnconfiguredServer, wait_until

BUILD_SCRIPT = """
import os, sys, time
from pathlib import Path

directory = Path(sys.argv[1])
(directory / "pid").write_text(str(os.getpid()))
print("Making the first ...", file=sys.stderr, flush=True)
while not (directory / "go").exists():
    time.sleep(0.05)
if (directory / "broken").exists():
    sys.exit("patchwright: there is no engine")
print("They are ready")
"""


def build_command(directory: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", BUILD_SCRIPT, str(directory))


@pytest.mark.parametrize(
    ("broken", "expected"),
    [(False, ["", "Sandbox images are ready."]), (True, ["patchwright: there is no engine"] * 2)],
    ids=["built", "failed"],
)
async def test_the_progress_and_the_error_of_the_build_are_reported(
    tmp_path: Path, broken: bool, expected: list[str]
) -> None:
    announced: list[str] = []
    async with prepare_images(build_command(tmp_path), os.environ, announced.append) as images:
        await wait_until(lambda: images.status == "Making the first ...")
        if broken:
            (tmp_path / "broken").touch()
        (tmp_path / "go").touch()
        await wait_until(lambda: images.status == expected[0])
    assert announced == [
        "Preparing sandbox images. You can continue the setup meanwhile:",
        "Making the first ...",
        *expected[1:],
    ]


async def test_a_missing_engine_is_not_announced_as_a_preparation() -> None:
    announced: list[str] = []
    command = (sys.executable, "-c", "import sys; sys.exit('patchwright: there is no engine')")
    async with prepare_images(command, os.environ, announced.append) as images:
        await wait_until(lambda: images.status)
    assert announced == ["patchwright: there is no engine"]


async def test_the_build_stops_with_the_server(tmp_path: Path) -> None:
    async with prepare_images(build_command(tmp_path), os.environ, lambda _: None) as images:
        await wait_until(lambda: images.status)
    assert processes.start_time(int((tmp_path / "pid").read_text())) is None


async def test_nothing_is_built_without_a_command() -> None:
    async with prepare_images((), {}) as images:
        await asyncio.sleep(0)
        assert images == ImagePreparation()


@pytest.mark.slow
async def test_the_setup_works_without_a_docker_engine(server: UnconfiguredServer) -> None:
    no_engine = {"DOCKER_HOST": "unix:///no_engine/docker.sock", "PATCHWRIGHT_SANDBOX": "docker"}
    async with server.started(**no_engine), server.authorized_browser() as http:
        await wait_until(lambda: "no Docker engine responds" in server.log)
        page = await http.get("/setup")
        assert page.status_code == 200
        assert "Preparing sandbox images: patchwright: no Docker engine responds" in page.text
