"""How much harm an action could do, and what is done about it. Two questions, two seams: `Analyzer` and `Policy`.

The sandbox is the wall; this is a second look at what is asked of it. It reads a command before it runs, so it can be
fooled (by a script that a command starts, say), and nothing rests on it alone.
"""

import posixpath
import re
from typing import Literal, Protocol, runtime_checkable

from resolver.actions import Action, CallTool, SearchWeb
from resolver.security.shell_words import SHELLS, UNKNOWN, Program, programs
from runtime.actions import (
    CreateFile,
    InsertText,
    ReplaceText,
    RunPython,
    RunShell,
    SendInput,
    UndoEdit,
    UseBrowser,
)
from runtime.frozen import Frozen

Risk = Literal["low", "unknown", "medium", "high"]
ORDER: tuple[Risk, ...] = ("low", "unknown", "medium", "high")
"""From the least. What cannot be read counts as more than harmless and less than harmful."""


class Rating(Frozen):
    """How risky an action is."""

    risk: Risk
    why: str = ""
    """A few words, for the observation of a refusal."""


@runtime_checkable
class Analyzer(Protocol):
    """Rates actions. Pure: the same action has the same rating."""

    def rate(self, action: Action) -> Rating: ...


@runtime_checkable
class Policy(Protocol):
    """Decides about a rated action. Nobody is there to be asked, so it is yes or no."""

    def allows(self, rating: Rating) -> bool: ...


class RefuseFrom(Frozen):
    """Refuses what is rated `threshold` or higher; None refuses nothing."""

    threshold: Risk | None = "high"

    def allows(self, rating: Rating) -> bool:
        return self.threshold is None or ORDER.index(rating.risk) < ORDER.index(self.threshold)


def highest(*ratings: Rating) -> Rating:
    """The most severe of several; of equals the first."""
    return max(ratings, key=lambda rating: ORDER.index(rating.risk))


class Rules:
    """Ratings by rule, from the parsed command and its paths.

    `root` and `scratch` are the directories that are the agent's own.
    """

    def __init__(self, root: str, scratch: str) -> None:
        self._own = (root, scratch)

    def rate(self, action: Action) -> Rating:
        match action:
            case RunShell(command=command):
                return self.command(command)
            case SendInput(text=text) if text:
                return Rating(risk="medium", why="it types into a program")
            case RunPython():
                return Rating(risk="medium", why="it runs code")
            case CreateFile(path=path) | ReplaceText(path=path) | InsertText(path=path) | UndoEdit(path=path):
                return self._write(path)
            case UseBrowser() | CallTool() | SearchWeb():
                return Rating(risk="medium", why="it acts outside of the work tree")
            case _:
                return Rating(risk="low")

    def command(self, command: str) -> Rating:
        """The most severe part of a command counts."""
        if ":(){" in command.replace(" ", ""):
            return Rating(risk="high", why="it starts itself without end")
        if (parts := programs(command)) is None:
            return Rating(risk="unknown", why="the command could not be read")
        return highest(Rating(risk="low"), *(self._program(part) for part in parts))

    def _program(self, part: Program) -> Rating:
        ratings = [self._by_name(part), *(self._write(path) for path in part.writes)]
        if {"sudo", "doas"} & set(part.through):
            ratings.append(Rating(risk="high", why="it asks for another user's rights"))
        if part.name in (*SHELLS, *_INTERPRETERS) and set(part.fed_by) & _FETCHING:
            ratings.append(Rating(risk="high", why=f"it runs what {part.fed_by[0]} fetched"))
        return highest(*ratings)

    def _by_name(self, part: Program) -> Rating:
        name, arguments = part.name, part.arguments
        if UNKNOWN in name:
            return Rating(risk="unknown", why="the shell decides what is run")
        if name in _HARMFUL or name.startswith("mkfs"):
            return Rating(risk="high", why=f"`{name}` acts on the machine, not on the repository")
        if name == "dd":
            return highest(
                Rating(risk="low"), *(self._write(word[3:]) for word in arguments if word.startswith("of="))
            )
        if name == "rm":
            return self._removal(arguments)
        if name == "git":
            return _git(arguments)
        if name in _FETCHING:
            return _fetching(name, arguments)
        if name in ("kill", "pkill", "killall"):
            everything = any(word in ("-1", "1") for word in arguments[-1:])
            return Rating(risk="high" if everything else "medium", why="it ends processes")
        if name in ("chmod", "chown"):
            return highest(
                Rating(risk="medium", why="it changes rights"), *map(self._write, _paths(arguments)[1:])
            )
        if name in _READING:
            return self._reading(name, arguments)
        if name in ("cp", "mv", "tee", "ln", "install", "touch", "mkdir", "truncate", "rsync"):
            return highest(Rating(risk="low"), *map(self._write, _paths(arguments)[-1:]))
        return Rating(risk="medium", why=f"`{name}` runs code")

    def _removal(self, arguments: tuple[str, ...]) -> Rating:
        recursive = any(word.startswith("-") and set("rR") & set(word) for word in arguments)
        outside = [path for path in _paths(arguments) if self._is_outside(path)]
        if outside:
            return Rating(
                risk="high", why=f"it removes {outside[0].replace(UNKNOWN, '...')}, outside of the work tree"
            )
        if recursive and any(UNKNOWN in path for path in arguments):
            return Rating(risk="unknown", why="the shell decides what is removed")
        return Rating(risk="medium" if recursive else "low", why="it removes directories")

    def _reading(self, name: str, arguments: tuple[str, ...]) -> Rating:
        for path in _paths(arguments):
            if any(sign in path for sign in _PRIVATE):
                return Rating(risk="high", why=f"it reads {path[:80]}, where credentials are kept")
        if name == "find" and {"-delete", "-exec", "-execdir"} & set(arguments):
            return Rating(risk="medium", why="find runs or removes what it finds")
        if name == "sed" and any(word.startswith("-i") for word in arguments):
            return highest(Rating(risk="low"), *map(self._write, _paths(arguments)[1:]))
        return Rating(risk="low")

    def _write(self, path: str) -> Rating:
        if path in ("/dev/null", "/dev/stdout", "/dev/stderr") or path.isdigit():
            return Rating(risk="low")
        if "/.git/" in f"/{path}" or path.endswith("/.git"):
            return Rating(risk="high", why="it writes into git's own directory")
        if self._is_outside(path):
            return Rating(
                risk="high", why=f"it writes {path[:80].replace(UNKNOWN, '...')}, outside of the work tree"
            )
        return Rating(
            risk="unknown" if path.startswith(UNKNOWN) else "low", why="the shell decides where it writes"
        )

    def _is_outside(self, path: str) -> bool:
        """Whether a path leads out of the agent's own directories, whatever the shell's directory is below them."""
        if path.startswith("~"):
            return True
        if path.startswith("/"):
            real = posixpath.normpath(path)
            return not any(real.startswith(f"{own}/") for own in self._own)
        return posixpath.normpath(path).startswith("../../..") or posixpath.normpath(path) in (
            ".",
            "..",
            "../..",
        )


