"""Kernel limits of a sandbox, with controls in deliberately weakened containers."""

import asyncio
import json
import os
import platform
import signal
import subprocess
from collections.abc import AsyncIterator, Callable

import docker
import pytest

from patchwright.runtime.actions import Execute, RunShell
from patchwright.runtime.docker import hardening, sandbox_container
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.sandbox_container import ContainerSpec
from patchwright.runtime.docker.seccomp import ALLOWED_CALLS, build_profile
from patchwright.runtime.errors import EngineUnavailable
from patchwright.runtime.observations import ExecuteResult, ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxSpec

NAME = f"isolation-{os.getpid()}"
Make = Callable[..., DockerSandboxes]

# Numbers of x86-64 and, where it differs, of arm64. Source: the kernel's syscall_64.tbl and asm-generic/unistd.h
PROBE = r"""
import ctypes, errno, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
intel = platform.machine() == "x86_64"
NUMBERS = {
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "userfaultfd": (323, 282),
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "ptrace": (101, 117), "process_vm_readv": (310, 270), "pidfd_getfd": (438, 438),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104), "init_module": (175, 105), "move_mount": (429, 429), "fsopen": (430, 430),
}
def call(name):
    ctypes.set_errno(0)
    number = NUMBERS[name][0 if intel else 1]
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_void_p(0)] * 6)
    return "ok" if done >= 0 else errno.errorcode[ctypes.get_errno()]
def family(number):
    try:
        socket.socket(number, socket.SOCK_SEQPACKET if number == 38 else socket.SOCK_STREAM).close()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]
import json
print(json.dumps({**{name: call(name) for name in NUMBERS}, "AF_ALG": family(38), "AF_VSOCK": family(40)}))
"""


@pytest.fixture
async def sandbox(docker_sandboxes: Make) -> AsyncIterator[Sandbox]:
    async with docker_sandboxes().open(NAME) as sandbox:
        yield sandbox


async def sh(sandbox: Sandbox, command: str, timeout: int = 60) -> ShellResult:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout))
    assert isinstance(ran, ShellResult)
    return ran


async def python(sandbox: Sandbox, code: str) -> str:
    result = await sandbox.act(Execute(argv=("python3", "-c", code)))
    assert isinstance(result, ExecuteResult) and result.exit_code == 0, result
    return result.stdout.decode()


# --- system calls -----------------------------------------------------------------------------------------------


@pytest.mark.docker
async def test_dangerous_system_calls_are_denied(sandbox: Sandbox) -> None:
    results = json.loads(await python(sandbox, PROBE))
    assert set(results.values()) == {"EPERM"}, results


@pytest.mark.docker
async def test_the_kernel_would_answer_them_without_the_profile() -> None:
    """Control of the case above: the same user and capabilities, without the profile."""
    results = json.loads(await unconfined("python3", "-c", PROBE))
    reached = {name for name, answer in results.items() if answer != "EPERM"}
    expected = {"keyctl", "userfaultfd", "ptrace", "process_vm_readv", "pidfd_getfd"}
    assert len(reached) >= 8 and len(expected & reached) >= 3, results


