"""Isolation of the container, with the same attack on a weakened one as a control where possible."""

import asyncio
import base64
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import docker
import pytest

from patchwright.runtime.actions import Execute, RunShell
from patchwright.runtime.docker.build_context import RuntimeLayer
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.docker.sandbox_container import container_name
from patchwright.runtime.errors import EngineUnavailable, ImageUnavailable, SandboxLost
from patchwright.runtime.observations import ExecuteResult, ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

pytestmark = pytest.mark.docker
CANARY = "canary-3f9e52b1c7"
NAME = f"walls-{os.getpid()}"
Make = Callable[..., DockerSandboxes]


@pytest.fixture
async def sandbox(docker_sandboxes: Make) -> AsyncIterator[Sandbox]:
    async with docker_sandboxes(memory_mb=256, pids=64, cpus=0.5).open(NAME) as sandbox:
        yield sandbox


async def sh(sandbox: Sandbox, command: str, timeout: int = 30) -> str:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout))
    assert isinstance(ran, ShellResult)
    return ran.output


async def test_a_command_has_no_privileges(sandbox: Sandbox) -> None:
    status = await sh(sandbox, "grep -E '^(Uid|Cap...|NoNewPrivs|Seccomp):' /proc/self/status")
    fields = dict(line.split(":\t") for line in status.splitlines())
    assert {fields[name] for name in fields if name.startswith("Cap")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert set(fields["Uid"].split()) == {"10001"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs x /mnt",
        "unshare -m true",
        "chown root /workspace",
        "su -c true",
        "mknod /tmp/x b 8 0",
        "touch /etc/x",
    ],
)
async def test_privileged_operations_are_denied(sandbox: Sandbox, attempt: str) -> None:
    assert await sh(sandbox, f"{attempt} >/dev/null 2>&1 && echo done || echo refused") == "refused\n"


