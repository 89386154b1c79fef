"""Finds and kills processes through /proc (Linux)."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # prctl(2)
_SET_DUMPABLE = 4  # prctl(2)
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make this process the parent of all its descendants whose parents end. This setting survives exec, but
    children do not inherit it.
    """
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def read_limits() -> str:
    """Return the limits of this process, which also apply to its children. The result contains lines of the files
    `status` and `limits` in /proc.
    """
    text = Path("/proc/self/status").read_text() + Path("/proc/self/limits").read_text()
    prefixes = ("Uid:", "Cap", "NoNewPrivs:", "Seccomp:", "Max ")
    return "\n".join(line for line in text.splitlines() if line.startswith(prefixes))


def hide_memory() -> None:
    """Prevent other processes of the same user from tracing this process with ptrace and from reading its
    /proc/PID/{mem,environ,fd}.
    """
    _libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def child_pids(pid: int) -> set[int]:
    """Return the direct children of a process. The result is empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return {int(child) for child in file.read().split()}
    except ProcessLookupError:
        return set()
    except FileNotFoundError:  # The process is gone, or the kernel lacks CONFIG_PROC_CHILDREN.
        return {child for child, fields in _all_stats() if int(fields[1]) == pid}


def descendant_pids(pid: int, exclude: Iterable[int] = ()) -> list[int]:
    """Return all descendants, parents first. Leave out the processes in `exclude` and their descendants."""
    excluded, todo = set(exclude), [pid]
    found: list[int] = []
    while todo:
        children = child_pids(todo.pop()) - excluded
        found.extend(children)
        todo.extend(children)
    return found


def count_session_members(sid: int) -> int:
    """Count the processes of a session, including zombies. This is fast, because it does not read a file for
    each process.
    """
    count = 0
    for pid in _pids():
        with contextlib.suppress(OSError):
            count += os.getsid(pid) == sid
    return count


def find_stray_forks(leader: int) -> list[int]:
    """Find processes that a session's leader forked and that are no longer its children. A fork bomb leaves
    many of them.
    """
    wanted = _command_line(leader)
    return [
        pid
        for pid, fields in _all_stats()
        if int(fields[3]) == leader != int(fields[1]) and pid != leader and fields[0] != "Z"
        if _command_line(pid) == wanted
    ]


def session_pids(sid: int) -> list[int]:
    """Return the processes of a session, without zombies."""
    return [pid for pid, fields in _all_stats() if int(fields[3]) == sid and fields[0] != "Z"]


def find_by_environment(entry: str) -> list[int]:
    """Find the processes of this user that were started with this `NAME=value` in their environment."""
    found, wanted = [], os.fsencode(entry)
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, or None if there is no such process.

    The pid and the start time together identify a process.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def kill(pids: Iterable[int]) -> None:
    _send_signal(pids, signal.SIGKILL)


def kill_descendants(pid: int, exclude: Iterable[int] = ()) -> None:
    """Kill all descendants of a process, including those that are forked during this call. Do not kill the
    processes in `exclude` or their descendants.
    """
    _kill_all(lambda: [child for child in descendant_pids(pid, exclude) if start_time(child) is not None])


def kill_session(sid: int, exclude: Iterable[int] = ()) -> None:
    """Kill all processes of a session, including those that are forked during this call. Do not kill the
    processes in `exclude`.
    """
    excluded = set(exclude)
    _kill_all(lambda: [pid for pid in session_pids(sid) if pid not in excluded])


def _kill_all(find: Callable[[], list[int]]) -> None:
    if not (found := find()):
        return
    kill(found)
    # Some processes fork faster than they can be killed. They must be stopped first. One scan can miss a
    # child whose parent ends at that moment. So the loop ends only after three scans in a row found no new
    # process.
    stopped: set[int] = set()
    unchanged_scans = 0
    for _ in range(200):
        new = set(find()) - stopped
        unchanged_scans = 0 if new else unchanged_scans + 1
        if unchanged_scans == 3:
            break
        _send_signal(new, signal.SIGSTOP)
        stopped |= new
    kill(stopped)


def _send_signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _all_stats() -> Iterable[tuple[int, list[str]]]:
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            yield pid, fields


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat, starting with the third one: state, parent, group, session, ..."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
