"""What a machine must keep for itself: no sandbox is started where less is left.

Without memory the kernel ends whatever it likes; without disk every run on the machine breaks at once.
"""

import os
from pathlib import Path

from runtime.errors import MachineFull

MEMORY = Path("/proc/meminfo")
_MIB = 1 << 20


def check(memory_mb: int, disk_mb: int, storage: Path) -> None:
    """Raises MachineFull where less than so many MiB of memory, or of disk at `storage`, are left.

    What this machine does not tell (it is no Linux, or the engine runs in a VM) is not held against it.
    """
    lacking = [
        f"{left:,} MiB of {what} are left, and {setting} keeps {kept:,}"
        for what, left, setting, kept in (
            ("memory", memory(), "`free_memory_mb`", memory_mb),
            ("disk", disk(storage), "`free_disk_mb`", disk_mb),
        )
        if left is not None and left < kept
    ]
    if lacking:
        raise MachineFull(
            f"this machine has no room for another sandbox: {', '.join(lacking)}; "
            "wait until runs have ended, run fewer at once, or make room"
        )


def memory() -> int | None:
    """MiB that programs could still be given, as the kernel reckons."""
    try:
        lines = MEMORY.read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found.split()[1]) // 1024


def disk(storage: Path) -> int | None:
    try:
        found = os.statvfs(storage)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize // _MIB
