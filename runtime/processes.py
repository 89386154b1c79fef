"""Finding and killing processes by what /proc says about them (Linux)."""

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
    """Make this process the parent of all orphans among its descendants; survives exec, is not inherited."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def limits() -> str:
    """What the kernel holds this process to, and with it all that it starts: lines of its own status and limits."""
    said = Path("/proc/self/status").read_text() + Path("/proc/self/limits").read_text()
    telling = ("Uid:", "Cap", "NoNewPrivs:", "Seccomp:", "Max ")
    return "\n".join(line for line in said.splitlines() if line.startswith(telling))


def hide_memory() -> None:
    """Keep other processes of the same user out of our /proc/PID/{mem,environ,fd} and away with ptrace."""
    _libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def children(pid: int) -> set[int]:
    """Direct children. Empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return {int(child) for child in file.read().split()}
    except ProcessLookupError:
        return set()
    except FileNotFoundError:  # gone, or a kernel without CONFIG_PROC_CHILDREN
        return {child for child, fields in _stats() if int(fields[1]) == pid}


def descendants(pid: int, spare: Iterable[int] = ()) -> list[int]:
    """All below a process, parents first, without the subtrees of `spare`."""
    spared, todo = set(spare), [pid]
    found: list[int] = []
    while todo:
        below = children(todo.pop()) - spared
        found.extend(below)
        todo.extend(below)
    return found


def members(sid: int) -> int:
    """How many processes a session has, zombies too; quick, as no file of theirs is read."""
    count = 0
    for pid in _pids():
        with contextlib.suppress(OSError):
            count += os.getsid(pid) == sid
    return count


def stray_forks(leader: int) -> list[int]:
    """Forks of a session's leader that run on without being its children: what a fork bomb consists of."""
    wanted = _arguments(leader)
    return [
        pid
        for pid, fields in _stats()
        if int(fields[3]) == leader != int(fields[1]) and pid != leader and fields[0] != "Z"
        if _arguments(pid) == wanted
    ]


def session(sid: int) -> list[int]:
    """All processes of a session that are not zombies."""
    return [pid for pid, fields in _stats() if int(fields[3]) == sid and fields[0] != "Z"]


def with_environment(entry: str) -> list[int]:
    """Processes of ours whose environment at their start had this `NAME=value`."""
    found, wanted = [], os.fsencode(entry)
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def started(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process: with the pid, its identity. None: no such process."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def kill(pids: Iterable[int]) -> None:
    _signal(pids, signal.SIGKILL)


def kill_below(pid: int, spare: Iterable[int] = ()) -> None:
    """Kill all descendants except the subtrees of `spare`, also those that fork while we look."""
    _kill_all(lambda: [child for child in descendants(pid, spare) if started(child) is not None])


def kill_session(sid: int, spare: Iterable[int] = ()) -> None:
    """Kill all processes of a session but `spare`, also those that fork while we look."""
    spared = set(spare)
    _kill_all(lambda: [pid for pid in session(sid) if pid not in spared])


def _kill_all(find: Callable[[], list[int]]) -> None:
    if not (found := find()):
        return
    kill(found)
    # What forks faster than it dies must first be stopped. One look can miss a child whose parent ends while we
    # look, so only three in a row that find nothing new count.
    stopped: set[int] = set()
    quiet = 0
    for _ in range(200):
        fresh = set(find()) - stopped
        quiet = 0 if fresh else quiet + 1
        if quiet == 3:
            break
        _signal(fresh, signal.SIGSTOP)
        stopped |= fresh
    kill(stopped)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _stats() -> Iterable[tuple[int, list[str]]]:
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            yield pid, fields


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on: state, parent, group, session, ..."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _arguments(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
