"""Engines that are remote, in a VM, used by another user, or stopped during a run."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import docker
import pytest

from patchwright.runtime.actions import Execute, RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.errors import EngineStopped, EngineUnavailable
from patchwright.runtime.observations import ExecuteResult, ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec
from tests.runtime.engine_relay import ENGINE, Relay

pytestmark = pytest.mark.docker
NAME = f"elsewhere-{os.getpid()}"
CHECKOUT = Path(__file__).parents[3]
BUNDLE = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
Make = Callable[..., DockerSandboxes]

# A process that opens a sandbox, and prints its transport and a command's output.
OPEN = f"""
import asyncio, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from pathlib import Path
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.sandbox import SandboxSpec

async def main():
    bundle = Path({str(BUNDLE)!r})
    build = BuildSettings(ca_bundle=bundle if bundle.exists() else None)
    sandboxes = DockerSandboxes(SandboxSpec(memory_mb=512), build)
    try:
        async with sandboxes.open({NAME!r}) as sandbox:
            print(sandboxes._transport, (await sandbox.act(RunShell(command="echo hi"))).output, end="")
    except SandboxError as error:
        print(type(error).__name__, error)
    finally:
        await sandboxes.close()

asyncio.run(main())
"""
READ = (
    f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); "
    "import pydantic, docker, patchwright.runtime.docker.docker_sandboxes"
)


async def printed(sandbox: Sandbox, command: str) -> str:
    ran = await sandbox.act(RunShell(command=command, timeout=20))
    assert isinstance(ran, ShellResult)
    return ran.output


def sandboxes_at(url: str, transport: Literal["auto", "exec"] = "auto") -> DockerSandboxes:
    build = BuildSettings(ca_bundle=BUNDLE if BUNDLE.exists() else None)
    return DockerSandboxes(SandboxSpec(memory_mb=512), build, engine=EngineAddress(url, transport))


async def test_exec_is_chosen_for_an_engine_over_tcp() -> None:
    async with Relay().at(None) as url:
        sandboxes = sandboxes_at(url)
        async with sandboxes.open(NAME) as sandbox:
            assert await printed(sandbox, "X=kept; echo hi") == "hi\n"
            assert await printed(sandbox, "echo $X; ls /run/patchwright 2>&1") == (
                "kept\nls: cannot access '/run/patchwright': No such file or directory\n"
            )
        assert sandboxes._transport == "exec"
        await sandboxes.close()


async def test_no_command_can_act_as_the_host(docker_sandboxes: Make) -> None:
    """The control is the sandbox itself: the same bytes from the engine's bridge are answered."""
    knock = (
        'python3 -c \'import socket; s = socket.socket(socket.AF_UNIX); s.connect("\\0patchwright"); '
        "print(s.recv(100))'"
    )
    sandboxes = docker_sandboxes(transport="exec")
    async with sandboxes.open(NAME) as sandbox:
        assert await printed(sandbox, knock) == "b''\n"
        assert await printed(sandbox, "echo hi") == "hi\n"
    await sandboxes.close()