async def test_there_is_no_network(sandbox: Sandbox) -> None:
    assert await sh(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo\n"
    attack = "timeout 5 bash -c 'echo > /dev/tcp/{}/{}' 2>/dev/null && echo out || echo shut"
    for host, port in (("1.1.1.1", 443), ("172.17.0.1", 22), ("169.254.169.254", 80), ("deb.debian.org", 80)):
        assert await sh(sandbox, attack.format(host, port)) == "shut\n"


async def test_memory_is_limited_and_the_sandbox_survives_a_hog(sandbox: Sandbox) -> None:
    hog = "python3 -c 'print(len(bytearray({} << 20)))'; echo $?"
    assert await sh(sandbox, hog.format(400)) == "Killed\n137\n"
    assert await sh(sandbox, hog.format(100)) == f"{100 << 20}\n0\n"


@pytest.mark.slow
async def test_processes_are_limited_and_the_sandbox_survives_a_fork_bomb(sandbox: Sandbox) -> None:
    result = await sh(sandbox, "bomb() { bomb | bomb & }; bomb; sleep 3", timeout=5)
    assert "Resource temporarily unavailable" in result
    await sh(sandbox, "exec true")  # ends its shell, and with it the rest of the bomb
    assert await sh(sandbox, "echo alive") == "alive\n"
    left = await sandbox.act(Execute(argv=("bash", "-c", "ls -d /proc/[0-9]* | wc -l")))
    assert isinstance(left, ExecuteResult) and int(left.stdout) < 10


async def test_cpu_is_limited(sandbox: Sandbox, docker_sandboxes: Make) -> None:
    burn = (
        "python3 -c 'import time as t; a = t.perf_counter()\nwhile t.perf_counter() < a + 1: pass\n"
        "print(t.process_time() / (t.perf_counter() - a))'"
    )
    assert float(await sh(sandbox, burn)) < 0.65


async def test_the_sandbox_can_change_nothing_about_its_socket(sandbox: Sandbox) -> None:
    for attempt in ("touch /run/patchwright/x", "rm /run/patchwright/s", "ln -sf /x /run/patchwright/s"):
        assert "Read-only file system" in await sh(sandbox, attempt)


async def test_scratch_may_hold_programs_and_is_limited(sandbox: Sandbox) -> None:
    assert await sh(sandbox, "cp /bin/echo /tmp/e && /tmp/e runs") == "runs\n"
    assert "No space left" in await sh(sandbox, "head -c 200000000 /dev/zero > /tmp/full; rm /tmp/full")


# --- the socket attack ------------------------------------------------------------------------------------------


async def test_a_socket_replaced_by_a_link_does_not_mislead_the_host(
    sandbox: Sandbox, victim: "Victim"
) -> None:
    await sh(sandbox, f"cd /run/patchwright; rm -f s; ln -s {victim.path} s; mv s t; ln -s {victim.path} t")
    sandbox.disconnect()
    assert await sh(sandbox, "echo still here") == "still here\n"
    assert victim.visits == 0


async def test_the_same_attack_succeeds_where_the_container_owns_the_socket_and_the_host_dials(
    victim: "Victim", short_tmp: Path
) -> None:
    """Control of the case above: a sandbox whose container owns the socket."""
    place = short_tmp / "owned"
    place.mkdir()
    place.chmod(0o777)
    client = await asyncio.to_thread(docker.from_env)
    attack = f"ln -s {victim.path} /d/s"
    await asyncio.to_thread(
        client.containers.run,
        *("debian:bookworm-slim", ["sh", "-c", attack]),
        volumes={str(place): {"bind": "/d", "mode": "rw"}},
        user="10001",
        network_mode="none",
        remove=True,
        labels={"io.patchwright.test": "socket"},
    )
    client.close()
    _, writer = await asyncio.open_unix_connection(place / "s")
    await asyncio.sleep(0.1)
    writer.close()
    assert victim.visits == 1


class Victim:
    """A socket of the host that no sandbox may reach, such as the engine's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.visits = 0

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        writer.close()


@pytest.fixture
async def victim(short_tmp: Path) -> AsyncIterator[Victim]:
    victim = Victim(short_tmp / "engine.sock")
    server = await asyncio.start_unix_server(victim.visit, victim.path)
    yield victim
    server.close()


# --- secrets of the host ----------------------------------------------------------------------------------------

SPELLINGS = (
    CANARY,
    base64.b64encode(CANARY.encode()).decode(),
    CANARY.encode().hex(),
    CANARY[::-1],
)


async def found_in(sandbox: Sandbox) -> list[str]:
    """Return the places of the canary in the container: environments of processes, and files."""
    patterns = [word for spelling in SPELLINGS for word in ("-e", spelling)]
    script = (
        'grep -lsFz "$@" /proc/[0-9]*/environ; grep -rlsF "$@" / --exclude-dir=proc --exclude-dir=sys; true'
    )
    result = await sandbox.act(Execute(argv=("bash", "-c", script, "bash", *patterns)))
    assert isinstance(result, ExecuteResult) and result.exit_code == 0
    return result.stdout.decode().split()


@pytest.mark.slow
async def test_the_hosts_secrets_are_nowhere_in_the_container(
    docker_sandboxes: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "GITHUB_TOKEN",
        "PATCHWRIGHT_PRIVATE_KEY",
        "OPENAI_API_KEY",
        "HTTPS_PROXY",
        "GIT_CONFIG_VALUE_0",
    ):
        monkeypatch.setenv(name, CANARY)
    async with docker_sandboxes().open(NAME) as sandbox:
        await sh(sandbox, "sleep 60 &")
        assert await found_in(sandbox) == []
        engine = await Engine.connect()
        found = str(await engine.inspect(container_name(NAME)))
        assert NAME in found and CANARY not in found


@pytest.mark.slow
async def test_files_of_the_host_are_not_in_the_container(sandbox: Sandbox) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # Everybody could read it, also the user of the container.
        (Path(directory) / "host-file.txt").write_text(CANARY)
        assert await found_in(sandbox) == []


@pytest.mark.slow
async def test_a_planted_secret_is_found(sandbox: Sandbox) -> None:
    """Control of the case above."""
    await sh(sandbox, f"X={CANARY} sleep 60 & echo {CANARY} | base64 > ~/note; echo {CANARY[::-1]} > /tmp/f")
    found = await found_in(sandbox)
    assert any(path.startswith("/proc/") for path in found) and "/tmp/f" in found


# --- failures of the sandbox
# ------------------------------------------------------------------------------------


async def test_a_container_whose_server_is_killed_is_lost(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxLost, match="the container is exited"):
        await sandbox.act(RunShell(command="kill -9 $PPID"))


async def test_a_container_that_is_removed_is_lost(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.act(RunShell(command="sleep 30")))
    await asyncio.sleep(0.2)
    engine = await Engine.connect()
    await engine.remove(container_name(NAME))
    with pytest.raises(SandboxLost, match="the container was removed"):
        await running


async def test_an_engine_without_a_response_is_reported() -> None:
    with pytest.raises(EngineUnavailable, match=r"no Docker engine|refused"):
        async with DockerSandboxes(
            SandboxSpec(), BuildSettings(), engine=EngineAddress("unix:///nowhere.sock")
        ).open(NAME):
            pass


async def test_an_unavailable_base_image_is_named() -> None:
    with pytest.raises(
        ImageUnavailable, match=r"localhost:1/no/such:image is not available and cannot be pulled"
    ):
        async with DockerSandboxes(SandboxSpec(image="localhost:1/no/such:image"), BuildSettings()).open(
            NAME
        ):
            pass


@pytest.mark.slow
async def test_a_changed_path_is_found_among_many_files() -> None:
    fill = (
        "mkdir -p /many /ours/x /ours2 && cd /many && seq -f %0200.0f 8000 | xargs touch && touch /ours2/more && "
        "touch '/ours/x/a\"b\\c' && mkdir -p '/many/\"Path\":\"/none/x'"
    )
    engine = await Engine.connect()
    name = f"patchwright-test-changes-{os.getpid()}"
    made = await engine.create(
        name, image="debian:bookworm-slim", command=["sh", "-c", fill], labels={}, host={}
    )
    try:
        await engine.start(made)
        async with asyncio.timeout(60):
            while (state := (await engine.inspect(made) or {})["State"])["Running"]:
                await asyncio.sleep(0.1)
        assert state["ExitCode"] == 0
        assert await engine.find_changed_path(made, "/ours") == '/ours/x/a"b\\c'
        assert await engine.find_changed_path(made, "/none") is None
    finally:
        await engine.remove(made)
        await engine.close()


async def test_a_layer_is_built_once_and_has_both_names(docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes()
    engine, image = await sandboxes.prepare()
    received: list[str] = []
    again = docker_sandboxes(notice=received.append)
    assert ((await again.prepare())[1], received) == (image, [])
    # the most recent build has this tag
    generic = RuntimeLayer("debian:bookworm-slim", "", "").readable_tag
    assert await engine.find_image(generic) is not None
    await again.close()
    await sandboxes.close()


async def test_nothing_is_left_in_the_temporary_directory(docker_sandboxes: Make) -> None:
    def directories() -> set[str]:
        return {path.name for path in Path(tempfile.gettempdir()).glob(f"pw-*.{os.getpid()}.*")}

    async with docker_sandboxes().open(NAME):
        assert len(directories()) == 1
    assert directories() == set()