async def unconfined(*argv: str) -> str:
    """Return the output of a program in a container of the base image without our seccomp profile."""
    run = ["docker", "run", "--rm", "--label", "io.patchwright.test=isolation", "--network", "none"]
    flags = ["--cap-drop", "ALL", "--security-opt", "seccomp=unconfined", "--user", "10001"]
    ended = await asyncio.to_thread(
        subprocess.run, [*run, *flags, "debian:bookworm-slim", *argv], capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


@pytest.mark.docker
async def test_new_namespaces_are_denied_with_any_system_call(sandbox: Sandbox) -> None:
    clone = (
        "import ctypes, errno, os, platform\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "done = libc.syscall(56 if platform.machine() == 'x86_64' else 220, 0x10000000 | 17, 0, 0, 0, 0)\n"
        "if done == 0: os._exit(0)\nprint('ok' if done > 0 else errno.errorcode[ctypes.get_errno()])"
    )
    assert await python(sandbox, clone) == "EPERM\n"
    assert await unconfined("python3", "-c", clone) in (
        "ok\n",
        "ENOSPC\n",
    )  # the latter: the host forbids it, too


# getpid as a 32-bit program calls it: mov eax, 20; int 0x80; ret
OLD_WAY = (
    "import ctypes, mmap\ncode = mmap.mmap(-1, 4096, prot=7)\ncode.write(bytes.fromhex('b814000000cd80c3'))\n"
    "print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0)"
)


@pytest.mark.docker
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only there can a program call in two ways")
async def test_32_bit_calls_cannot_bypass_the_profile(sandbox: Sandbox) -> None:
    result = await sandbox.act(Execute(argv=("python3", "-c", OLD_WAY)))
    assert isinstance(result, ExecuteResult) and result.exit_code == 128 + signal.SIGSYS
    assert await unconfined("python3", "-c", OLD_WAY) == "True\n"


@pytest.mark.docker
async def test_ordinary_programs_do_not_notice(sandbox: Sandbox) -> None:
    work = """
import asyncio, concurrent.futures, multiprocessing, os, select, socket, subprocess, tempfile, threading
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(abs, range(100))) == 4950
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
if (pid := os.fork()) == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert subprocess.check_output(["sh", "-c", "echo x | cat"]) == b"x\\n"
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
socket.getaddrinfo("localhost", 80)
a, b = socket.socketpair()
epoll = select.epoll(); epoll.register(a)
with tempfile.TemporaryFile() as file:
    os.posix_fallocate(file.fileno(), 0, 4096)
    os.pwrite(file.fileno(), b"x", 1)
os.memfd_create("x"); os.eventfd(0); os.sched_getaffinity(0); os.getrandom(8)
asyncio.run(asyncio.sleep(0.01))
print("worked")
"""
    assert await python(sandbox, work) == "worked\n"
    git = "git init -q r && cd r && git config user.email a@b && git config user.name n && echo x > f"
    ran = await sh(
        sandbox, f"{git} && git add f && git commit -qm one && git gc -q && git log --oneline | wc -l"
    )
    assert (ran.exit_code, ran.output) == (0, "1\n")
    assert (
        await sh(sandbox, "setsid sh -c 'nice -n 5 timeout 5 ls -l /usr/bin' | sort | tail -n 1")
    ).exit_code == 0


def test_the_profile_allows_nothing_dangerous() -> None:
    named = {name for rule in json.loads(build_profile())["syscalls"] for name in rule["names"]}
    assert named >= ALLOWED_CALLS
    assert not named & {
        *(
            "bpf",
            "perf_event_open",
            "keyctl",
            "add_key",
            "request_key",
            "userfaultfd",
            "ptrace",
            "unshare",
            "setns",
        ),
        *(
            "io_uring_setup",
            "io_uring_enter",
            "io_uring_register",
            "mount",
            "umount2",
            "pivot_root",
            "reboot",
        ),
        *("process_vm_readv", "process_vm_writev", "pidfd_getfd", "kexec_load", "init_module", "socketcall"),
    }


# --- limits -----------------------------------------------------------------------------------------------------

LIMITS = {"core": 0, "nofile": hardening.MAX_OPEN_FILES}


@pytest.mark.docker
async def test_limits_hold_for_every_command(sandbox: Sandbox) -> None:
    ran = await sh(sandbox, "ulimit -c; ulimit -n; df -m --output=size /dev/shm | tail -n 1")
    assert ran.output.split() == ["0", str(hardening.MAX_OPEN_FILES), "128"]


@pytest.mark.docker
async def test_one_file_is_never_larger_than_the_disk_limit(docker_sandboxes: Make) -> None:
    async with docker_sandboxes(disk_mb=20).open(NAME) as sandbox:
        ran = await sh(sandbox, "head -c 30000000 /dev/zero > /workspace/large; stat -c %s /workspace/large")
        assert ran.output.split()[-1] == str(20 << 20)


def test_a_limit_that_the_engine_dropped_is_named() -> None:
    spec = SandboxSpec(memory_mb=512)
    config = hardening.host_config(spec, None)
    host = {
        "Memory": config["mem_limit"],
        "MemorySwap": config["memswap_limit"],
        "PidsLimit": config["pids_limit"],
        "NanoCpus": config["nano_cpus"],
        "ShmSize": config["shm_size"],
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "CapAdd": None,
        "Privileged": False,
        "SecurityOpt": config["security_opt"],
        "Ulimits": config["ulimits"],
    }
    found = {"HostConfig": host, "Mounts": [], "Config": {"User": "10001:10001"}}
    assert hardening.find_dropped_limits(found, spec) == []
    weak = {
        "memory": {"Memory": 0},
        "memory and swap": {"MemorySwap": -1},
        "processes": {"PidsLimit": None},
        "cpu": {"NanoCpus": 0},
        "shared memory": {"ShmSize": 1},
        "network": {"NetworkMode": "bridge"},
        "capabilities": {"CapAdd": ["NET_RAW"]},
        "new privileges": {"SecurityOpt": config["security_opt"][1:]},
        "system calls": {"SecurityOpt": config["security_opt"][:1]},
        "open files, core dumps and file size": {"Ulimits": None},
    }
    for limit, change in weak.items():
        assert hardening.find_dropped_limits({**found, "HostConfig": {**host, **change}}, spec) == [limit]
    writable = {"Type": "bind", "Destination": hardening.SOCKET_MOUNT, "RW": True}
    assert hardening.find_dropped_limits({**found, "Mounts": [writable]}, spec) == ["mounts"]


def test_a_limit_that_the_kernel_does_not_enforce_is_named() -> None:
    spec = SandboxSpec(disk_mb=1024)
    status = (
        "Uid:\t10001\t10001\t10001\t10001\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n"
        f"Max file size             {1 << 30}           {1 << 30}           bytes\n"
        "Max core file size        0                    0                    bytes\n"
        "Max open files            16384                16384                files\n"
    )
    assert hardening.find_ineffective_limits(status, spec) == []
    for limit, text, instead in (
        ("capabilities", "CapEff:\t0", "CapEff:\t20"),
        ("new privileges", "NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ("system calls", "Seccomp:\t2", "Seccomp:\t0"),
        ("user", "10001\t10001\t10001\t10001", "0\t0\t0\t0"),
        ("file size", str(1 << 30), "unlimited"),
    ):
        assert hardening.find_ineffective_limits(status.replace(text, instead), spec) == [limit]
    # a server that reports nothing is no proof
    assert len(hardening.find_ineffective_limits("", spec)) == 7


@pytest.mark.docker
async def test_a_container_without_isolation_is_rejected_with_the_missing_limits() -> None:
    """Control of every sandbox that starts: the checks on a real container without our isolation."""
    client = docker.from_env()
    container = client.containers.create(
        "debian:bookworm-slim", ["true"], labels={"io.patchwright.test": "walls"}
    )
    engine = await Engine.connect()
    try:
        with pytest.raises(EngineUnavailable) as error:
            await sandbox_container._check_engine_limits(
                engine, ContainerSpec(SandboxSpec(), "", None, "socket"), str(container.id)
            )
    finally:
        await engine.close()
        container.remove(force=True)
        client.close()
    named, _, advice = str(error.value).partition("; ")
    assert named == (
        "the Docker engine does not enforce these limits: memory, memory and swap, processes, cpu, "
        "shared memory, network, capabilities, new privileges, system calls, "
        "open files, core dumps and file size, user"
    )
    assert advice == "a rootless engine needs cgroup v2 with delegated controllers"
