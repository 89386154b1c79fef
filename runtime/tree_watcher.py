"""Detects changes of a work tree with inotify, without scanning its files.

inotify misses two kinds of writes. It reports a write through a memory map only when the map is closed. It
does not report a write through a hard link outside the tree. The watcher therefore only saves scans between
two steps. Decisions about a run always scan the tree. `.git` at the root is not watched, because patches
contain nothing from it. Source: inotify(7)
"""

import asyncio
import ctypes
import errno
import os
import secrets
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

# Half the number of watches that the strictest kernels allow a user for all processes together.
MAX_DIRECTORIES = 4000
MAX_ENTRIES = 200_000  # Maximum number of entries that one walk lists. A walk then takes less than a second.
# Maximum number of reads of _READ_SIZE bytes. Together, they read more than the kernel's queue contains
# (16,384 events). Later events wait.
MAX_READS = 64
MAX_CHANGED = 100  # Maximum number of changed files that are listed.
_READ_SIZE = 1 << 16
_EVENT_HEADER = struct.Struct("iIII")

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000

# _CLOSE_WRITE covers writes through a memory map, because the map keeps the file open.
_FILE_EVENTS = _MODIFY | _ATTRIB | _CLOSE_WRITE
_NAME_EVENTS = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _DELETE_SELF | _MOVE_SELF
_WATCH_MASK = _FILE_EVENTS | _NAME_EVENTS | _ONLYDIR | _DONT_FOLLOW
_GONE_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LIMIT_ERRNOS = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSYS)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class TreeState:
    """A state of the work tree, and how it differs from the state before."""

    fingerprint: str
    previous: str | None = None
    """The fingerprint of the state before; None if it is unknown."""
    changed: tuple[str, ...] | None = None
    """The files that were written, created or removed since then, relative to the root; None if they are unknown."""

    def list_removed(self, root: Path) -> tuple[str, ...]:
        """Return the changed files that do not exist now."""
        return tuple(path for path in self.changed or () if not os.path.lexists(root / path))


class TreeWatcher:
    """Detects whether one work tree has changed, without reading its files. Only one task at a time may use it."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        # A random name, so that the fingerprints of two servers are never equal.
        self._name = secrets.token_hex(8)
        self._count = 0
        self._inotify: int | None = None
        self._watches: dict[int, bytes] = {}
        """The path of each watched directory, with a slash at its end, by the number of its watch."""
        self._state: TreeState | None = None
        self._inode: tuple[int, int] | None = None
        self._is_complete = False
        self._has_given_up = False
        self._lock = threading.Lock()  # When a task is canceled, its walk continues in a thread.

    async def read_state(self) -> TreeState | None:
        """Return the state of the tree, or None if changes cannot be detected. Two fingerprints are equal only
        if nothing has changed between them.

        Take the fingerprint before you scan the tree. If the tree changes during the scan, the next
        fingerprint then differs.
        """
        was_complete, changed = self._is_complete, self._read_changes()
        if changed == ():
            return self._state
        previous = self._state.fingerprint if self._state and was_complete else None
        self._count += 1
        if not self._is_complete and not self._has_given_up:
            await asyncio.to_thread(self._watch_directories)
        fingerprint = f"{self._name}-{self._count}"
        self._state = TreeState(fingerprint, previous, changed) if self._is_complete else None
        return self._state

    def close(self) -> None:
        """Stop watching. Calling this twice does no harm."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        self._has_given_up, self._is_complete = True, False
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def _read_changes(self) -> tuple[str, ...] | None:
        """Return the files that have changed, or None if they are unknown. Also record whether the watches still
        cover all directories.
        """
        if not self._is_complete or self._inotify is None:
            return None
        is_same_directory = self._inode == _find_inode(self._root)
        events = _read_events(self._inotify)
        self._is_complete = is_same_directory and not any(_is_directory_change(mask) for _, mask, _ in events)
        changes = {(watch, name) for watch, mask, name in events if not mask & _IGNORED}
        if not self._is_complete or len(changes) > MAX_CHANGED:
            return None
        paths = sorted(self._watches.get(watch, b"\xff") + name for watch, name in changes)
        try:
            return tuple(path.decode() for path in paths)
        except UnicodeDecodeError:
            return None

    def _watch_directories(self) -> None:
        """Watch all directories of the tree, and stop watching directories that have left it. Directories that
        are already watched stay watched without interruption.
        """
        with self._lock:
            if self._has_given_up:
                return
            try:
                if self._inotify is None:
                    self._inotify = _check_result(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
                self._inode = _find_inode(self._root)
                watches = self._add_watches(self._inotify)
            except (_TreeTooLarge, AttributeError):  # AttributeError means that the system has no inotify.
                self._give_up()
                return
            except OSError as error:
                if error.errno in _LIMIT_ERRNOS:  # Some watches must remain for the user's own programs.
                    self._give_up()
                return
            for old in self._watches.keys() - watches.keys():
                # This call fails if the watch was removed together with its directory.
                _libc.inotify_rm_watch(self._inotify, old)
            self._watches, self._is_complete = watches, True

    def _add_watches(self, inotify: int) -> dict[int, bytes]:
        watches: dict[int, bytes] = {}
        length = len(self._root) + 1
        entries, todo = 0, [self._root]
        while todo:
            directory = todo.pop()
            try:
                # The directory is watched before it is listed. So an earlier change is in the list, and a
                # later one causes an event.
                watch = _check_result(_libc.inotify_add_watch(inotify, directory, _WATCH_MASK))
                watches[watch] = (directory + b"/")[length:]
                with os.scandir(directory) as listed:
                    for entry in listed:
                        entries += 1
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
                        if entries > MAX_ENTRIES or len(watches) + len(todo) > MAX_DIRECTORIES:
                            raise _TreeTooLarge
            except OSError as error:
                if directory == self._root or error.errno not in _GONE_ERRNOS:
                    raise
                # The directory was removed after it was listed. The watch on its parent has reported this.
                continue
            if directory == self._root:
                todo = [path for path in todo if os.path.basename(path) != b".git"]
        return watches


class _TreeTooLarge(Exception):
    """Watching the tree would cost more than scanning it."""


def _check_result(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _find_inode(root: bytes) -> tuple[int, int] | None:
    """Return the device and the inode of the directory, or None if it does not exist."""
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _read_events(inotify: int) -> set[tuple[int, int, bytes]]:
    """Return the different events in the queue, each as watch, mask and file name. If there are very many events,
    reads only the first ones, as if the others were lost.
    """
    found: set[tuple[int, int, bytes]] = set()
    for _ in range(MAX_READS):
        try:
            events = os.read(inotify, _READ_SIZE)
        except BlockingIOError:
            return found
        offset = 0
        while offset < len(events):
            watch, mask, _, length = _EVENT_HEADER.unpack_from(events, offset)
            offset += _EVENT_HEADER.size
            found.add((watch, mask, events[offset : offset + length].rstrip(b"\0")))
            offset += length
    return found | {(0, _OVERFLOW, b"")}


def _is_directory_change(mask: int) -> bool:
    """Return True if the event may have added a directory to the tree, or removed one from it."""
    if mask & _ISDIR and mask & (_CREATE | _MOVED_FROM | _MOVED_TO):
        return True
    return bool(mask & (_OVERFLOW | _UNMOUNT | _DELETE_SELF | _MOVE_SELF))
