"""A repository's own secrets: lent to the command that names one, and to nothing else. What it prints is masked.

The command itself can leak it, as far as the sandbox's network lets it: that is said in docs/security.md.
"""

import asyncio
import re
import shlex
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from resolver.domain import Repo
from resolver.errors import SettingsError
from resolver.secrets import Secrets
from runtime.actions import RunLent, RunShell, SandboxAction
from runtime.observations import Failed, Observation
from runtime.sandbox import Around, Sandbox

Source = Callable[[], Awaitable[str]]
"""A secret's value, asked for each time that it is lent: it may be another one by then. Raises SecretUnavailable."""

SECONDS = 20  # for a program that tells a value
MOST = 100_000  # characters of a value
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretUnavailable(Exception):
    """A secret has no value right now; says why, without any of it."""


class Lending(Around):
    """A sandbox whose shell commands get the secrets that they name.

    Each value is known to `hidden` before any command sees it.
    """

    def __init__(self, sandbox: Sandbox, sources: Mapping[str, Source], hidden: Secrets) -> None:
        super().__init__(sandbox)
        self._sources = dict(sources)
        self._hidden = hidden

    async def act(self, action: SandboxAction) -> Observation:
        if not isinstance(action, RunShell):
            return await self._sandbox.act(action)
        named = [name for name in dict.fromkeys(_NAME.findall(action.command)) if name in self._sources]
        if not named:
            return await self._sandbox.act(action)
        lent: dict[str, str] = {}
        for name in named:
            try:
                lent[name] = await self._sources[name]()
            except SecretUnavailable as reason:
                return Failed(reason="refused", message=f"the secret {name} is not to be had: {reason}")
            self._hidden.add(lent[name])
        return await self._sandbox.act(RunLent(run=action, lent=lent))


def read_secrets(path: Path | None, repo: Repo, environ: Mapping[str, str]) -> dict[str, Source]:
    """The secrets that the operator's file lends to a repository: a table for each, named `owner/name`.

    A value is a text, or says where it is: `{ env = "NAME" }`, `{ file = "path" }`, `{ command = "program" }`.
    No file lends nothing. Raises SettingsError.
    """
    if path is None:
        return {}
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(
                f"{path} can be read by others than its owner: chmod 600 {shlex.quote(str(path))}"
            )
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SettingsError(f"{path} cannot be read: {exc}. Correct or remove it.") from exc
    table: Any = next((found for name, found in tables.items() if name.lower() == str(repo).lower()), {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: `{repo}` must be a table of names and values.")
    return {name: _source(path, name, value, environ) for name, value in table.items()}


def _source(path: Path, name: str, value: Any, environ: Mapping[str, str]) -> Source:
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{path}: {name} cannot be the name of an environment variable.")
    match value:
        case str():
            return _fixed(value)
        case {"env": str(variable), **rest} if not rest:
            return _of_environment(variable, environ)
        case {"file": str(file), **rest} if not rest:
            return _of_file(path.parent / file)
        case {"command": str(command), **rest} if not rest:
            return _of_command(command)
    raise SettingsError(
        f'{path}: {name} must be a text, {{ env = "NAME" }}, {{ file = "path" }} or {{ command = "..." }}.'
    )


def _fixed(value: str) -> Source:
    async def source() -> str:
        return value

    return source


def _of_environment(variable: str, environ: Mapping[str, str]) -> Source:
    async def source() -> str:
        if not (value := environ.get(variable)):
            raise SecretUnavailable(f"the operator's variable {variable} is not set")
        return value

    return source


def _of_file(path: Path) -> Source:
    async def source() -> str:
        try:
            return _bounded(await asyncio.to_thread(path.read_text, "utf-8"))
        except (OSError, UnicodeDecodeError) as exc:
            raise SecretUnavailable("the operator's file cannot be read") from exc

    return source


def _of_command(command: str) -> Source:
    async def source() -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
        except (OSError, ValueError) as exc:
            raise SecretUnavailable("the operator's command cannot be started") from exc
        try:
            async with asyncio.timeout(SECONDS):
                printed, _ = await process.communicate()
        except TimeoutError as exc:
            raise SecretUnavailable(f"the operator's command did not end within {SECONDS} s") from exc
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise SecretUnavailable(f"the operator's command ended with exit code {process.returncode}")
        return _bounded(printed.decode("utf-8", "replace"))

    return source


def _bounded(text: str) -> str:
    """A value without the line end that files and programs put behind it."""
    if len(text) > MOST:
        raise SecretUnavailable("its value is too long")
    return text.rstrip("\r\n")
