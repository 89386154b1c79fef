"""What confines a container: the flags that it is created with, and the reading back of what became of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.docker.image import SCRATCH, UID
from runtime.docker.seccomp import profile
from runtime.sandbox import SandboxSpec

DOOR = "/run/patchwright"  # the directory of the sandbox's sockets, inside
OPEN_FILES = 16_384  # of one process; the engine's own default of a million makes some programs close each
# The server's standard error is open to any command; it must not fill the host's disk.
LOG = {"type": "json-file", "config": {"max-size": "1m", "max-file": "1"}}
SHARED_MB = 256  # MiB of /dev/shm at most; Chromium crashes with the engine's 64
_MIB = 1 << 20

# The root file system is not read-only. What an agent must write lies in it (work tree, home, the project's
# environment), and would have to be volumes or memory instead, which no engine measures or limits. The agent is
# not root and cannot become it, so file modes keep the rest; `disk_mb` limits what all of it together takes.


SETUP = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "SETGID": 6, "SETUID": 7}
"""Capabilities of a set-up, which runs as root, and their bits. Source: linux/capability.h"""


def host_config(spec: SandboxSpec, place: Path | None, *, root: bool = False) -> dict[str, Any]:
    """The engine's host configuration of a sandbox whose sockets lie in `place`. None: it has none to share.

    `root`: it is that of a set-up.
    """
    return {
        "network_mode": "none",
        "init": True,
        "cap_drop": ["ALL"],
        "cap_add": sorted(SETUP) if root else [],
        "security_opt": ["no-new-privileges", f"seccomp={profile()}"],
        "mem_limit": spec.memory_mb * _MIB,
        "memswap_limit": spec.memory_mb * _MIB,
        "pids_limit": spec.pids,
        "nano_cpus": int(spec.cpus * 1e9),
        "shm_size": _shared_mb(spec) * _MIB,
        "ulimits": _ulimits(spec),
        # Docker's own default is noexec, which breaks `go test` and many an installer.
        "tmpfs": {SCRATCH: f"rw,exec,nosuid,nodev,mode=1777,size={_scratch_mb(spec)}m"},
        # Read-only: the host listens in it, and nothing in the container can change what it finds.
        "binds": [] if place is None else [f"{place}:{DOOR}:ro"],
        "log_config": LOG,
    }


def dropped(found: Mapping[str, Any], spec: SandboxSpec, *, root: bool = False) -> list[str]:
    """The limits that the engine says nothing of any more, in `inspect` of a container."""
    host, memory = found["HostConfig"], spec.memory_mb * _MIB
    added = {each.removeprefix("CAP_") for each in host["CapAdd"] or ()}
    mounts = [mount for mount in found["Mounts"] if mount["Type"] == "bind"]
    holds = {
        "memory": host["Memory"] == memory,
        "memory and swap": host["MemorySwap"] == memory,
        "processes": host["PidsLimit"] == spec.pids,
        "cpu": host["NanoCpus"] == int(spec.cpus * 1e9),
        "shared memory": host["ShmSize"] == _shared_mb(spec) * _MIB,
        "network": host["NetworkMode"] == "none",
        "capabilities": host["CapDrop"] == ["ALL"]
        and added == (SETUP.keys() if root else set())
        and not host["Privileged"],
        "new privileges": "no-new-privileges" in (host["SecurityOpt"] or []),
        "system calls": f"seccomp={profile()}" in (host["SecurityOpt"] or []),
        "open files, core dumps and file size": all(
            each in (host["Ulimits"] or []) for each in _ulimits(spec)
        ),
        "mounts": all(mount["RW"] is False and mount["Destination"] == DOOR for mount in mounts),
        "user": found["Config"]["User"] == user(root=root),
    }
    return [limit for limit, held in holds.items() if not held]


def user(*, root: bool) -> str:
    """User and group of a sandbox's processes."""
    return "0:0" if root else f"{UID}:{UID}"


def ineffective(seen: str, spec: SandboxSpec, *, root: bool = False) -> list[str]:
    """The limits that the kernel does not hold a process to, in what its server has said of itself."""
    allowed = sum(1 << bit for bit in SETUP.values()) if root else 0
    said = {name: rest.split() for name, _, rest in (line.partition(":") for line in seen.splitlines())}
    holds = {
        "capabilities": all(
            int((said.get(each) or ["f" * 16])[0], 16) & ~allowed == 0
            for each in ("CapEff", "CapPrm", "CapInh", "CapBnd")
        ),
        "new privileges": said.get("NoNewPrivs") == ["1"],
        "system calls": said.get("Seccomp") == ["2"],
        "user": said.get("Uid") == [user(root=root).partition(":")[0]] * 4,
        "open files": f"Max open files {OPEN_FILES} {OPEN_FILES}" in _squeezed(seen),
        "core dumps": "Max core file size 0 0" in _squeezed(seen),
        "file size": f"Max file size {spec.disk_mb * _MIB} {spec.disk_mb * _MIB}" in _squeezed(seen),
    }
    return [limit for limit, held in holds.items() if not held]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _ulimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    limits = {"core": 0, "nofile": OPEN_FILES, "fsize": spec.disk_mb * _MIB}
    return [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in limits.items()]


def _scratch_mb(spec: SandboxSpec) -> int:
    return min(2048, spec.memory_mb // 2)  # it is memory, and counts as such


def _shared_mb(spec: SandboxSpec) -> int:
    return min(SHARED_MB, spec.memory_mb // 4)
