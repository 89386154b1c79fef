"""Where a sandbox and its host meet on this host's disk: a directory per sandbox, named after who owns it.

The name is the lease. A process that takes a sandbox over renames its directory, which only one can do; the
container's mount follows the directory, not the name.
"""

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime import lease
from runtime.wire import SOCKET

_LONGEST_SOCKET = 107  # bytes of the path of a Unix socket
_KEY = "key"


@dataclass(frozen=True, slots=True)
class Place:
    """One sandbox's directory, with mode 0700; only `door` in it is shown to the container."""

    directory: Path

    @classmethod
    def make(cls) -> "Place":
        place = cls(_parent() / f"pw-{lease.owner()}-{secrets.token_hex(4)}")
        place.directory.mkdir(mode=0o700)
        place.door.mkdir()
        place.door.chmod(0o755)  # whatever the umask: uid 10001 must get in
        return place

    @classmethod
    def find(cls, name: str) -> "Place | None":
        """The place of this name, whoever owns it."""
        if not re.fullmatch("[0-9a-f]{8}", name):
            return None
        return next((place for place in _all() if place.name == name), None)

    @property
    def door(self) -> Path:
        return self.directory / "d"

    @property
    def name(self) -> str:
        """What stays when the owner changes."""
        return self.directory.name.rpartition("-")[2]

    @property
    def owner(self) -> str:
        return self.directory.name.removeprefix("pw-").rpartition("-")[0]

    def inherit(self) -> "Place | None":
        """This place as our own. None: its owner still lives, it is another user's, or somebody was faster."""
        if not lease.is_dead(self.owner) or not _ours(self.directory):
            return None
        ours = Place(self.directory.with_name(f"pw-{lease.owner()}-{self.name}"))
        try:
            self.directory.rename(ours.directory)
        except OSError:
            return None
        return ours

    def keep_key(self, key: str) -> None:
        """For whoever takes over; outside of what the container sees."""
        path = self.directory / _KEY
        path.touch(mode=0o600)
        path.write_text(key)

    def key(self) -> str | None:
        try:
            return (self.directory / _KEY).read_text()
        except OSError:
            return None

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def sweep(spared: frozenset[str]) -> None:
    """Remove the places of dead owners, but not those of these names."""
    for place in _all():
        if place.name not in spared and lease.is_dead(place.owner) and _ours(place.directory):
            place.remove()


def _all() -> Iterator[Place]:
    for directory in _parent().glob("pw-*.*.*.*.*-*"):
        yield Place(directory)


def _ours(directory: Path) -> bool:
    """Whether it is this user's, and really a directory: anybody can put a name into /tmp."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _parent() -> Path:
    parent = Path(tempfile.gettempdir())
    name = len(f"/pw-{lease.owner()}-12345678/d/{SOCKET}")
    return parent if len(os.fsencode(parent)) + name <= _LONGEST_SOCKET else Path("/tmp")
