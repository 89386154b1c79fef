"""One request to GitHub by githubkit: how it is sent, and what its errors mean."""

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import githubkit
import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from githubkit.auth import AppAuthStrategy, UnauthAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import RateLimitExceeded, RequestError, RequestFailed
from pydantic import SecretStr, TypeAdapter, ValidationError

from bot.errors import Unanswered
from bot.github.meanings import meaning
from resolver.errors import ForgeError, NotFound, RateLimited, SettingsError

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What is asked."""

    method: str
    url: str
    """Relative to the API's, or whole."""
    params: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, object] | None = None
    etag: str = ""
    """Of the answer that we know; the same one is not sent again, and counts against no limit."""


class Client(githubkit.GitHub[Any]):
    """One connection pool for the client's whole life.

    githubkit keeps the pool of its `async with` in a context variable: a task that was not started inside,
    such as a request handler, does not see it, and then each call builds a pool (20 ms instead of 3).
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


def _checked(private_key: SecretStr) -> str:
    key = private_key.get_secret_value()
    try:
        load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without its cause, which may quote the key.
        raise SettingsError(
            "PATCHWRIGHT_PRIVATE_KEY is no PEM private key: download a new one from the App's page"
        ) from None
    return key


def anonymous(api_url: str, trust: ssl.SSLContext, timeout: float) -> Client:
    """A client that says who it is with each request, in a header."""
    return _client(UnauthAuthStrategy(), api_url, trust, timeout)


def as_app(
    app_id: str, private_key: SecretStr, api_url: str, trust: ssl.SSLContext, timeout: float
) -> Client:
    """A client that speaks for the app itself. Raises SettingsError when the key is none."""
    return _client(AppAuthStrategy(app_id, _checked(private_key)), api_url, trust, timeout)


def _client(auth: Any, api_url: str, trust: ssl.SSLContext, timeout: float) -> Client:
    return Client(
        auth,
        base_url=api_url,
        user_agent="patchwright",
        timeout=timeout,
        ssl_verify=trust,
        auto_retry=False,
        http_cache=False,
        # Its default is one cache for the whole process, keyed without base URL or key.
        cache_strategy=MemCacheStrategy(),
    )


async def ask(client: Client, request: Request, authorization: Mapping[str, str]) -> httpx.Response:
    """The answer to it. Raises ForgeError, or SettingsError where GitHub's certificate is not trusted."""
    headers = authorization if not request.etag else {**authorization, "If-None-Match": request.etag}
    with _translated(f"{request.method} {request.url}"):
        answer = await client.arequest(
            request.method, request.url, params=dict(request.params), json=request.json, headers=dict(headers)
        )
        return answer.raw_response


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except RateLimitExceeded as exc:
        raise RateLimited(f"GitHub asks us to wait: {what}", datetime.now(UTC) + exc.retry_after) from exc
    except RequestFailed as exc:
        raise meaning(exc.response.raw_response, what) from exc
    except ValueError as exc:  # a header that should be a number, such as a proxy's own retry-after
        raise Unanswered(f"no usable answer from GitHub: {what}") from exc
    except RequestError as exc:
        if "CERTIFICATE_VERIFY_FAILED" in str(exc.exc):
            raise SettingsError(
                "GitHub's certificate is not trusted here: name its authority in PATCHWRIGHT_CA_BUNDLE"
            ) from exc
        raise Unanswered(f"no answer from GitHub: {what}: {exc.exc!r}") from exc


def read(shape: type[T], response: httpx.Response) -> T:
    """Its body in this shape. Raises ForgeError."""
    try:
        return TypeAdapter(shape).validate_json(response.content)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ForgeError(
            f"{response.url.path} is not answered as GitHub does: {where}: {first['msg']}"
        ) from exc


def join(*path: str) -> str:
    """A path of which no part can become two, or none. Raises NotFound for a name that no server has."""
    if {"", ".", ".."} & set(path):
        raise NotFound(f"there is nothing on GitHub at {'/'.join(path)}")
    return "/".join(quote(part, safe="") for part in path)
