"""One bash process on a pty.

bash runs interactively, because only then an interrupt (and every error that would end a script) brings it
back to its prompt with its state. It reads our lines from a pipe of its own; what it and its commands print
goes to the pty. After each command it prints a mark. The mark is drawn anew each time, and bash reads it when
the command has ended, so a command cannot print it beforehand. The working directory is read from /proc.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import shlex
import signal
import struct
import subprocess
import termios
from collections.abc import Iterable, Mapping
from pathlib import Path

from runtime import processes
from runtime.text import Capture, Captured

NOTHING: Mapping[str, str] = {}
ROWS, COLUMNS = 50, 200  # wide, so that test runners and tables do not shorten their lines
UNWIND = 2.0  # seconds that bash gets to come back to its prompt after an interrupt
DRAIN = 0.05  # seconds to wait for what is still in the pty after bash has ended
INTERRUPT, END = b"\x03", b"\x04"  # what Ctrl-C and Ctrl-D send

# Descriptor 252 is the pty again, so that the mark comes through when a command has redirected the shell's
# own output. When memory runs out, commands are to die before the server (which may not write this for its
# children: its own /proc is closed to its user).
_SETUP = """\
PS1= PS2= PROMPT_COMMAND=; unset HISTFILE MAILCHECK; set +o history +H; shopt -u checkwinsize; exec 252>&1
__calm() { PS1= PS2= PROMPT_COMMAND=; set +e; return "$1"; }
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
__mark() { builtin printf '\\0%s %d\\0' "$1" "$2" >&252; }
"""
# Input and output are each command's own: after `exec >log` or `exec 2>&-` the next one is read again.
# An activated environment must not give us a prompt, `set -e` of one command must not let the next one that
# fails end the shell, and `set -x` must not trace our own words.
_COMMAND = "{evaluate} eval -- {quoted} <{input} >&252 2>&252 252>&-; {{ __calm $?; }} 2>/dev/null\n"
# The empty line in front ends what a syntax error has left in the parser.
_MARK = "\n{{ __mark {mark} $?; }} 2>/dev/null\n"


class Bash:
    """One bash process: its commands go in by a pipe, what is printed comes out of its pty."""

    def __init__(self, process: "subprocess.Popen[bytes]", pty: int, commands: int) -> None:
        self._process = process
        self._pty: int | None = pty
        self._commands = commands
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._untyped = bytearray()
        self._mark = b""
        self._held = bytearray()
        self._ended: asyncio.Future[int | None] = self._loop.create_future()
        self._hung_up = asyncio.Event()
        self._modes = termios.tcgetattr(pty)
        self._output = Capture()
        self._watch = os.pidfd_open(process.pid)
        self._loop.add_reader(pty, self._read)
        self._loop.add_reader(self._watch, self._exited)

    @classmethod
    async def start(cls, cwd: Path, env: Mapping[str, str]) -> "Bash":
        process, pty, commands = _spawn(cwd, env)
        bash = cls(process, pty, commands)
        try:
            # What a base image's bash says at its start belongs to no command.
            async with asyncio.timeout(10):
                await bash._send(_SETUP.encode())
        except BaseException:
            await bash.close()
            raise
        bash.take_output()
        return bash

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """Exit status; None while it runs or when a signal ended it."""
        code = self._process.returncode
        return None if code is None or code < 0 else code

    @property
    def signal(self) -> str | None:
        code = self._process.returncode
        return signal.Signals(-code).name if code is not None and code < 0 else None

    def take_output(self) -> Captured:
        """All that was printed since the last time."""
        taken, self._output = self._output.take(), Capture()
        return taken

    def children(self) -> set[int]:
        return processes.children(self._process.pid)

    def cwd(self) -> str | None:
        try:
            path = os.readlink(f"/proc/{self._process.pid}/cwd")
        except OSError:
            return None
        return os.fsencode(path).decode("utf-8", "replace")

    def feed(
        self, command: str, *, interactive: bool = False, lent: Mapping[str, str] = NOTHING
    ) -> "asyncio.Future[int | None]":
        """Start a command. The result is its exit status; None when bash itself has ended.

        The input of an interactive one is the terminal, where `type` writes; that of another is empty. The
        variables `lent` are in the environment of this command alone.
        """
        # Not `builtin` behind variables: bash 5.2 does not pass them on to what `eval` starts then.
        given = [f"{name}={shlex.quote(value)}" for name, value in lent.items()]
        line = _COMMAND.format(
            evaluate=" ".join((*given, "command")) if given else "builtin",
            quoted=shlex.quote(command),
            input="/dev/tty" if interactive else "/dev/null",
        )
        return self._send(line.encode("utf-8", "surrogateescape"))

    def type(self, keys: bytes) -> None:
        """Type at the terminal."""
        self._untyped += keys
        self._type()

    def _send(self, lines: bytes) -> "asyncio.Future[int | None]":
        mark = secrets.token_hex(16)
        self._mark = b"\0%s " % mark.encode()
        if self._process.returncode is None:
            self._ended = self._loop.create_future()
            # A command may have left the terminal raw, or not read what was typed for it.
            self._untyped.clear()
            termios.tcsetattr(self._fd(), termios.TCSAFLUSH, self._modes)
            self._unsent += lines + _MARK.format(mark=mark).encode()
            self._write()
        return self._ended

    async def interrupt(self, ended: "asyncio.Future[int | None]", background: Iterable[int]) -> None:
        """Kill the command with all it started, `background` excepted, and bring bash back to its prompt."""
        deadline = self._loop.time() + UNWIND
        while not ended.done() and self._loop.time() < deadline:
            with contextlib.suppress(ProcessLookupError):
                # First bash, so that it gives up the rest of the command when it sees its child dead.
                os.kill(self._process.pid, signal.SIGINT)
                os.kill(self._process.pid, signal.SIGCONT)
            processes.kill_below(self._process.pid, spare=background)
            await asyncio.wait([ended], timeout=UNWIND / 6)

    async def close(self) -> None:
        """Kill bash and everything below it; read what is left in the pty."""
        pid = self._process.pid
        if self._process.returncode is None:
            processes.kill_below(pid)
            processes.kill([pid])
            await self._loop.run_in_executor(None, self._process.wait)
        processes.kill_session(pid)
        if self._pty is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN):
                    await self._hung_up.wait()
        self._hang_up()
        if self._commands >= 0:
            self._loop.remove_writer(self._commands)
            os.close(self._commands)
            self._commands = -1
        if self._watch >= 0:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = -1

    def _fd(self) -> int:
        assert self._pty is not None
        return self._pty

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._commands, self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._commands, self._write)
            return
        except BrokenPipeError:
            self._unsent.clear()  # bash has ended; _exited tells
        self._loop.remove_writer(self._commands)

    def _type(self) -> None:
        if self._pty is None:
            return
        try:
            while self._untyped:
                del self._untyped[: os.write(self._pty, self._untyped)]
        except BlockingIOError:
            self._loop.add_writer(self._pty, self._type)
            return
        except OSError:  # nobody has the other end open any more; _read tells
            self._untyped.clear()
        self._loop.remove_writer(self._pty)

    def _read(self) -> None:
        try:
            data = os.read(self._fd(), 1 << 16)
        except BlockingIOError:
            return
        except OSError:  # EIO: nobody has the other end open any more
            self._hang_up()
            return
        self._sift(data)

    def _sift(self, data: bytes) -> None:
        """Pass output on, hold back what may be the beginning of the mark, and notice the mark."""
        if self._held:
            data = bytes(self._held) + data
            self._held.clear()
        if b"\0" not in data:
            self._output.add(data)
            return
        at = data.find(self._mark)
        if at < 0:
            at = data.rfind(b"\0")
            if not self._mark.startswith(data[at:]):
                at = len(data)
        elif (end := data.find(b"\0", at + 1)) >= 0:
            self._output.add(data[:at])
            if not self._ended.done():
                self._ended.set_result(int(data[at + len(self._mark) : end]))
            data, at = data[end + 1 :], len(data)
        self._output.add(data[:at])
        self._held += data[at:]

    def _exited(self) -> None:
        self._loop.remove_reader(self._watch)
        self._process.wait()
        if not self._ended.done():
            self._ended.set_result(None)

    def _hang_up(self) -> None:
        if self._pty is not None:
            self._loop.remove_reader(self._pty)
            self._loop.remove_writer(self._pty)
            os.close(self._pty)
            self._pty = None
        self._hung_up.set()


def _spawn(cwd: Path, env: Mapping[str, str]) -> "tuple[subprocess.Popen[bytes], int, int]":
    """bash, the descriptor of its output, and that of the commands that it reads."""
    cwd.mkdir(parents=True, exist_ok=True)  # a command may have removed the work tree itself
    master, slave = os.openpty()
    modes = termios.tcgetattr(slave)
    modes[1] &= ~termios.OPOST  # "\n" stays "\n"
    modes[3] &= ~termios.ECHO
    modes[3] |= termios.NOFLSH  # Ctrl-C must not throw away what was printed before it
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    read, write = os.pipe()
    try:
        process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "+H", "-i"],
            stdin=read,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            preexec_fn=_become_terminal_owner,
        )
    except OSError:
        os.close(master)
        os.close(write)
        raise
    finally:
        os.close(slave)
        os.close(read)
    os.set_blocking(master, False)
    os.set_blocking(write, False)
    return process, master, write


# Between fork and exec, in a process that may have had other threads: two system calls, no import, no lock.
def _become_terminal_owner() -> None:
    """In the child, before bash: the pty becomes its terminal, orphans of commands become its children."""
    processes.adopt_orphans()
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)
