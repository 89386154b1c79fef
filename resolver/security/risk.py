"""Rates how much harm an action could do (`RiskAnalyzer`), and decides whether the action is allowed
(`RiskPolicy`).

The security boundary is the sandbox; this check is an additional measure. The check only reads a command
before the command runs. It can therefore be deceived, for example by a script that the command starts. No
protection relies on this check alone.
"""

import posixpath
import re
from typing import Literal, Protocol, runtime_checkable

from patchwright.resolver.actions import Action
from patchwright.resolver.security.shell_parser import EXPANSION, SHELLS, ShellProgram, parse_programs
from patchwright.runtime.frozen_model import FrozenModel

Risk = Literal["low", "unknown", "medium", "high"]
RISK_LEVELS: tuple[Risk, ...] = ("low", "unknown", "medium", "high")
"""The risk ratings, from lowest to highest. "unknown" means that the action could not be analyzed."""

RiskDecision = Literal["allow", "refuse", "ask"]


class RiskRating(FrozenModel):
    """How risky an action is."""

    risk: Risk
    reason: str = ""
    """A short reason, shown to the model if the action is refused."""


@runtime_checkable
class RiskAnalyzer(Protocol):
    """Rates the risk of actions. The rating depends only on the action. `rate` has no side effects."""

    def rate(self, action: Action) -> RiskRating: ...


@runtime_checkable
class RiskPolicy(Protocol):
    """Decides whether a rated action runs. "ask" means that a person decides."""

    def decide(self, rating: RiskRating) -> RiskDecision: ...


class ThresholdPolicy(FrozenModel):
    """Refuses actions whose rating is `threshold` or higher, or asks a person. None allows every action."""

    threshold: Risk | None = "high"
    response: Literal["refuse", "ask"] = "refuse"

    def decide(self, rating: RiskRating) -> RiskDecision:
        if self.threshold is None or RISK_LEVELS.index(rating.risk) < RISK_LEVELS.index(self.threshold):
            return "allow"
        return self.response


def get_highest_rating(*ratings: RiskRating) -> RiskRating:
    """Returns the rating with the highest risk. If several ratings have this risk, returns the first of them."""
    return max(ratings, key=lambda rating: RISK_LEVELS.index(rating.risk))


class RuleAnalyzer:
    """Rates actions by fixed rules. The rules examine the parsed command and the paths in it.

    `root` and `scratch` are the agent's own directories.
    """

    def __init__(self, root: str, scratch: str) -> None:
        self._agent_directories = (root, scratch)

    def rate(self, action: Action) -> RiskRating:
        call = action.describe()
        if call.shell_command:
            return self.rate_command(call.shell_command)
        if call.written_path:
            return self._rate_write(call.written_path)
        return RiskRating(risk="medium" if call.risk_reason else "low", reason=call.risk_reason)

    def rate_command(self, command: str) -> RiskRating:
        """Returns the rating of the riskiest part of a command."""
        if ":(){" in command.replace(" ", ""):
            return RiskRating(risk="high", reason="the command is a fork bomb")
        if (parts := parse_programs(command)) is None:
            return RiskRating(risk="unknown", reason="the command could not be parsed")
        return get_highest_rating(RiskRating(risk="low"), *(self._rate_program(part) for part in parts))

    def _rate_program(self, program: ShellProgram) -> RiskRating:
        ratings = [self._rate_by_name(program), *(self._rate_write(path) for path in program.output_files)]
        if {"sudo", "doas"} & set(program.launchers):
            ratings.append(RiskRating(risk="high", reason="the command runs with another user's rights"))
        if program.name in (*SHELLS, *_INTERPRETERS) and set(program.piped_from) & _DOWNLOAD_COMMANDS:
            ratings.append(
                RiskRating(
                    risk="high", reason=f"the command runs code that `{program.piped_from[0]}` downloaded"
                )
            )
        return get_highest_rating(*ratings)

    def _rate_by_name(self, program: ShellProgram) -> RiskRating:
        name, arguments = program.name, program.arguments
        if EXPANSION in name:
            return RiskRating(risk="unknown", reason="only the shell knows which program runs")
        if name in _HARMFUL_COMMANDS or name.startswith("mkfs"):
            return RiskRating(risk="high", reason=f"`{name}` acts on the machine, not on the repository")
        if name == "dd":
            return get_highest_rating(
                RiskRating(risk="low"),
                *(self._rate_write(word[3:]) for word in arguments if word.startswith("of=")),
            )
        if name == "rm":
            return self._rate_removal(arguments)
        if name == "git":
            return _rate_git(arguments)
        if name in _DOWNLOAD_COMMANDS:
            return _rate_download(name, arguments)
        if name in ("kill", "pkill", "killall"):
            ends_all = any(word in ("-1", "1") for word in arguments[-1:])
            return RiskRating(risk="high" if ends_all else "medium", reason="the command ends processes")
        if name in ("chmod", "chown"):
            return get_highest_rating(
                RiskRating(risk="medium", reason="the command changes permissions"),
                *map(self._rate_write, _get_paths(arguments)[1:]),
            )
        if name in _READ_COMMANDS:
            return self._rate_read(name, arguments)
        if name in ("cp", "mv", "tee", "ln", "install", "touch", "mkdir", "truncate", "rsync"):
            return get_highest_rating(
                RiskRating(risk="low"), *map(self._rate_write, _get_paths(arguments)[-1:])
            )
        return RiskRating(risk="medium", reason=f"`{name}` runs code")

    def _rate_removal(self, arguments: tuple[str, ...]) -> RiskRating:
        is_recursive = any(word.startswith("-") and set("rR") & set(word) for word in arguments)
        outside = [path for path in _get_paths(arguments) if self._is_outside(path)]
        if outside:
            return RiskRating(
                risk="high",
                reason=f"the command removes {outside[0].replace(EXPANSION, '...')}, outside the work tree",
            )
        if is_recursive and any(EXPANSION in path for path in arguments):
            return RiskRating(risk="unknown", reason="only the shell knows what is removed")
        return RiskRating(risk="medium" if is_recursive else "low", reason="the command removes directories")

    def _rate_read(self, name: str, arguments: tuple[str, ...]) -> RiskRating:
        for path in _get_paths(arguments):
            if _CREDENTIAL_PATH.search(path):
                return RiskRating(
                    risk="high", reason=f"the command reads {path[:80]}, where credentials are stored"
                )
        if name == "find" and {"-delete", "-exec", "-execdir"} & set(arguments):
            return RiskRating(risk="medium", reason="`find` deletes files or runs commands on them")
        if name == "sed" and any(word.startswith("-i") for word in arguments):
            return get_highest_rating(
                RiskRating(risk="low"), *map(self._rate_write, _get_paths(arguments)[1:])
            )
        return RiskRating(risk="low")

    def _rate_write(self, path: str) -> RiskRating:
        if path in ("/dev/null", "/dev/stdout", "/dev/stderr") or path.isdigit():
            return RiskRating(risk="low")
        if "/.git/" in f"/{path}" or path.endswith("/.git"):
            return RiskRating(risk="high", reason="the call writes into git's own directory")
        if self._is_outside(path):
            return RiskRating(
                risk="high",
                reason=f"the call writes {path[:80].replace(EXPANSION, '...')}, outside the work tree",
            )
        return RiskRating(
            risk="unknown" if path.startswith(EXPANSION) else "low",
            reason="only the shell knows where the command writes",
        )

    def _is_outside(self, path: str) -> bool:
        """Returns True if a path may be outside the agent's own directories.

        It is not known which directory a relative path starts from. Such a path counts as outside if it is
        `.`, `..` or `../..`, or starts with `../../..`.
        """
        if path.startswith("~"):
            return True
        if path.startswith("/"):
            normalized = posixpath.normpath(path)
            return not any(normalized.startswith(f"{directory}/") for directory in self._agent_directories)
        return posixpath.normpath(path).startswith("../../..") or posixpath.normpath(path) in (
            ".",
            "..",
            "../..",
        )


