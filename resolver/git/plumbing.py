"""One git process on the host: a clean environment, no hooks, no prompts, a time limit, bounded output.

It runs in bare repositories of ours only, never in a tree that an agent touched.
"""

import asyncio
import contextlib
import os
import resource
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from resolver.errors import WorkspaceError

LOCAL_SECONDS = 120.0
MAX_OUTPUT = 64_000_000  # bytes of standard output that are kept in memory

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.autocrlf": "false",
    "core.packedGitWindowSize": "32m",
    "core.packedGitLimit": "512m",
    "credential.helper": "",
    "fetch.recurseSubmodules": "false",
    "gc.autoDetach": "false",
    # Ours is a header, and git would hand it to the host that a redirect names.
    "http.followRedirects": "false",
    "submodule.recurse": "false",
}


class GitFailed(WorkspaceError):
    """git ended with another exit code than 0."""

    def __init__(self, command: str, exit_code: int | None, stderr: str, stdout: bytes = b"") -> None:
        self.exit_code = exit_code
        """None: it ran out of its time."""
        self.stderr = stderr
        self.stdout = stdout
        """At most MAX_OUTPUT bytes."""
        self.output = stdout[: 1 << 16].decode(errors="replace") + stderr
        self.reason = next(
            (line for line in stderr.splitlines() if line.startswith(("fatal:", "error:", "remote:"))), stderr
        ).strip()[:500]
        how = "ran out of time" if exit_code is None else f"failed ({exit_code})"
        super().__init__(f"git {command} {how}: {self.reason or 'it printed nothing'}")


async def run_git(
    *arguments: str,
    git_dir: Path | None = None,
    stdin: bytes = b"",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    protocols: str = "",
    into: IO[bytes] | None = None,
    memory: int | None = None,
    seconds: float = LOCAL_SECONDS,
) -> bytes:
    """What git printed, at most MAX_OUTPUT bytes of it; nothing when it goes `into` a file.

    `settings` are git settings, passed in the environment of this process: unlike arguments, that is readable
    by this user alone. `protocols` are the transports it may use ("https:http"); none otherwise.
    Raises GitFailed when it fails, runs out of its time or prints more.
    """
    place = ("--git-dir", str(git_dir)) if git_dir else ()
    beginning = asyncio.create_task(
        asyncio.create_subprocess_exec(
            "git",
            *place,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=into or asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment({**SETTINGS, **(settings or {})}, protocols) | dict(environment or {}),
            cwd=git_dir or "/",
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(beginning)
    except asyncio.CancelledError:  # cancelled in its middle, asyncio would wait for what git has begun
        await _kill(await beginning)
        raise
    if memory:
        with contextlib.suppress(ProcessLookupError):  # it may be done already
            resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
    try:
        async with asyncio.timeout(seconds):
            _, stdout, stderr = await asyncio.gather(
                _feed(process, stdin), _drain(process.stdout, MAX_OUTPUT), _drain(process.stderr, 1 << 20)
            )
            exit_code = await process.wait()
    except TimeoutError:
        raise GitFailed(arguments[0], None, f"its limit is {seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            await _kill(process)
    if exit_code != 0:
        raise GitFailed(
            arguments[0], exit_code, stderr[: 1 << 16].decode(errors="replace"), stdout[:MAX_OUTPUT]
        )
    if len(stdout) > MAX_OUTPUT:
        raise GitFailed(arguments[0], exit_code, f"it printed more than {MAX_OUTPUT} bytes")
    return stdout


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End git and all that it has begun."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _feed(process: asyncio.subprocess.Process, stdin: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its exit code tells more
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _drain(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    """All of it when it has at most `limit` bytes, else `limit` + 1; the rest is read and forgotten."""
    kept = bytearray()
    while stream is not None and (piece := await stream.read(1 << 16)):
        kept += piece[: limit + 1 - len(kept)]
    return bytes(kept)


def _environment(settings: Mapping[str, str], protocols: str) -> dict[str, str]:
    """All that git gets to see: nothing of ours, of the user's configuration or of an outer git's."""
    proxies = {f"{scheme}_proxy": url for scheme, url in urllib.request.getproxies().items()}
    pairs = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        pairs |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        **proxies,
        **pairs,
        "PATH": os.pathsep.join(os.get_exec_path()),
        "HOME": "/nonexistent",  # curl would read a .netrc there
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
