"""Who owns a container, and whether that process still lives."""

import os
import platform
from hashlib import sha256
from pathlib import Path

from runtime import processes


def owner() -> str:
    """This process, in a form that no other process on any machine has: machine, boot, namespace, pid, start."""
    pid = os.getpid()
    return f"{machine()}.{_boot()}.{_namespace()}.{pid}.{processes.started(pid)}"


def is_dead(owner: str) -> bool:
    """Whether the process that called itself so has surely ended.

    False also when that cannot be known from here: another machine, or another namespace of pids.
    """
    where, _, rest = owner.partition(".")
    boot, _, rest = rest.partition(".")
    namespace, _, process = rest.partition(".")
    pid, _, start = process.partition(".")
    if where != machine() or not pid.isdigit():
        return False
    if boot != _boot():
        return True
    return namespace == _namespace() and str(processes.started(int(pid))) != start


def is_alive(owner: str) -> bool:
    """Whether the process that called itself so surely lives."""
    here = f"{machine()}.{_boot()}.{_namespace()}."
    return owner.startswith(here) and not is_dead(owner)


def machine() -> str:
    """This machine, the same after each of its starts."""
    try:
        name = Path("/etc/machine-id").read_text().strip()
    except OSError:
        name = ""
    return sha256((name or platform.node()).encode()).hexdigest()[:12]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)
