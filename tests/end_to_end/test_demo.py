"""The demo command of the README, from the checkout and from the wheel."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.runtime import VERSION
from tests.preloaded_command import preloaded_command

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.redis


async def run_demo(*command: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
    home = {"HOME": str(cwd), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=home | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(280):
        out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


def assert_demo_output(out: str) -> None:
    assert "Pull request #2 (ready): Fix: show() writes" in out
    fixed = "**Fixed:** 3 new tests fail without this change and pass with it, and no test broke."
    assert fixed in " ".join(out.split())  # lines are wrapped to the width of the terminal
    assert "+    rest = round(seconds)" in out
    assert "  passed          20      24" in out
    assert "  new tests: 3 failed, 1 passed before; now 4 passed" in out
    assert "tokens would have cost $0.02" in out
    assert "events.jsonl" in out


async def test_the_demo_opens_a_tested_pull_request_in_the_local_sandbox(short_tmp: Path) -> None:
    code, out, error = await run_demo(*preloaded_command(), "demo", "--sandbox", "local", cwd=short_tmp)
    assert code == 0, out + error
    assert_demo_output(out)
    steps = [line for line in out.splitlines() if "s    " in line and ". " in line]
    assert len(steps) >= 8


@pytest.mark.slow
@pytest.mark.docker
async def test_the_demo_opens_a_tested_pull_request_in_docker(
    short_tmp: Path, image_build_environment: dict[str, str]
) -> None:
    command = (*preloaded_command(), "demo", "--json", "--sandbox", "docker")
    code, out, error = await run_demo(*command, cwd=short_tmp, **image_build_environment)
    assert code == 0, out + error
    result = json.loads(out)
    assert (result["outcome"], result["verdict"], result["draft"]) == ("published", "fixed", False)
    stated = re.findall(r"would cost less than \$(\d+\.\d+)", (ROOT / "README.md").read_text())
    assert float(stated[0]) - 0.01 < float(result["cost_usd"]) < float(stated[0])


@pytest.mark.slow
async def test_without_an_engine_the_demo_prints_a_notice_and_continues(short_tmp: Path) -> None:
    command = (*preloaded_command(), "demo")
    code, out, error = await run_demo(*command, cwd=short_tmp, DOCKER_HOST="unix:///nowhere/docker.sock")
    assert code == 0, out + error
    (notice,) = [line for line in out.splitlines() if line.startswith("NOTICE: ")]
    assert "local sandbox" in notice
    assert_demo_output(out)


@pytest.mark.slow
@pytest.mark.internet("pip installs the wheel with its dependencies")
async def test_the_wheel_runs_the_demo_in_an_empty_environment(short_tmp: Path) -> None:
    python = short_tmp / "empty" / "bin" / "python"
    wheel = short_tmp / f"patchwright-{VERSION}-py3-none-any.whl"
    commands: tuple[tuple[str, ...], ...] = (
        (sys.executable, "-m", "venv", str(short_tmp / "empty")),
        (str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(short_tmp), str(ROOT)),
        (str(python), "-m", "pip", "install", "--quiet", "--no-compile", str(wheel)),
    )
    for command in commands:
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=280)
    patchwright = str(short_tmp / "empty" / "bin" / "patchwright")
    code, out, error = await run_demo(patchwright, "demo", "--sandbox", "local", cwd=short_tmp)
    assert code == 0, out + error
    assert_demo_output(out)
