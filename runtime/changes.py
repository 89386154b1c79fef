"""Whether a work tree was changed since it was looked at: the kernel's word (inotify) for its directories.

What the kernel does not tell: a write through a mapping that is still open (it is told when the mapping goes), and
one through a hard link whose other name lies outside of the tree. So a mark spares looking at the tree between two
steps; what decides about a run looks again. `.git` at the root is not watched: no change is taken from there.
Source: inotify(7)
"""

import asyncio
import ctypes
import errno
import os
import secrets
import struct
import threading
from pathlib import Path

MOST_DIRECTORIES = 4000  # half of what the least generous kernels give to all processes of a user
MOST_ENTRIES = 200_000  # listed at a time, so that a look takes less than a second
MOST_READS = 64  # of _READ bytes: more than the kernel keeps for us (16,384 events); what is left waits
_READ = 1 << 16
_HEAD = struct.Struct("iIII")

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000

# _CLOSE_WRITE for what is written through a mapping: the mapping keeps the file open.
_FILES = _MODIFY | _ATTRIB | _CLOSE_WRITE
_NAMES = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _DELETE_SELF | _MOVE_SELF
_WATCHED = _FILES | _NAMES | _ONLYDIR | _DONT_FOLLOW
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_USED_UP = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSYS)

_libc = ctypes.CDLL(None, use_errno=True)


class Changes:
    """Tells states of one work tree apart without looking at its files. Asked by one task at a time."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._name = secrets.token_hex(8)  # another server's marks are never equal to ours
        self._count = 0
        self._inotify: int | None = None
        self._watches: set[int] = set()
        self._place: tuple[int, int] | None = None
        self._whole = False
        self._given_up = False
        self._watching = threading.Lock()  # a walk goes on in its thread when its task is cancelled

    async def mark(self) -> str | None:
        """Equal to an earlier one only if nothing in the tree was changed in between. None: not known.

        Whoever looks at the tree asks for the mark first: what changes while he looks makes the next one another.
        """
        if not self._given_up and not self._is_unchanged():
            self._count += 1
            if not self._whole:
                await asyncio.to_thread(self._watch)
        return f"{self._name}-{self._count}" if self._whole else None

    def close(self) -> None:
        """Watch no more. Closing twice is once."""
        with self._watching:
            self._give_up()

    def _give_up(self) -> None:
        self._given_up, self._whole = True, False
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def _is_unchanged(self) -> bool:
        """Whether all was watched and nothing has happened; notes when there may be something unwatched now."""
        if not self._whole or self._inotify is None:
            return False
        same_place = self._place == _place(self._root)
        masks = _events(self._inotify)
        self._whole = same_place and not any(map(_moves_directories, masks))
        return self._whole and all(mask & _IGNORED for mask in masks)

    def _watch(self) -> None:
        """Watch every directory, and no other: what is watched already stays so, without a gap."""
        with self._watching:
            if self._given_up:
                return
            try:
                if self._inotify is None:
                    self._inotify = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
                self._place = _place(self._root)
                watches = self._walk(self._inotify)
            except (_TooLarge, AttributeError):  # AttributeError: a system without inotify
                self._give_up()
                return
            except OSError as error:
                if error.errno in _USED_UP:  # programs of the same user want to watch files too
                    self._give_up()
                return
            for old in self._watches - watches:
                _libc.inotify_rm_watch(self._inotify, old)  # fails when it went with its directory
            self._watches, self._whole = watches, True

    def _walk(self, inotify: int) -> set[int]:
        watches: set[int] = set()
        entries, todo = 0, [self._root]
        while todo:
            directory = todo.pop()
            try:
                # Watched first, then listed: what is made in between is told, what was made before is listed.
                watches.add(_checked(_libc.inotify_add_watch(inotify, directory, _WATCHED)))
                with os.scandir(directory) as listed:
                    for entry in listed:
                        entries += 1
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
                        if entries > MOST_ENTRIES or len(watches) + len(todo) > MOST_DIRECTORIES:
                            raise _TooLarge
            except OSError as error:
                if directory == self._root or error.errno not in _GONE:
                    raise
                continue  # since it was listed; its parent, which is watched, has told
            if directory == self._root:
                todo = [path for path in todo if os.path.basename(path) != b".git"]
        return watches


class _TooLarge(Exception):
    """Watching the tree would cost more than looking at it."""


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _place(root: bytes) -> tuple[int, int] | None:
    """Which directory it is; None: there is none."""
    try:
        found = os.stat(root)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _events(inotify: int) -> set[int]:
    """The masks of what happened since the last time; after very much, only of the first part of it."""
    masks: set[int] = set()
    for _ in range(MOST_READS):
        try:
            events = os.read(inotify, _READ)
        except BlockingIOError:
            break
        at = 0
        while at < len(events):
            _, mask, _, length = _HEAD.unpack_from(events, at)
            masks.add(mask)
            at += _HEAD.size + length
    return masks


def _moves_directories(mask: int) -> bool:
    """Whether there may be directories now that are not watched, or watched ones that are not in the tree."""
    if mask & _ISDIR and mask & (_CREATE | _MOVED_FROM | _MOVED_TO):
        return True
    return bool(mask & (_OVERFLOW | _UNMOUNT | _DELETE_SELF | _MOVE_SELF))
