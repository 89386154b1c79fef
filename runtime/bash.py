"""One bash process on a pseudo-terminal (pty), with a pipe for output.

bash runs interactively, so that it keeps its state after an interrupt, or after an error that would end a script.
It reads commands from one pipe, and writes output to another pipe. Only a command that was started with
`interactive` uses the pty, because programs redraw their progress again and again on a terminal. After each
command, bash prints a random marker. bash reads the marker only after the command has ended, so a command cannot
print it. The working directory is read from /proc.
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

from patchwright.runtime import processes
from patchwright.runtime.output_text import CapturedOutput, OutputCapture

NO_VARIABLES: Mapping[str, str] = {}
ROWS, COLUMNS = 50, 200  # The terminal is wide, so that test runners do not shorten their lines and tables.
INTERRUPT_TIMEOUT = 2.0  # Seconds for bash to return to its prompt after an interrupt.
DRAIN_TIMEOUT = 0.05  # Seconds to wait for output that is still in the pty when bash has ended.
CTRL_C, CTRL_D = b"\x03", b"\x04"  # The bytes that the keys Ctrl-C and Ctrl-D send.

# Descriptor 252 is a copy of the output pipe. The marker goes there, even if a command has redirected the
# shell's own output. When memory runs out, the OOM score makes the kernel kill commands before the server.
# bash sets its own score, because `hide_memory` prevents the server's user from writing to the server's
# entries in /proc.
_SETUP_SCRIPT = """\
PS1= PS2= PROMPT_COMMAND=; unset HISTFILE MAILCHECK; set +o history +H; shopt -u checkwinsize; exec 252>&2 >&2
__calm() { PS1= PS2= PROMPT_COMMAND=; set +e; return "$1"; }
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
__mark() { builtin printf '\\0%s %d\\0' "$1" "$2"; }
"""
# Each command has its own input and output. So the output of the next command is captured even after a
# command such as `exec >log` or `exec 2>&-`. `__calm` removes the prompt that an activated environment sets.
# It also turns off `set -e`, because that would end the shell at the next command that fails. `2>/dev/null`
# hides our own lines from the trace of `set -x`.
_COMMAND_TEMPLATE = (
    "{evaluate} eval -- {quoted} <{input} >{output} 2>{output} 252>&-; {{ __calm $?; }} 2>/dev/null\n"
)
# The empty line at the start ends an incomplete command that a syntax error has left in the parser.
_PRINT_MARKER = "\n{{ __mark {mark} $? >{output}; }} 2>/dev/null\n"


class Bash:
    """One bash process. It reads commands from a pipe, and writes output to another pipe and to its pty."""

    def __init__(self, process: "subprocess.Popen[bytes]", pty: int, commands: int, output: int) -> None:
        self._process = process
        self._pty: int | None = pty
        self._pipe: int | None = output
        self._commands = commands
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._unsent_keys = bytearray()
        self._marker = b""
        self._held_back: dict[int, bytes] = {}
        """The last bytes read from each descriptor. They are held back while they may be the start of the marker."""
        self._completion: asyncio.Future[int | None] = self._loop.create_future()
        self._pty_closed = asyncio.Event()
        self._modes = termios.tcgetattr(pty)
        self._output = OutputCapture()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(pty, self._read_pty)
        self._loop.add_reader(output, self._read_pipe)
        self._loop.add_reader(self._pidfd, self._on_exit)

    @classmethod
    async def start(cls, cwd: Path, env: Mapping[str, str]) -> "Bash":
        bash = cls(*_spawn(cwd, env))
        try:
            # The bash of the base image may print something at its start. That output belongs to no command.
            async with asyncio.timeout(10):
                await bash._send(_SETUP_SCRIPT.encode())
        except BaseException:
            await bash.close()
            raise
        bash.take_output()
        return bash

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """Exit status of bash. None while bash is running, or if a signal ended bash."""
        code = self._process.returncode
        return None if code is None or code < 0 else code

    @property
    def exit_signal(self) -> str | None:
        code = self._process.returncode
        return signal.Signals(-code).name if code is not None and code < 0 else None

    def take_output(self) -> CapturedOutput:
        """Return all output since the last call."""
        output, self._output = self._output.take(), OutputCapture()
        return output

    def children(self) -> set[int]:
        return processes.child_pids(self._process.pid)

    def cwd(self) -> str | None:
        try:
            path = os.readlink(f"/proc/{self._process.pid}/cwd")
        except OSError:
            return None
        return os.fsencode(path).decode("utf-8", "replace")

    def start_command(
        self, command: str, *, interactive: bool = False, secret_env: Mapping[str, str] = NO_VARIABLES
    ) -> "asyncio.Future[int | None]":
        """Start a command. The result of the returned future is the command's exit status, or None if bash
        itself has ended.

        An interactive command uses the terminal, to which `type_keys` writes. Any other command has empty
        input, and a pipe for its output. `secret_env` contains variables that only the new command gets.
        """
        # After variable assignments, use `command` instead of `builtin`: with `builtin`, bash 5.2 would not
        # pass the variables to the programs that `eval` starts.
        assignments = [f"{name}={shlex.quote(value)}" for name, value in secret_env.items()]
        line = _COMMAND_TEMPLATE.format(
            evaluate=" ".join((*assignments, "command")) if assignments else "builtin",
            quoted=shlex.quote(command),
            input="/dev/tty" if interactive else "/dev/null",
            output="/dev/tty" if interactive else "&252",
        )
        return self._send(line.encode("utf-8", "surrogateescape"), "/dev/tty" if interactive else "&252")

    def type_keys(self, keys: bytes) -> None:
        """Send keys to the terminal."""
        self._unsent_keys += keys
        self._flush_keys()

    def _send(self, lines: bytes, output: str = "&252") -> "asyncio.Future[int | None]":
        mark = secrets.token_hex(16)
        self._marker = b"\0%s " % mark.encode()
        if self._process.returncode is None:
            self._completion = self._loop.create_future()
            # A command may have left the terminal in raw mode, or left input unread.
            self._unsent_keys.clear()
            termios.tcsetattr(self._pty_fd(), termios.TCSAFLUSH, self._modes)
            self._unsent += lines + _PRINT_MARKER.format(mark=mark, output=output).encode()
            self._flush_commands()
        return self._completion

    async def interrupt(self, completion: "asyncio.Future[int | None]", background: Iterable[int]) -> None:
        """Kill the command and everything that it started, but not the processes in `background`. bash then
        returns to its prompt.
        """
        deadline = self._loop.time() + INTERRUPT_TIMEOUT
        while not completion.done() and self._loop.time() < deadline:
            with contextlib.suppress(ProcessLookupError):
                # bash is interrupted first. Otherwise, it would run the rest of the command line when the
                # killed process ends.
                os.kill(self._process.pid, signal.SIGINT)
                os.kill(self._process.pid, signal.SIGCONT)
            processes.kill_descendants(self._process.pid, exclude=background)
            await asyncio.wait([completion], timeout=INTERRUPT_TIMEOUT / 6)

    async def close(self) -> None:
        """Kill bash and all its descendants, then read the rest of their output."""
        pid = self._process.pid
        if self._process.returncode is None:
            processes.kill_descendants(pid)
            processes.kill([pid])
            await self._loop.run_in_executor(None, self._process.wait)
        processes.kill_session(pid)
        if self._pty is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_TIMEOUT):
                    await self._pty_closed.wait()
        self._close_pty()
        self._read_pipe()
        self._close_pipe()
        if self._commands >= 0:
            self._loop.remove_writer(self._commands)
            os.close(self._commands)
            self._commands = -1
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _pty_fd(self) -> int:
        assert self._pty is not None
        return self._pty

    def _flush_commands(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._commands, self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._commands, self._flush_commands)
            return
        except BrokenPipeError:
            self._unsent.clear()  # bash has ended, which _on_exit reports.
        self._loop.remove_writer(self._commands)

    def _flush_keys(self) -> None:
        if self._pty is None:
            return
        try:
            while self._unsent_keys:
                del self._unsent_keys[: os.write(self._pty, self._unsent_keys)]
        except BlockingIOError:
            self._loop.add_writer(self._pty, self._flush_keys)
            return
        except OSError:  # The other end of the pipe is closed, which _read_output handles.
            self._unsent_keys.clear()
        self._loop.remove_writer(self._pty)

    def _read_pty(self) -> None:
        try:
            data = os.read(self._pty_fd(), 1 << 16)
        except BlockingIOError:
            return
        except OSError:  # EIO means that the other end is closed.
            # Our end stays open until `close`. Closing it now would send SIGHUP to a program that runs in
            # place of bash.
            self._loop.remove_reader(self._pty_fd())
            self._pty_closed.set()
            return
        if b"\0" in data:
            self._read_pipe()  # bash may have printed a message before the marker.
        self._scan_for_marker(data, self._pty_fd())

    def _read_pipe(self) -> None:
        """Read what the pipe contains now. A pipe contains at most 1 MiB, so this does not block the event
        loop for long.
        """
        for _ in range(16):
            if self._pipe is None:
                return
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._close_pipe()
                return
            self._scan_for_marker(data, self._pipe)

    def _scan_for_marker(self, data: bytes, source: int) -> None:
        """Add new bytes to the output, and detect the marker that bash prints when a command has ended.

        If the last bytes may be the beginning of the marker, they are held back until more bytes arrive.
        """
        data = self._held_back.pop(source, b"") + data
        if b"\0" not in data:
            self._output.add(data)
            return
        at = data.find(self._marker)
        if at < 0:
            at = data.rfind(b"\0")
            if not self._marker.startswith(data[at:]):
                at = len(data)
        elif (end := data.find(b"\0", at + 1)) >= 0:
            self._output.add(data[:at])
            if not self._completion.done():
                self._completion.set_result(int(data[at + len(self._marker) : end]))
            data, at = data[end + 1 :], len(data)
        self._output.add(data[:at])
        if at < len(data):
            self._held_back[source] = data[at:]

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._process.wait()
        if not self._completion.done():
            self._completion.set_result(None)

    def _close_pty(self) -> None:
        if self._pty is not None:
            self._loop.remove_reader(self._pty)
            self._loop.remove_writer(self._pty)
            os.close(self._pty)
            self._pty = None
        self._pty_closed.set()

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None


def _spawn(cwd: Path, env: Mapping[str, str]) -> "tuple[subprocess.Popen[bytes], int, int, int]":
    """Start bash. Return the process and three descriptors: for its pty, for its command input, and for its
    output.
    """
    cwd.mkdir(parents=True, exist_ok=True)  # A command may have removed the work tree.
    master, slave = os.openpty()
    modes = termios.tcgetattr(slave)
    modes[1] &= ~termios.OPOST  # The terminal must not turn "\n" into "\r\n".
    modes[3] &= ~termios.ECHO
    modes[3] |= termios.NOFLSH  # Ctrl-C must not discard earlier output.
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    read, write = os.pipe()
    output_read, output_write = os.pipe()
    try:
        process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "+H", "-i"],
            stdin=read,
            stdout=slave,
            stderr=output_write,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            preexec_fn=_become_terminal_owner,
        )
    except OSError:
        for descriptor in (master, write, output_read):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (slave, read, output_write):
            os.close(descriptor)
    for descriptor in (master, write, output_read):
        os.set_blocking(descriptor, False)
    return process, master, write, output_read


# This function runs between fork and exec, in a process that may have had other threads. It therefore makes
# only two system calls, and uses neither an import nor a lock.
def _become_terminal_owner() -> None:
    """Make the pty the controlling terminal of the child process, and let the child adopt orphaned processes.
    Runs in the child before exec.
    """
    processes.adopt_orphans()
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)