_HARMFUL_COMMANDS = frozenset(
    "mkfs mount umount shutdown reboot halt poweroff init systemctl service crontab at iptables nft ip route sysctl "
    "modprobe insmod chroot unshare nsenter docker podman kubectl ssh scp sftp nc ncat netcat socat telnet su passwd "
    "useradd usermod visudo mail sendmail mutt".split()
)
_DOWNLOAD_COMMANDS = frozenset({"curl", "wget", "fetch", "http", "https", "aria2c"})
_UPLOAD_OPTIONS = tuple("--data --form --upload-file --post- --body- -d -F -T -XPOST -XPUT".split())
_LOCALHOST = re.compile(r"(https?://)?(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")
_INTERPRETERS = ("python", "python3", "perl", "ruby", "node", "php")
_CREDENTIAL_PATH = re.compile(
    r"/\.(?:ssh|aws|netrc|git-credentials|docker|kube|gnupg)|/etc/shadow|\bproc/.*/environ\b|id_rsa"
)
_READ_COMMANDS = frozenset(
    "cat ls cd pwd head tail grep egrep fgrep rg find sed awk sort uniq wc cut tr diff cmp file stat tree less more "
    "echo printf which type command test [ true false sleep date env printenv export set unset basename dirname "
    "realpath readlink xxd od strings column jq md5sum sha256sum nl tac rev seq read exit return source . local "
    "declare".split()
)
_GIT_READ_COMMANDS = frozenset(
    "status diff log show ls-files ls-tree grep blame rev-parse describe branch cat-file shortlog reflog version "
    "help".split()
)
_GIT_UPLOAD_COMMANDS = frozenset({"push", "send-email", "request-pull", "credential", "daemon"})


def _rate_download(name: str, arguments: tuple[str, ...]) -> RiskRating:
    urls = [word for word in arguments if "://" in word or word.startswith(("localhost", "127.0.0.1"))]
    if urls and all(_LOCALHOST.match(word) for word in urls):
        return RiskRating(risk="low")  # probably a server that is being tested
    is_upload = any(word.startswith(_UPLOAD_OPTIONS) or word in ("POST", "PUT") for word in arguments)
    return RiskRating(
        risk="high" if is_upload else "medium",
        reason=f"`{name}` {'sends data' if is_upload else 'downloads'}",
    )


def _rate_git(arguments: tuple[str, ...]) -> RiskRating:
    words = list(arguments)
    while words and words[0].startswith("-"):
        words = (
            words[2:] if words[0] in ("-c", "-C", "--git-dir", "--work-tree", "--namespace") else words[1:]
        )
    subcommand = words[0] if words else "help"
    if subcommand in _GIT_UPLOAD_COMMANDS:
        return RiskRating(risk="high", reason=f"`git {subcommand}` uploads the work")
    if subcommand in _GIT_READ_COMMANDS and not {"-D", "-d", "--delete"} & set(arguments):
        return RiskRating(risk="low")
    return RiskRating(risk="medium", reason=f"`git {subcommand}` changes the repository")


def _get_paths(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in arguments if not word.startswith("-"))
