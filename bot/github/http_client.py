"""Sends single requests to GitHub with githubkit, and maps their errors."""

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, cast, get_origin
from urllib.parse import quote

import githubkit
import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from githubkit.auth import AppAuthStrategy, UnauthAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import RateLimitExceeded, RequestError, RequestFailed
from pydantic import SecretStr, TypeAdapter, ValidationError, WrapValidator

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.api_errors import describe_connection_error, error_from_response
from patchwright.bot.github.valid_entries import drop_invalid_entries
from patchwright.resolver.errors import ForgeError, NotFound, RateLimited, SettingsError

T = TypeVar("T")


@dataclass(frozen=True)
class GitHubRequest:
    """A request to GitHub."""

    method: str
    url: str
    """The URL of the request. It may be absolute, or relative to the URL of GitHub's API."""
    params: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, object] | None = None
    etag: str = ""
    """The ETag of an earlier response. If the resource has not changed since then, GitHub sends an empty
    response, which does not count toward the rate limit.
    """


class GitHubClient(githubkit.GitHub[Any]):
    """A githubkit client that keeps one connection pool until it is closed.

    githubkit's own client keeps a pool only for tasks that were started inside its `async with` block. In other
    tasks, such as request handlers, it opens a new pool for each call. A call then takes 20 ms instead of 3 ms.
    """

    _pool: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def get_async_client(self) -> AsyncIterator[httpx.AsyncClient]:
        if self._pool is None:
            self._pool = await self._create_async_client()
        yield self._pool

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None


def _validate_private_key(private_key: SecretStr) -> str:
    key = private_key.get_secret_value()
    try:
        load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Raised without its cause, because the message of the cause may contain the key.
        raise SettingsError(
            "PATCHWRIGHT_PRIVATE_KEY is not a PEM private key. Download a new one from the App's page."
        ) from None
    return key


def create_unauthenticated_client(api_url: str, ssl_context: ssl.SSLContext, timeout: float) -> GitHubClient:
    """Creates a client that adds no credentials. The caller adds an authorization header to each request."""
    return _create_client(UnauthAuthStrategy(), api_url, ssl_context, timeout)


def create_app_client(
    app_id: str, private_key: SecretStr, api_url: str, ssl_context: ssl.SSLContext, timeout: float
) -> GitHubClient:
    """Creates a client that authenticates as the App itself. Raises SettingsError if the key is invalid."""
    return _create_client(
        AppAuthStrategy(app_id, _validate_private_key(private_key)), api_url, ssl_context, timeout
    )


def _create_client(auth: Any, api_url: str, ssl_context: ssl.SSLContext, timeout: float) -> GitHubClient:
    return GitHubClient(
        auth,
        base_url=api_url,
        user_agent="patchwright",
        timeout=timeout,
        ssl_verify=ssl_context,
        auto_retry=False,
        http_cache=False,
        # By default, githubkit uses one cache for the whole process. Its cache keys do not include the base
        # URL or the App's key.
        cache_strategy=MemCacheStrategy(),
    )


async def send_request(
    client: GitHubClient, request: GitHubRequest, authorization: Mapping[str, str]
) -> httpx.Response:
    """Sends a request. Raises ForgeError, or SettingsError if GitHub's certificate is not trusted."""
    headers = authorization if not request.etag else {**authorization, "If-None-Match": request.etag}
    with _translate_errors(f"{request.method} {request.url}"):
        response = await client.arequest(
            request.method, request.url, params=dict(request.params), json=request.json, headers=dict(headers)
        )
        return response.raw_response


@contextmanager
def _translate_errors(operation: str) -> Iterator[None]:
    try:
        yield
    except RateLimitExceeded as exc:
        raise RateLimited(
            f"rate limited by GitHub: {operation}", datetime.now(UTC) + exc.retry_after
        ) from exc
    except RequestFailed as exc:
        raise error_from_response(exc.response.raw_response, operation) from exc
    except ValueError as exc:  # a header that should be a number is not, for example a proxy's retry-after
        raise ForgeUnavailable(f"invalid response from GitHub: {operation}") from exc
    except RequestError as exc:
        if "CERTIFICATE_VERIFY_FAILED" in str(exc.exc):
            raise SettingsError(
                "GitHub's certificate is not trusted. Set PATCHWRIGHT_CA_BUNDLE to its CA file."
            ) from exc
        raise ForgeUnavailable(
            f"no response from GitHub: {operation}: {describe_connection_error(exc.exc)}"
        ) from exc


def parse_response(response_type: type[T], response: httpx.Response) -> T:
    """Parses a response body as `response_type`. Leaves out the invalid entries of a list. Raises
    ForgeError.
    """
    expected: Any = response_type
    if get_origin(response_type) is list:
        expected = Annotated[response_type, WrapValidator(drop_invalid_entries)]
    try:
        return cast("T", TypeAdapter(expected).validate_json(response.content))
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        if first["type"] == "json_invalid":
            raise ForgeUnavailable(
                f"the response to {response.url.path} is not JSON, so it does not come from GitHub's API"
            ) from exc
        where = ".".join(map(str, first["loc"]))
        raise ForgeError(
            f"unexpected response from GitHub: {response.url.path}: {where}: {first['msg']}"
        ) from exc


def join_path(*path: str) -> str:
    """Quotes path segments and joins them. Raises NotFound if a segment such as `..` would change the path."""
    if {"", ".", ".."} & set(path):
        raise NotFound(f"not a path on GitHub: {'/'.join(path)}")
    return "/".join(quote(part, safe="") for part in path)
