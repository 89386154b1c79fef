"""Directories on the host that contain the sockets of sandboxes. Each name contains the id of the owner process.

A process that adopts a sandbox renames the sandbox's directory. If several processes try this, only one
succeeds. The container still sees the directory, because a mount does not depend on the directory's name.
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

from patchwright.runtime import ownership
from patchwright.runtime.wire_protocol import SOCKET_NAME

_MAX_SOCKET_PATH = 107  # maximum bytes in the path of a Unix socket
_KEY_FILE = "key"


@dataclass(frozen=True, slots=True)
class SocketDir:
    """The directory of one sandbox, with mode 0700. The container sees only its subdirectory
    `mounted_dir`.
    """

    path: Path

    @classmethod
    def create(cls) -> "SocketDir":
        directory = cls(_parent_dir() / f"pw-{ownership.current_owner()}-{secrets.token_hex(4)}")
        directory.path.mkdir(mode=0o700)
        directory.mounted_dir.mkdir()
        # chmod does not depend on the umask; uid 10001 must be able to enter
        directory.mounted_dir.chmod(0o755)
        return directory

    @classmethod
    def find(cls, id: str) -> "SocketDir | None":
        """Return the directory with this id. Any process may own the directory. Return None if it does not exist."""
        if not re.fullmatch("[0-9a-f]{8}", id):
            return None
        return next((directory for directory in _list_all() if directory.id == id), None)

    @property
    def mounted_dir(self) -> Path:
        return self.path / "d"

    @property
    def id(self) -> str:
        """The part of the directory's name that does not change when the owner changes."""
        return self.path.name.rpartition("-")[2]

    @property
    def owner(self) -> str:
        return self.path.name.removeprefix("pw-").rpartition("-")[0]

    def claim(self) -> "SocketDir | None":
        """Take over the directory of an owner that is dead. Return the directory under its new name.

        Returns None if the owner is alive, the directory belongs to another user, or another process was faster.
        """
        if not ownership.is_dead(self.owner) or not _is_owned_directory(self.path):
            return None
        claimed = SocketDir(self.path.with_name(f"pw-{ownership.current_owner()}-{self.id}"))
        try:
            self.path.rename(claimed.path)
        except OSError:
            return None
        return claimed

    def save_key(self, key: str) -> None:
        """Save on the host the key that authenticates connections to the sandbox. A process that takes over
        the sandbox reads this key. The container cannot see the file with the key.
        """
        path = self.path / _KEY_FILE
        path.touch(mode=0o600)
        path.write_text(key)

    def read_key(self) -> str | None:
        try:
            return (self.path / _KEY_FILE).read_text()
        except OSError:
            return None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def remove_orphaned(retained_ids: frozenset[str]) -> None:
    """Remove the directories whose owners are dead. Keep the directories whose ids are in `retained_ids`."""
    for directory in _list_all():
        if (
            directory.id not in retained_ids
            and ownership.is_dead(directory.owner)
            and _is_owned_directory(directory.path)
        ):
            directory.remove()


def _list_all() -> Iterator[SocketDir]:
    for directory in _parent_dir().glob("pw-*.*.*.*.*-*"):
        yield SocketDir(directory)


def _is_owned_directory(directory: Path) -> bool:
    """Return True if this is a real directory that belongs to this user. This must be checked, because any
    user can create names in /tmp.
    """
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _parent_dir() -> Path:
    parent = Path(tempfile.gettempdir())
    name = len(f"/pw-{ownership.current_owner()}-12345678/d/{SOCKET_NAME}")
    return parent if len(os.fsencode(parent)) + name <= _MAX_SOCKET_PATH else Path("/tmp")
