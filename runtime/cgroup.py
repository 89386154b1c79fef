"""What the kernel's control group says about the container that this process runs in."""

import os
import re

_COUNTERS = (
    "/sys/fs/cgroup/memory.events",  # cgroup v2
    "/sys/fs/cgroup/memory/memory.oom_control",  # cgroup v1, Linux 4.13 and later
)
_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class OomKills:
    """Counts the processes that were killed because the memory limit was reached; 0 where that is not counted.

    An exit code of 137 says no more than SIGKILL, which anybody sends.
    """

    def __init__(self) -> None:
        self._file = next(filter(None, map(_open, _COUNTERS)), None)  # kept open: a look takes 5 us, not 60

    def __call__(self) -> int:
        if self._file is None:
            return 0
        found = _KILLS.search(os.pread(self._file, 4096, 0))
        return int(found[1]) if found else 0


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
