"""The runtime layer on several base images: with an old Python, without Python, with Node.js, with another libc,
almost empty.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.runtime.actions import CreateFile, Execute, RunShell
from patchwright.runtime.docker.build_context import PYTHON, Bundle, RuntimeLayer
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.observations import EditResult, ExecuteResult, ShellResult
from patchwright.runtime.sandbox import Sandbox
from tests.runtime.base_images import base_image
from tests.runtime.conftest import CA_BUNDLE

pytestmark = [pytest.mark.docker, pytest.mark.slow]
ALL = ("bookworm", "trixie", "bullseye", "bare", "node", "musl")
PYTHONS = {"bookworm": "Python 3.11", "trixie": "Python 3.13", "bullseye": "Python 3.9"}
Make = Callable[..., DockerSandboxes]


async def sh(sandbox: Sandbox, command: str) -> tuple[int | None, str]:
    ran = await sandbox.act(RunShell(command=command, timeout=60))
    assert isinstance(ran, ShellResult)
    return ran.exit_code, ran.output


@pytest.mark.parametrize("base", ALL)
async def test_a_sandbox_works_on_any_base_image(base: str, docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes(image=base_image(base))
    async with sandboxes.open(f"base-{base}-{os.getpid()}") as sandbox:
        assert await sh(sandbox, "echo it works") == (0, "it works\n")
        assert (await sh(sandbox, "node --eval 'console.log(1)'") == (0, "1\n")) == (base == "node")
        assert await sh(sandbox, "cd /tmp; X=1") == (0, "")
        assert await sh(sandbox, "echo $PWD $X; id -u") == (0, "/tmp 1\n10001\n")
        made = await sandbox.act(
            CreateFile(path="runtime/execution/action_server.py", content="raise SystemExit(1)\n")
        )
        assert isinstance(made, EditResult)
        result = await sandbox.act(Execute(argv=("sh", "-c", "id -un; echo ~"), cwd="/"))
        assert isinstance(result, ExecuteResult) and result.stdout == b"agent\n/home/agent\n"

        commit = "cd /workspace && git init -q . && git add -A && git -c user.name=x -c user.email=x@x commit -qm x"
        assert await sh(sandbox, f"{commit} && git log --format=%s && git status --short") == (0, "x\n")
        assert await sh(sandbox, "grep -c BEGIN /opt/patchwright/ca.crt >/dev/null; echo $?") == (0, "0\n")
    await sandboxes.close()


@pytest.mark.parametrize("base", PYTHONS)
async def test_the_repositorys_tests_run_on_the_python_of_its_base(base: str, docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes(image=base_image(base))
    async with sandboxes.open(f"pytest-{base}-{os.getpid()}") as sandbox:
        code, version = await sh(sandbox, "python3 --version")
        assert (code, version.rpartition(".")[0]) == (0, PYTHONS[base])
        await sandbox.act(CreateFile(path="test_it.py", content="def test_it():\n    assert True\n"))
        for command in ("python3 -m pytest -q", "pytest -q"):
            code, result = await sh(sandbox, command)
            assert code == 0 and "1 passed" in result
        assert (await sh(sandbox, "pip --version && python3 -m pip list"))[0] == 0
    await sandboxes.close()


@pytest.mark.parametrize("base", ["bare", "musl"])
async def test_our_interpreter_is_not_offered_where_the_base_has_none(
    base: str, docker_sandboxes: Make
) -> None:
    sandboxes = docker_sandboxes(image=base_image(base))
    async with sandboxes.open(f"none-{base}-{os.getpid()}") as sandbox:
        assert (await sh(sandbox, "command -v python3"))[0] != 0
    await sandboxes.close()


async def test_the_bundle_can_come_from_another_image_that_has_a_python(docker_sandboxes: Make) -> None:
    """If debian:bookworm-slim is unavailable: built from trixie, used on an image without Python and glibc."""
    trusted = CA_BUNDLE.read_bytes() if CA_BUNDLE.exists() else None
    engine = await Engine.connect()
    source, musl = await engine.find_image(base_image("trixie")), await engine.find_image(base_image("musl"))
    assert source and musl
    index = os.environ.get("PATCHWRIGHT_PACKAGE_INDEX")
    bundle = Bundle(base_image("trixie"), source.id, trusted, index)
    await engine.build(bundle.description, bundle.files(), bundle.tags, network=True)
    layer = RuntimeLayer(base_image("musl"), musl.id, bundle.tags[0])
    await engine.build(layer.description, layer.files(), (layer.content_tag,))
    show = (PYTHON, "-I", "-c", "import sys, pydantic, asyncio; print(sys.version_info[:2])")
    ran = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", layer.content_tag, *show],
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, b"(3, 13)\n"), ran.stderr
    for image in (layer.content_tag, *bundle.tags):
        await engine.remove_image(image)
    await engine.close()


@pytest.mark.parametrize(
    ("base", "why"), [("bullseye", "has Python 3.9"), ("musl", "no apt-get in this image")]
)
async def test_an_image_unfit_for_the_bundle_is_explained(base: str, why: str, tmp_path: Path) -> None:
    engine = await Engine.connect()
    image = await engine.find_image(base_image(base))
    assert image is not None
    bundle = Bundle(base_image(base), image.id)
    with pytest.raises(
        ImageUnavailable, match=f"{why}.* To fix it, use a base image that has Python 3.11"
    ) as refused:
        await engine.build(bundle.description, bundle.files(), bundle.tags, network=True, log_dir=tmp_path)
    assert "\n" not in str(refused.value)
    await engine.close()


async def test_only_musl_is_there_and_its_programs_run_beside_ours(docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes(image=base_image("musl"))
    async with sandboxes.open(f"musl-{os.getpid()}") as sandbox:
        assert await sh(sandbox, "ls /lib*/ld-linux* 2>/dev/null | wc -l; ls /lib/ld-musl* | wc -l") == (
            0,
            "0\n1\n",
        )
        assert await sh(sandbox, "bash -c 'echo $BASH_VERSION' | cut -c1; busybox echo hi") == (0, "5\nhi\n")
    await sandboxes.close()
