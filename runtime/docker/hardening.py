"""Isolates containers: provides the options for creating them, and checks that the options took effect."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchwright.runtime.docker.build_context import SANDBOX_UID, SCRATCH_DIR
from patchwright.runtime.docker.seccomp import build_profile
from patchwright.runtime.sandbox import SandboxSpec

SOCKET_MOUNT = "/run/patchwright"  # the directory in the container that contains the sandbox's sockets
MAX_OPEN_FILES = (
    16_384  # per process; the engine's default is a million, and some programs take long to close that many
)
# Any command can write to the server's standard error. The engine's log of it must not fill the host's disk.
LOG_CONFIG = {"type": "json-file", "config": {"max-size": "1m", "max-file": "1"}}
MAX_SHM_MB = 256  # maximum MiB of /dev/shm; Chromium crashes with the engine's default of 64
_MIB = 1 << 20

# The root file system is not read-only. The agent must write to parts of it: the work tree, the home
# directory and the project's environment. If it were read-only, these parts would have to be volumes or
# memory, and engines neither measure nor limit these. The agent is not root and cannot become root, so file
# modes protect the other parts. `disk_mb` limits the total size.


SETUP_CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "SETGID": 6, "SETUID": 7}
"""The Linux capabilities of a container in which a repository's setup runs as root. The values are the bit numbers
of the capabilities. Source: linux/capability.h
"""


def host_config(spec: SandboxSpec, socket_dir: Path | None, *, as_root: bool = False) -> dict[str, Any]:
    """Return the options with which Docker creates a sandbox's container.

    `socket_dir` is shared with the container. If it is None, no directory is shared. If `as_root` is True,
    the options include the capabilities that the setup of a repository needs.
    """
    return {
        "network_mode": "none",
        "init": True,
        "cap_drop": ["ALL"],
        "cap_add": sorted(SETUP_CAPABILITIES) if as_root else [],
        "security_opt": ["no-new-privileges", f"seccomp={build_profile()}"],
        "mem_limit": spec.memory_mb * _MIB,
        "memswap_limit": spec.memory_mb * _MIB,
        "pids_limit": spec.pids,
        "nano_cpus": int(spec.cpus * 1e9),
        "shm_size": _shm_mb(spec) * _MIB,
        "ulimits": _ulimits(spec),
        # Docker's default is noexec, which does not work with `go test` and many installers.
        "tmpfs": {SCRATCH_DIR: f"rw,exec,nosuid,nodev,mode=1777,size={_scratch_mb(spec)}m"},
        # The directory is read-only in the container: the host creates the sockets, and nothing in the
        # container can replace them.
        "binds": [] if socket_dir is None else [f"{socket_dir}:{SOCKET_MOUNT}:ro"],
        "log_config": LOG_CONFIG,
    }


def find_dropped_limits(
    inspected: Mapping[str, Any], spec: SandboxSpec, *, as_root: bool = False
) -> list[str]:
    """Return the limits that the engine has not applied to a container, according to its `inspect`
    response.
    """
    host, memory = inspected["HostConfig"], spec.memory_mb * _MIB
    capabilities = {each.removeprefix("CAP_") for each in host["CapAdd"] or ()}
    mounts = [mount for mount in inspected["Mounts"] if mount["Type"] == "bind"]
    checks = {
        "memory": host["Memory"] == memory,
        "memory and swap": host["MemorySwap"] == memory,
        "processes": host["PidsLimit"] == spec.pids,
        "cpu": host["NanoCpus"] == int(spec.cpus * 1e9),
        "shared memory": host["ShmSize"] == _shm_mb(spec) * _MIB,
        "network": host["NetworkMode"] == "none",
        "capabilities": host["CapDrop"] == ["ALL"]
        and capabilities == (SETUP_CAPABILITIES.keys() if as_root else set())
        and not host["Privileged"],
        "new privileges": "no-new-privileges" in (host["SecurityOpt"] or []),
        "system calls": f"seccomp={build_profile()}" in (host["SecurityOpt"] or []),
        "open files, core dumps and file size": all(
            each in (host["Ulimits"] or []) for each in _ulimits(spec)
        ),
        "mounts": all(mount["RW"] is False and mount["Destination"] == SOCKET_MOUNT for mount in mounts),
        "user": inspected["Config"]["User"] == container_user(as_root=as_root),
    }
    return [limit for limit, is_enforced in checks.items() if not is_enforced]


def container_user(*, as_root: bool) -> str:
    """Return the user and the group of the processes in a sandbox."""
    return "0:0" if as_root else f"{SANDBOX_UID}:{SANDBOX_UID}"


def find_ineffective_limits(reported: str, spec: SandboxSpec, *, as_root: bool = False) -> list[str]:
    """Return the limits that the kernel does not enforce, according to the report of the server in the
    container.
    """
    allowed = sum(1 << bit for bit in SETUP_CAPABILITIES.values()) if as_root else 0
    status = {name: rest.split() for name, _, rest in (line.partition(":") for line in reported.splitlines())}
    checks = {
        "capabilities": all(
            int((status.get(each) or ["f" * 16])[0], 16) & ~allowed == 0
            for each in ("CapEff", "CapPrm", "CapInh", "CapBnd")
        ),
        "new privileges": status.get("NoNewPrivs") == ["1"],
        "system calls": status.get("Seccomp") == ["2"],
        "user": status.get("Uid") == [container_user(as_root=as_root).partition(":")[0]] * 4,
        "open files": f"Max open files {MAX_OPEN_FILES} {MAX_OPEN_FILES}" in _collapse_spaces(reported),
        "core dumps": "Max core file size 0 0" in _collapse_spaces(reported),
        "file size": f"Max file size {spec.disk_mb * _MIB} {spec.disk_mb * _MIB}"
        in _collapse_spaces(reported),
    }
    return [limit for limit, is_enforced in checks.items() if not is_enforced]


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def _ulimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    limits = {"core": 0, "nofile": MAX_OPEN_FILES, "fsize": spec.disk_mb * _MIB}
    return [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in limits.items()]


def _scratch_mb(spec: SandboxSpec) -> int:
    return min(2048, spec.memory_mb // 2)  # the scratch directory counts as memory


def _shm_mb(spec: SandboxSpec) -> int:
    return min(MAX_SHM_MB, spec.memory_mb // 4)