_HARMFUL = frozenset(
    "mkfs mount umount shutdown reboot halt poweroff init systemctl service crontab at iptables nft ip route sysctl "
    "modprobe insmod chroot unshare nsenter docker podman kubectl ssh scp sftp nc ncat netcat socat telnet su passwd "
    "useradd usermod visudo mail sendmail mutt".split()
)
_FETCHING = frozenset({"curl", "wget", "fetch", "http", "https", "aria2c"})
_SENDING = ("--data", "--form", "--upload-file", "--post-", "--body-", "-d", "-F", "-T", "-XPOST", "-XPUT")
_OWN_MACHINE = re.compile(r"(https?://)?(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")
_INTERPRETERS = ("python", "python3", "perl", "ruby", "node", "php")
_PRIVATE = (
    "/.ssh",
    "/.aws",
    "/.netrc",
    "/.git-credentials",
    "/.docker",
    "/.kube",
    "/etc/shadow",
    "/environ",
    "id_rsa",
    "/.gnupg",
)
_READING = frozenset(
    "cat ls cd pwd head tail grep egrep fgrep rg find sed awk sort uniq wc cut tr diff cmp file stat tree less more "
    "echo printf which type command test [ true false sleep date env printenv export set unset basename dirname "
    "realpath readlink xxd od strings column jq md5sum sha256sum nl tac rev seq read exit return source . local "
    "declare".split()
)
_GIT_READS = frozenset(
    "status diff log show ls-files ls-tree grep blame rev-parse describe branch cat-file shortlog reflog version "
    "help".split()
)
_GIT_OUT = frozenset({"push", "send-email", "request-pull", "credential", "daemon"})


def _fetching(name: str, arguments: tuple[str, ...]) -> Rating:
    addresses = [word for word in arguments if "://" in word or word.startswith(("localhost", "127.0.0.1"))]
    if addresses and all(_OWN_MACHINE.match(word) for word in addresses):
        return Rating(risk="low")  # a server under test
    sends = any(word.startswith(_SENDING) or word in ("POST", "PUT") for word in arguments)
    return Rating(risk="high" if sends else "medium", why=f"`{name}` {'sends data' if sends else 'fetches'}")


def _git(arguments: tuple[str, ...]) -> Rating:
    left = list(arguments)
    while left and left[0].startswith("-"):
        left = left[2:] if left[0] in ("-c", "-C", "--git-dir", "--work-tree", "--namespace") else left[1:]
    verb = left[0] if left else "help"
    if verb in _GIT_OUT:
        return Rating(risk="high", why=f"`git {verb}` sends the work elsewhere")
    if verb in _GIT_READS and not {"-D", "-d", "--delete"} & set(arguments):
        return Rating(risk="low")
    return Rating(risk="medium", why=f"`git {verb}` changes the repository")


def _paths(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in arguments if not word.startswith("-"))
