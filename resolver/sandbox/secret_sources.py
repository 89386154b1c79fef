"""The sources of a repository's own secrets: the operator's file, and what its values refer to."""

import asyncio
import json
import re
import shlex
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import SettingsError, describe_read_error

COMMAND_TIMEOUT = 20  # seconds for the operator's command that prints a secret's value
HTTP_TIMEOUT = 20.0  # seconds for one response
MAX_VALUE_LENGTH = 100_000  # characters
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretUnavailable(Exception):
    """A secret's value is not available now. The message gives the reason and contains no part of the
    value.
    """


class SecretSource(Protocol):
    """Provides the value of a secret. A program that uses Patchwright as a library can add sources of its own."""

    async def get_value(self) -> str:
        """Returns the current value. It is called for each command, because the value may have changed. Raises
        SecretUnavailable.
        """


def load_secret_sources(
    path: Path | None, repo: Repo, environ: Mapping[str, str], ca_bundle: Path | None = None
) -> dict[str, SecretSource]:
    """Returns the secrets of a repository from the operator's file. If there is no file, there are no
    secrets.

    The file has a table `owner/name` for each repository. A value is a string, or one of `{ env = "NAME" }`,
    `{ file = "path" }`, `{ command = "program" }`, `{ url = "https://..." }`. `ca_bundle` is a file with CA
    certificates for such a URL. Raises SettingsError.
    """
    if path is None:
        return {}
    tables = read_secrets_file(path)
    table: Any = next(
        (candidate for name, candidate in tables.items() if name.lower() == str(repo).lower()), {}
    )
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: `{repo}` must be a table of names and values.")
    sources = {name: _parse_source(path, name, value, environ) for name, value in table.items()}
    for source in sources.values():
        if isinstance(source, HttpSecret):
            source.ca_bundle = ca_bundle
    return sources


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
    if source := _parse_local_source(path, value, environ):
        return source
    match value:
        case {"url": str(), **rest} if rest.keys() <= {"headers", "field", "max_age"}:
            return _parse_http_source(path, name, value, environ)
    raise SettingsError(
        f'{path}: {name} must be a string, {{ env = "NAME" }}, {{ file = "path" }}, {{ command = "..." }} or '
        '{ url = "https://..." }.'
    )


def _parse_local_source(path: Path, value: Any, environ: Mapping[str, str]) -> SecretSource | None:
    match value:
        case str():
            return FixedSecret(value)
        case {"env": str(variable), **rest} if not rest:
            return EnvironmentSecret(variable, environ)
        case {"file": str(file), **rest} if not rest:
            return FileSecret(path.parent / file)
        case {"command": str(command), **rest} if not rest:
            return CommandSecret(command)
    return None


def _parse_http_source(
    path: Path, name: str, options: Mapping[str, Any], environ: Mapping[str, str]
) -> "HttpSecret":
    url: str = options["url"]
    parts = urlsplit(url)
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or "@" in parts.netloc or not (parts.scheme == "https" or is_local):
        raise SettingsError(f"{path}: the url of {name} must begin with https:// and contain no credentials.")
    table, key, age = options.get("headers", {}), options.get("field", ""), options.get("max_age", 0)
    if not isinstance(table, dict) or not isinstance(key, str) or type(age) is not int or age < 0:
        raise SettingsError(
            f"{path}: {name} takes a table `headers`, a text `field`, and `max_age` in whole seconds."
        )
    headers = {header: _parse_local_source(path, value, environ) for header, value in table.items()}
    found = {header: source for header, source in headers.items() if source is not None}
    if len(found) < len(headers):
        raise SettingsError(f"{path}: a header of {name} must be a string, or an env, a file or a command.")
    return HttpSecret(url, found, key, age)


@dataclass(frozen=True)
class FixedSecret:
    """A value that never changes."""

    value: str = field(repr=False)

    async def get_value(self) -> str:
        return self.value


@dataclass(frozen=True)
class EnvironmentSecret:
    """The value of an environment variable of the operator."""

    variable: str
    environ: Mapping[str, str] = field(repr=False)

    async def get_value(self) -> str:
        if not (value := self.environ.get(self.variable)):
            raise SecretUnavailable(f"the operator's variable {self.variable} is not set")
        return value


@dataclass(frozen=True)
class FileSecret:
    """The content of a file of the operator."""

    path: Path

    async def get_value(self) -> str:
        try:
            return _check_value(await asyncio.to_thread(self.path.read_text, "utf-8"))
        except (OSError, UnicodeDecodeError) as exc:
            raise SecretUnavailable("the operator's file cannot be read") from exc


@dataclass(frozen=True)
class CommandSecret:
    """The output of a program of the operator."""

    command: str

    async def get_value(self) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.command), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
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


@dataclass
class HttpSecret:
    """The response of the operator's secret server to a GET request. The values of its headers are secrets, too."""

    url: str
    headers: Mapping[str, SecretSource] = field(repr=False)
    key: str = ""
    """The place of the value in a JSON response, such as `data.token`. If it is empty, the whole body is the value."""
    max_age: int = 0
    """Seconds for which a value is used again. Then a new value is requested."""
    ca_bundle: Path | None = None
    """File with CA certificates (PEM) that are trusted in addition to the usual ones."""
    _cached: tuple[float, str] | None = None

    async def get_value(self) -> str:
        now = time.monotonic()
        if self._cached is None or now - self._cached[0] >= self.max_age:
            self._cached = (now, await self._request())
        return self._cached[1]

    async def _request(self) -> str:
        import httpx

        ssl_context = httpx.create_ssl_context()
        if self.ca_bundle is not None:
            ssl_context.load_verify_locations(self.ca_bundle)
        headers = {name: await source.get_value() for name, source in self.headers.items()}
        try:
            # Redirects are not followed: they would send the headers to another server.
            async with (
                asyncio.timeout(HTTP_TIMEOUT),
                httpx.AsyncClient(verify=ssl_context, follow_redirects=False, timeout=HTTP_TIMEOUT) as client,
                client.stream("GET", self.url, headers=headers) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes(1 << 14):
                    body += chunk
                    if len(body) > 2 * MAX_VALUE_LENGTH:
                        raise SecretUnavailable("the response of the secret server is too long")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError):
            # The cause is not kept, because its text could contain a header.
            raise SecretUnavailable("the secret server cannot be reached") from None
        if response.status_code != httpx.codes.OK:
            raise SecretUnavailable(f"the secret server returned {response.status_code}")
        return self._read_value(bytes(body))

    def _read_value(self, body: bytes) -> str:
        try:
            value: Any = json.loads(body) if self.key else body.decode()
            for key in filter(None, self.key.split(".")):
                value = value[key]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SecretUnavailable("the response of the secret server has another form") from None
        if not isinstance(value, str) or not value:
            raise SecretUnavailable("the response of the secret server has another form")
        return _check_value(value)


def _check_value(text: str) -> str:
    """Removes the line break that files and programs add at the end of a secret's value. Raises
    SecretUnavailable if the value is too long.
    """
    if len(text) > MAX_VALUE_LENGTH:
        raise SecretUnavailable("the value is too long")
    return text.rstrip("\r\n")
