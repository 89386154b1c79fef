import asyncio
import os
from pathlib import Path

import pytest

from patchwright.runtime import ownership, processes
from patchwright.runtime.actions import Execute, RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.features import ALL_FEATURES, SandboxFeatures
from patchwright.runtime.observations import ExecuteResult, ShellResult
from tests.runtime.waiting import gone

CANARY = "canary-7c1f"


@pytest.mark.parametrize("action", [RunShell(command="env"), Execute(argv=("env",))])
async def test_a_command_sees_nothing_of_the_hosts_environment(tmp_path: Path, action) -> None:
    host = {
        **os.environ,
        "GITHUB_TOKEN": CANARY,
        "GIT_CONFIG_COUNT": "1",
        "BASH_ENV": CANARY,
        "LD_PRELOAD": CANARY,
    }
    async with LocalSandboxes(tmp_path, host).open("run") as sandbox:
        result = await sandbox.act(action)
    assert CANARY not in str(result)


async def test_a_secret_in_the_allowed_part_is_found(tmp_path: Path) -> None:
    """Control of the case above: the canary is visible."""
    host = {**os.environ, "TZ": CANARY}
    async with LocalSandboxes(tmp_path, host).open("run") as sandbox:
        assert CANARY in str(await sandbox.act(RunShell(command="env")))


async def test_nothing_is_left_of_a_sandbox(tmp_path: Path) -> None:
    async with LocalSandboxes(tmp_path, os.environ).open("run") as sandbox:
        home = Path(sandbox.root).parent / "home"
        await sandbox.act(
            RunShell(command="sleep 81 & setsid -f sleep 82; mkdir -p d/e; touch d/e/f; chmod 500 d d/e")
        )
        await sandbox.act(RunShell(command="setsid -f sleep 83; exit"))
        await sandbox.act(Execute(argv=("setsid", "-f", "sleep", "84")))
        assert processes.find_by_environment(f"HOME={home}") != []
    await gone(f"HOME={home}")
    assert list(tmp_path.iterdir()) == []


async def test_a_canceled_command_leaves_no_process_and_a_usable_sandbox(tmp_path: Path) -> None:
    async with LocalSandboxes(tmp_path, os.environ).open("run") as sandbox:
        for action in (RunShell(command="sleep 85"), Execute(argv=("sleep", "86"))):
            running = asyncio.create_task(sandbox.act(action))
            await asyncio.sleep(0.3)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        home = Path(sandbox.root).parent / "home"
        await gone(f"HOME={home}")
        ran = await sandbox.act(RunShell(command="echo again"))
        assert isinstance(ran, ShellResult) and ran.output == "again\n"


async def test_containers_of_a_killed_owner_are_removed_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "sandbox-left"
    (left / "home").mkdir(parents=True)
    *rest, start = ownership.current_owner().split(".")
    (left / "owner").write_text(".".join([*rest, str(int(start) - 1)]))
    process = await asyncio.create_subprocess_exec("sleep", "87", env={"HOME": str(left / "home")})
    sandboxes = LocalSandboxes(tmp_path, os.environ)
    async with sandboxes.open("one"), sandboxes.open("two"):
        assert not left.exists()
        assert len(list(tmp_path.iterdir())) == 2
    assert await asyncio.wait_for(process.wait(), timeout=5) == -9


async def test_each_sandbox_has_its_own_tree(tmp_path: Path) -> None:
    sandboxes = LocalSandboxes(tmp_path, os.environ)
    async with sandboxes.open("same") as first, sandboxes.open("same") as second:
        await first.act(RunShell(command="echo 1 > f"))
        result = await second.act(Execute(argv=("ls", "-A")))
    assert isinstance(result, ExecuteResult) and result.stdout == b""


async def test_the_operators_certificates_and_index_reach_its_commands(tmp_path: Path) -> None:
    show = RunShell(command="echo $SSL_CERT_FILE $GIT_SSL_CAINFO $PIP_INDEX_URL")
    host = {"PATH": os.environ["PATH"], "SSL_CERT_FILE": "/other"}
    index = "https://index.test/simple"
    async with LocalSandboxes(tmp_path, host, Path("/ca.pem"), index).open("run") as sandbox:
        result = await sandbox.act(show)
    assert isinstance(result, ShellResult) and result.output == f"/ca.pem /ca.pem {index}\n"


async def test_a_package_index_with_a_password_is_withheld(tmp_path: Path) -> None:
    index = f"https://user:{CANARY}@index.test/simple"
    async with LocalSandboxes(tmp_path, os.environ, package_index=index).open("run") as sandbox:
        assert CANARY not in str(await sandbox.act(RunShell(command="env")))


def test_it_has_the_requested_and_installed_features(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    host = {"PATH": str(path)}
    assert "browser" not in LocalSandboxes(tmp_path, host, features=ALL_FEATURES).features
    (path / "chromium").write_text("#!/bin/sh\n")
    (path / "chromium").chmod(0o755)
    installed = tuple(plugin for plugin in ALL_FEATURES if SandboxFeatures().has(plugin))
    assert LocalSandboxes(tmp_path, host, features=ALL_FEATURES).features == installed
    assert LocalSandboxes(tmp_path, host, features=()).features == ()


async def test_a_shell_is_replaced_even_if_its_work_tree_was_removed(
    tmp_path: Path,
) -> None:
    async with LocalSandboxes(tmp_path, os.environ).open("gone") as sandbox:
        await sandbox.act(RunShell(command='rm -r "$PWD"; exit 1'))
        ran = await sandbox.act(RunShell(command="pwd; ls -A"))
        assert isinstance(ran, ShellResult) and (ran.exit_code, ran.output) == (0, f"{sandbox.root}\n")