async def test_the_bridge_has_no_privileges_either(docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes(transport="exec")
    async with sandboxes.open(NAME) as sandbox:
        look = (
            "for p in /proc/[0-9]*; do grep -qs bridge $p/cmdline && "
            "grep -E '^(CapEff|CapBnd|NoNewPrivs):' $p/status; done"
        )
        result = await sandbox.act(Execute(argv=("bash", "-c", look)))
        assert isinstance(result, ExecuteResult)
        facts = set(result.stdout.decode().replace("\t", "").split())
        assert {"CapEff:" + "0" * 16, "CapBnd:" + "0" * 16, "NoNewPrivs:1"} <= facts
    await sandboxes.close()


@pytest.mark.slow
async def test_exec_is_chosen_for_an_engine_without_shared_directories(
    short_tmp: Path,
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount namespace of our own, which stands for a VM, takes root and unshare")
    script = 'mount -t tmpfs none "$TMPDIR" && exec "$0" -c "$1"'
    result = await _run("unshare", "--mount", "sh", "-c", script, sys.executable, OPEN, TMPDIR=str(short_tmp))
    assert result == "socket transport unavailable, using exec\nexec hi\n"


@pytest.mark.slow
@pytest.mark.parametrize("member", [True, False])
async def test_an_operator_who_is_not_root(short_tmp: Path, member: bool) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("to become another user takes root and setpriv")
    short_tmp.chmod(0o777)
    groups = ("--groups", str(os.stat(ENGINE).st_gid)) if member else ("--clear-groups",)
    become = ("setpriv", "--reuid", "12345", "--regid", "12345", *groups)
    environment = {"TMPDIR": str(short_tmp), "PYTHONPATH": str(Path(docker.__file__).parents[1])}
    # The tests' interpreter may be in root's home; the system's can load the same packages.
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if await _run(*become, python, "-c", f"{READ}; print('yes')", **environment) == "yes\n":
            break
    else:
        pytest.skip("another user may not read this checkout, or no Python that can load its packages")
    result = await _run(*become, python, "-c", OPEN, **environment)
    if member:
        assert result == "socket hi\n"
    else:
        assert result.startswith("EngineUnavailable") and "give this user access" in result


@pytest.mark.slow
async def test_a_stopped_engine_is_a_retryable_error(short_tmp: Path) -> None:
    relay = Relay()
    async with relay.at(short_tmp / "engine.sock") as url:
        sandboxes = sandboxes_at(url, transport="exec")
        with pytest.raises(EngineStopped) as error:
            async with sandboxes.open(NAME) as sandbox:
                assert await printed(sandbox, "echo hi") == "hi\n"
                await relay.cut()
                await printed(sandbox, "echo never")
        assert error.value.retryable
    # the container was left to the reaper, or to a sandbox of the same name
    later = sandboxes_at(f"unix://{ENGINE}")
    async with later.open(NAME) as sandbox:
        assert await printed(sandbox, "echo again") == "again\n"
    await later.close()


@pytest.mark.slow
async def test_an_engine_behind_ssh_is_reached_with_the_users_own_keys(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    if os.geteuid() != 0 or sshd is None:
        pytest.skip("a server for ssh takes root and sshd: apt-get install openssh-server")
    async with _ssh_server(Path(sshd), short_tmp, monkeypatch) as url:
        sandboxes = sandboxes_at(url)
        async with sandboxes.open(NAME) as sandbox:
            assert await printed(sandbox, "echo hi") == "hi\n"
        assert sandboxes._transport == "exec"
        await sandboxes.close()
        with pytest.raises(EngineUnavailable, match="ssh cannot reach the engine"):
            async with sandboxes_at(url.replace("root@", "nobody@")).open(NAME):
                pass


@pytest.mark.parametrize(
    "url", ["ssh://-oProxyCommand=touch%20x/", "ssh://a:secret@b", "ssh://a b", "ssh://h:x"]
)
async def test_an_engine_url_that_ssh_would_misread_is_rejected(url: str) -> None:
    with pytest.raises(EngineUnavailable, match=r"engine's URL as|not a valid engine URL"):
        async with sandboxes_at(url).open(NAME):
            pass


async def test_an_engine_that_never_responded_is_an_operator_error() -> None:
    with pytest.raises(EngineUnavailable) as error:
        async with sandboxes_at("tcp://127.0.0.1:1").open(NAME):
            pass
    assert not error.value.retryable


@asynccontextmanager
async def _ssh_server(sshd: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Start an SSH server for this user on a free port with its own keys, and put a matching `ssh` on PATH."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    for name in ("host", "user"):
        assert await _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)) == ""
    known = f"[127.0.0.1]:{port} {(place / 'host.pub').read_text()}"
    (place / "known").write_text(known)
    (place / "allowed").write_text((place / "user.pub").read_text())
    ssh = place / "bin" / "ssh"
    ssh.parent.mkdir()
    options = f"-i {place}/user -o IdentitiesOnly=yes -o UserKnownHostsFile={place}/known"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)
    server = await asyncio.create_subprocess_exec(
        *(str(sshd), "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", str(place / "host")),
        *(
            "-o",
            f"AuthorizedKeysFile={place}/allowed",
            "-o",
            "StrictModes=no",
            "-o",
            "ListenAddress=127.0.0.1",
        ),
        *("-o", "PermitRootLogin=yes", "-o", "PidFile=none"),
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield f"ssh://root@127.0.0.1:{port}"
    finally:
        server.terminate()
        await server.wait()


async def _run(*argv: str, **environment: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, **environment},
        )
    except OSError as error:
        return str(error)
    out, _ = await asyncio.wait_for(process.communicate(), timeout=120)
    return out.decode()
