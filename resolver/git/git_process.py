"""Runs git on the host with a clean environment, a time limit and an output limit, and without hooks or
prompts.

Git runs only in Patchwright's own bare repositories, never in a tree that an agent changed.
"""

import asyncio
import contextlib
import os
import resource
import signal
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patchwright.resolver.errors import WorkspaceError

MAX_STDOUT = 64_000_000  # bytes of standard output that are kept in memory

GIT_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.autocrlf": "false",
    "core.packedGitWindowSize": "32m",
    "core.packedGitLimit": "512m",
    "credential.helper": "",
    "fetch.recurseSubmodules": "false",
    "gc.autoDetach": "false",
    # The token is in an HTTP header. If git followed a redirect, it would send this header to another host.
    "http.followRedirects": "false",
    "submodule.recurse": "false",
}


class GitFailed(WorkspaceError):
    """Git exited with a non-zero code or timed out."""

    def __init__(self, command: str, exit_code: int | None, stderr: str, stdout: bytes = b"") -> None:
        self.exit_code = exit_code
        """The exit code of git; None if git timed out."""
        self.stderr = stderr
        self.stdout = stdout
        """Standard output, at most MAX_STDOUT bytes."""
        self.output = stdout[: 1 << 16].decode(errors="replace") + stderr
        self.reason = next(
            (line for line in stderr.splitlines() if line.startswith(("fatal:", "error:", "remote:"))), stderr
        ).strip()[:500]
        problem = "timed out" if exit_code is None else f"failed ({exit_code})"
        super().__init__(f"git {command} {problem}: {self.reason or 'no output'}")


@dataclass(frozen=True)
class GitLimits:
    """The limits of one git process."""

    timeout: float = 120.0
    """Seconds until git is killed."""
    memory: int | None = None
    """Maximum bytes of address space; None for no limit."""


LOCAL_LIMITS = GitLimits()
"""The limits of a command that does not use the network."""


async def run_git(
    *arguments: str,
    git_dir: Path | None = None,
    stdin: bytes = b"",
    config: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    protocols: str = "",
    stdout_file: IO[bytes] | None = None,
    limits: GitLimits = LOCAL_LIMITS,
) -> bytes:
    """Runs git and returns its standard output, at most MAX_STDOUT bytes. If the output goes to
    `stdout_file`, the result is empty.

    `config` contains git settings. They are passed in the environment, because other users cannot read the
    environment but can read command-line arguments. `protocols` are the allowed transports, such as
    "https:http". By default, no transport is allowed.

    Raises GitFailed if git fails, times out or prints too much.
    """
    git_environment = _build_environment({**GIT_CONFIG, **(config or {})}, protocols)
    process = await _start_git(arguments, git_dir, git_environment | dict(environment or {}), stdout_file)
    if limits.memory:
        with contextlib.suppress(ProcessLookupError):  # Git may have exited already.
            resource.prlimit(process.pid, resource.RLIMIT_AS, (limits.memory, limits.memory))
    try:
        async with asyncio.timeout(limits.timeout):
            _, stdout, stderr = await asyncio.gather(
                _write_stdin(process, stdin),
                _read_stream(process.stdout, MAX_STDOUT),
                _read_stream(process.stderr, 1 << 20),
            )
            exit_code = await process.wait()
    except TimeoutError:
        raise GitFailed(arguments[0], None, f"the limit is {limits.timeout:.0f} s") from None
    finally:
        if process.returncode is None:
            await _kill(process)
    if exit_code != 0:
        raise GitFailed(
            arguments[0], exit_code, stderr[: 1 << 16].decode(errors="replace"), stdout[:MAX_STDOUT]
        )
    if len(stdout) > MAX_STDOUT:
        raise GitFailed(arguments[0], exit_code, f"git printed more than {MAX_STDOUT} bytes")
    return stdout


async def _start_git(
    arguments: Sequence[str],
    git_dir: Path | None,
    environment: Mapping[str, str],
    stdout_file: IO[bytes] | None,
) -> asyncio.subprocess.Process:
    """Starts git in a session of its own, so that `_kill` also reaches its child processes."""
    git_dir_arguments = ("--git-dir", str(git_dir)) if git_dir else ()
    start_task = asyncio.create_task(
        asyncio.create_subprocess_exec(
            "git",
            *git_dir_arguments,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout_file or asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=git_dir or "/",
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(start_task)
    except asyncio.CancelledError:  # Without this, asyncio would wait for the child processes of git.
        await _kill(await start_task)
        raise


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kills git and all of its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _write_stdin(process: asyncio.subprocess.Process, stdin: bytes) -> None:
    assert process.stdin is not None
    # Git has exited already, and its exit code explains why.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        # uvloop raises RuntimeError if git has exited and the pipe is closed already.
        if not process.stdin.is_closing():
            process.stdin.write(stdin)
            await process.stdin.drain()
    process.stdin.close()


async def _read_stream(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    """Reads the whole stream. If it has more than `limit` bytes, returns only the first `limit` + 1 bytes."""
    buffer = bytearray()
    while stream is not None and (chunk := await stream.read(1 << 16)):
        buffer += chunk[: limit + 1 - len(buffer)]
    return bytes(buffer)


def _build_environment(config: Mapping[str, str], protocols: str) -> dict[str, str]:
    """Returns the complete environment for git. The host's environment, the user's git configuration and
    repositories in parent directories have no effect.
    """
    proxies = {f"{scheme}_proxy": url for scheme, url in urllib.request.getproxies().items()}
    pairs = {"GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):
        pairs |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        **proxies,
        **pairs,
        "PATH": os.pathsep.join(os.get_exec_path()),
        "HOME": "/nonexistent",  # Otherwise, curl would read a .netrc file in the home directory.
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
