"""Injects a repository's own secrets into the commands that name them, and masks the secrets in the output.

The command itself can leak a secret to hosts that the sandbox can reach; see docs/security.md.
"""

import asyncio
import re
import shlex
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import SettingsError, describe_read_error
from patchwright.resolver.secrets import Secrets
from patchwright.runtime.actions import RunShell, RunShellWithSecrets, SandboxAction
from patchwright.runtime.observations import ActionFailure, Observation
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox

SecretSource = Callable[[], Awaitable[str]]
"""Returns the current value of a secret. It is called again for each command, because the value may have
changed. Raises SecretUnavailable.
"""

COMMAND_TIMEOUT = 20  # seconds for the operator's command that prints a secret's value
MAX_VALUE_LENGTH = 100_000  # characters
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretUnavailable(Exception):
    """A secret's value is not available now. The message gives the reason and contains no part of the
    value.
    """


class SecretInjectingSandbox(WrapperSandbox):
    """A sandbox that passes secrets to shell commands as environment variables. A command gets only the
    secrets that it names.

    Before a command runs, the values of its secrets are added to `secrets`, so that they are masked in the
    output.
    """

    def __init__(self, sandbox: Sandbox, sources: Mapping[str, SecretSource], secrets: Secrets) -> None:
        super().__init__(sandbox)
        self._sources = dict(sources)
        self._secrets = secrets

    async def act(self, action: SandboxAction) -> Observation:
        if not isinstance(action, RunShell):
            return await self._sandbox.act(action)
        names = [name for name in dict.fromkeys(_NAME.findall(action.command)) if name in self._sources]
        if not names:
            return await self._sandbox.act(action)
        values: dict[str, str] = {}
        for name in names:
            try:
                values[name] = await self._sources[name]()
            except SecretUnavailable as reason:
                return ActionFailure(
                    reason="refused", message=f"the secret {name} is not available: {reason}"
                )
            self._secrets.add(values[name])
        return await self._sandbox.act(RunShellWithSecrets(shell=action, secret_env=values))


def load_secret_sources(path: Path | None, repo: Repo, environ: Mapping[str, str]) -> dict[str, SecretSource]:
    """Returns the secrets of a repository from the operator's file. If there is no file, there are no
    secrets.

    The file has a table `owner/name` for each repository. A value is a string, or one of `{ env = "NAME" }`,
    `{ file = "path" }`, `{ command = "program" }`. Raises SettingsError.
    """
    if path is None:
        return {}
    tables = read_secrets_file(path)
    table: Any = next(
        (candidate for name, candidate in tables.items() if name.lower() == str(repo).lower()), {}
    )
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: `{repo}` must be a table of names and values.")
    return {name: _parse_source(path, name, value, environ) for name, value in table.items()}


def read_secrets_file(path: Path | None) -> Mapping[str, object]:
    """Returns the tables of the operator's file with secrets, or no tables if there is no file. Raises
    SettingsError if the file is unreadable, or if other users can read it.
    """
    if path is None:
        return {}
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(
                f"{path} is readable by users other than its owner: run chmod 600 {shlex.quote(str(path))}"
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SettingsError(
            f"{path} cannot be read: {describe_read_error(exc)}. Correct or remove this file."
        ) from exc


def _parse_source(path: Path, name: str, value: Any, environ: Mapping[str, str]) -> SecretSource:
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{path}: {name} cannot be the name of an environment variable.")
    match value:
        case str():
            return _fixed_source(value)
        case {"env": str(variable), **rest} if not rest:
            return _environment_source(variable, environ)
        case {"file": str(file), **rest} if not rest:
            return _file_source(path.parent / file)
        case {"command": str(command), **rest} if not rest:
            return _command_source(command)
    raise SettingsError(
        f'{path}: {name} must be a string, {{ env = "NAME" }}, {{ file = "path" }} or {{ command = "..." }}.'
    )


def _fixed_source(value: str) -> SecretSource:
    async def source() -> str:
        return value

    return source


def _environment_source(variable: str, environ: Mapping[str, str]) -> SecretSource:
    async def source() -> str:
        if not (value := environ.get(variable)):
            raise SecretUnavailable(f"the operator's variable {variable} is not set")
        return value

    return source


def _file_source(path: Path) -> SecretSource:
    async def source() -> str:
        try:
            return _check_value(await asyncio.to_thread(path.read_text, "utf-8"))
        except (OSError, UnicodeDecodeError) as exc:
            raise SecretUnavailable("the operator's file cannot be read") from exc

    return source


def _command_source(command: str) -> SecretSource:
    async def source() -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
        except (OSError, ValueError) as exc:
            raise SecretUnavailable("the operator's command cannot be started") from exc
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                output, _ = await process.communicate()
        except TimeoutError as exc:
            raise SecretUnavailable(
                f"the operator's command did not finish within {COMMAND_TIMEOUT} s"
            ) from exc
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise SecretUnavailable(f"the operator's command failed with exit code {process.returncode}")
        return _check_value(output.decode("utf-8", "replace"))

    return source


def _check_value(text: str) -> str:
    """Removes the line break that files and programs add at the end of a secret's value. Raises
    SecretUnavailable if the value is too long.
    """
    if len(text) > MAX_VALUE_LENGTH:
        raise SecretUnavailable("the value is too long")
    return text.rstrip("\r\n")
