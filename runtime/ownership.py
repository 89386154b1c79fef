"""Identifies the process that owns a container, and finds out whether that process is still alive."""

import os
import platform
from hashlib import sha256
from pathlib import Path

from patchwright.runtime import processes


def current_owner() -> str:
    """Return an id of this process that is unique among all machines. It consists of machine, boot,
    namespace, pid and start time.
    """
    pid = os.getpid()
    return f"{host_id()}.{_boot_id()}.{_pid_namespace()}.{pid}.{processes.start_time(pid)}"


def is_dead(owner: str) -> bool:
    """True if the process with this id has certainly ended.

    False if the process is alive, or if its state is unknown. The state is unknown if the process belongs to
    another machine or another pid namespace.
    """
    host, _, rest = owner.partition(".")
    boot, _, rest = rest.partition(".")
    namespace, _, process = rest.partition(".")
    pid, _, start = process.partition(".")
    if host != host_id() or not pid.isdigit():
        return False
    if boot != _boot_id():
        return True
    return namespace == _pid_namespace() and str(processes.start_time(int(pid))) != start


def is_alive(owner: str) -> bool:
    """True if the process with this id is certainly alive."""
    prefix = f"{host_id()}.{_boot_id()}.{_pid_namespace()}."
    return owner.startswith(prefix) and not is_dead(owner)


def host_id() -> str:
    """Return an id of this machine. The id stays the same after a reboot."""
    try:
        name = Path("/etc/machine-id").read_text().strip()
    except OSError:
        name = ""
    return sha256((name or platform.node()).encode()).hexdigest()[:12]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _pid_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)
