"""Checks that the machine has enough memory and disk for another sandbox.

If memory runs out, the kernel kills arbitrary processes. If the disk is full, all runs on the machine fail.
"""

import os
from pathlib import Path

from patchwright.runtime.errors import InsufficientResources

MEMINFO = Path("/proc/meminfo")
MIN_FREE_MEMORY_MB = 512
MIN_FREE_DISK_MB = 1024
_MIB = 1 << 20


def check_capacity(docker_root: Path) -> None:
    """Raise InsufficientResources if the machine has too little memory, or the disk of `docker_root` too little space,
    for another sandbox.

    A value that cannot be measured is not checked. This is the case on systems other than Linux, and for an engine in
    a VM.
    """
    shortages = [
        f"only {free:,} MiB of {resource} are free, but {required:,} are necessary"
        for resource, free, required in (
            ("memory", available_memory_mb(), MIN_FREE_MEMORY_MB),
            ("disk", available_disk_mb(docker_root), MIN_FREE_DISK_MB),
        )
        if free is not None and free < required
    ]
    if shortages:
        raise InsufficientResources(
            f"this machine has no room for another sandbox: {', '.join(shortages)}; "
            "wait until other runs end, run fewer jobs at the same time, or free memory or disk space"
        )


def available_memory_mb() -> int | None:
    """Return the available memory in MiB, as estimated by the kernel, or None if it is unknown."""
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    line = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return None if line is None else int(line.split()[1]) // 1024


def available_disk_mb(docker_root: Path) -> int | None:
    try:
        status = os.statvfs(docker_root)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize // _MIB
