"""GitHub over HTTP, by githubkit: who we are, how long we wait, when we ask again, what its errors mean."""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import githubkit
import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from githubkit.auth import AppAuthStrategy, UnauthAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import RateLimitExceeded, RequestError, RequestFailed
from pydantic import SecretStr, TypeAdapter, ValidationError

from bot.answers import InstallationAnswer, TokenAnswer
from bot.errors import Unanswered
from bot.meanings import meaning
from resolver.domain import Credentials, Repo
from resolver.errors import Forbidden, ForgeError, NotFound, RateLimited, SettingsError, Unauthorized

T = TypeVar("T")

# Asked for by name, so that a token never has more of what the app was given.
PERMISSIONS = {"contents": "write", "issues": "write", "pull_requests": "write"}
# Only where the installation grants them: to ask for what it does not is refused, and they can be done without.
OPTIONAL = {"checks": "write", "actions": "read", "statuses": "read"}
FRESH = timedelta(minutes=15)  # a token must last through a clone or push; GitHub's live an hour
PER_PAGE = 100  # GitHub's most
MOST_PAGES = 100


@dataclass(frozen=True)
class TokenAccess:
    """A personal access token, or the token of an Actions run."""

    token: SecretStr


@dataclass(frozen=True)
class AppAccess:
    """A GitHub App; its installations give it tokens, each for one repository."""

    app_id: str
    private_key: SecretStr
    """PEM."""
    workflows: bool = False
    """Whether its tokens may change workflows, where it was given that permission."""


@dataclass(frozen=True)
class Pace:
    """How fast and how patient. Source: docs.github.com, best practices for using the REST API."""

    between_writes: float = 1.0
    """Seconds, at least."""
    attempts: int = 4
    """How often a request is made that gets no answer."""
    first_pause: float = 0.5
    """Seconds before the second attempt; doubled each time, with jitter."""
    longest_wait: float = 60.0
    """Seconds that a rate limit is waited out here; beyond that RateLimited is raised."""
    timeout: float = 30.0
    """Seconds without a byte from GitHub."""


class _Client(githubkit.GitHub[Any]):
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


@dataclass(frozen=True)
class _Request:
    method: str
    url: str
    """Relative to the API's, or whole."""
    params: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, object] | None = None
    etag: str = ""
    """Of the answer that we know; the same one is not sent again, and counts against no limit."""


Who: TypeAlias = Repo | Credentials | None
"""In whose name we ask: with a token for this repository, with this very one, or as the App itself."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list."""

    found: T
    etag: str
    following: Mapping[str, str] | None
    """The query of the next page; None: it is the last."""


class Rest:
    """Requests in the name of a token or of an app's installation on the repository at hand."""

    def __init__(
        self, access: TokenAccess | AppAccess, api_url: str, ca_bundle: Path | None, pace: Pace
    ) -> None:
        """Raises SettingsError when the app's key is none."""
        trust = httpx.create_ssl_context()
        if ca_bundle is not None:
            trust.load_verify_locations(ca_bundle)
        self._access = access
        self._pace = pace
        self._plain = _client(UnauthAuthStrategy(), api_url, trust, pace)
        self._as_app: _Client | None = None
        if isinstance(access, AppAccess):
            key = _checked(access.private_key)
            self._as_app = _client(AppAuthStrategy(access.app_id, key), api_url, trust, pace)
        self._tokens: dict[Repo, Credentials] = {}
        self._minting = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._last_write = float("-inf")

    @property
    def is_app(self) -> bool:
        return self._as_app is not None

    @property
    def between_writes(self) -> float:
        """Seconds to leave between two requests that change something."""
        return self._pace.between_writes

    async def aclose(self) -> None:
        await self._plain.aclose()
        if self._as_app is not None:
            await self._as_app.aclose()

    # --- requests -------------------------------------------------------------------------------------------

    async def greet(self) -> None:
        """Ask once whether our key or token is known. Raises Unauthorized when it is not, else ForgeError."""
        if isinstance(self._access, TokenAccess):
            headers = {"Authorization": f"Bearer {self._access.token.get_secret_value()}"}
            with contextlib.suppress(
                Forbidden
            ):  # known, but the token of an Actions run may not ask who it is
                await _ask(self._plain, _Request("GET", "user"), headers)
        elif self._as_app is not None:
            await _ask(self._as_app, _Request("GET", "app"), {})

    async def get(self, shape: type[T], repo: Repo, *path: str, **query: str) -> T:
        """What is there, in the shape wanted. Raises ForgeError."""
        return _read(shape, await self._patient(repo, _Request("GET", join(*path), params=query)))

    async def get_all(self, shape: type[T], who: Who, *path: str, **query: str) -> list[T]:
        """All pages, at most 10,000 items. Raises ForgeError."""
        pages = self.pages(list[shape], who, *path, **query)  # type: ignore[valid-type]
        return [item async for found in pages for item in found]

    async def pages(self, shape: type[T], who: Who, *path: str, **query: str) -> AsyncIterator[T]:
        """Page after page, at most 100. Raises ForgeError."""
        wanted: Mapping[str, str] | None = {"per_page": str(PER_PAGE), **query}
        for _ in range(MOST_PAGES):
            if wanted is None or (page := await self.page(shape, who, *path, **wanted)) is None:
                return
            yield page.found
            wanted = page.following

    async def page(
        self, shape: type[T], who: Who, *path: str, etag: str = "", **query: str
    ) -> Page[T] | None:
        """One page; None: it is still what it was when it had this `etag`. Raises ForgeError."""
        answer = await self._patient(who, _Request("GET", join(*path), params=query, etag=etag))
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        following = answer.links.get("next", {}).get("url")
        return Page(
            _read(shape, answer),
            answer.headers.get("etag", ""),
            dict(parse_qsl(urlsplit(following).query)) if following else None,
        )

    async def patch(self, shape: type[T], repo: Repo, *path: str, body: Mapping[str, object]) -> T:
        """A change to what is there: doing it twice does no more than once. Raises ForgeError."""
        return _read(shape, await self._patient(repo, _Request("PATCH", join(*path), json=body)))

    async def post(self, shape: type[T], who: Who, *path: str, body: Mapping[str, object] | None = None) -> T:
        """Something new. Raises Unanswered when it may or may not be there: look before you ask again."""
        return _read(shape, await self._patient(who, _Request("POST", join(*path), json=body), again=False))

    async def post_query(
        self, shape: type[T], repo: Repo, url: str, body: Mapping[str, object], *, again: bool = True
    ) -> T:
        """A GraphQL request. `again=False`: its repetition does harm, see `post`. Raises ForgeError."""
        return _read(shape, await self._patient(repo, _Request("POST", url, json=body), again=again))

    async def delete(self, repo: Repo, *path: str) -> None:
        """Have something away; that it is away already is no error. Raises ForgeError."""
        with contextlib.suppress(NotFound):
            await self._patient(repo, _Request("DELETE", join(*path)))

    def forget(self, repo: Repo, credentials: Credentials) -> None:
        """These credentials do not work any more: the next ones are minted anew."""
        if self._tokens.get(repo) == credentials:
            del self._tokens[repo]

    async def get_as_app(self, shape: type[T], *path: str) -> T:
        """What only the app itself may ask. Raises ForgeError."""
        return _read(shape, await self._patient(None, _Request("GET", join(*path))))

    # --- tokens ---------------------------------------------------------------------------------------------

    async def credentials(self, repo: Repo) -> Credentials:
        """A token for this repository that lasts at least 15 minutes more.

        Raises Forbidden if the app is not installed there.
        Source: docs.github.com/rest/apps/apps#create-an-installation-access-token-for-an-app
        """
        if isinstance(self._access, TokenAccess):
            return Credentials(token=self._access.token.get_secret_value())
        async with self._minting:
            known = self._tokens.get(repo)
            if known is None or known.expires is None or known.expires < datetime.now(UTC) + FRESH:
                known = self._tokens[repo] = await self._mint(repo)
            return known

    async def _mint(self, repo: Repo) -> Credentials:
        try:
            installation = await self.get_as_app(
                InstallationAnswer, "repos", repo.owner, repo.name, "installation"
            )
        except NotFound as exc:
            raise Forbidden(f"the app is not installed on {repo}: its owner must install it there") from exc
        wanted = dict(PERMISSIONS)
        for name, least in OPTIONAL.items():
            if installation.permissions.get(name) in (least, "write"):
                wanted[name] = least
        if isinstance(self._access, AppAccess) and self._access.workflows:
            wanted |= {name: has for name, has in installation.permissions.items() if name == "workflows"}
        return await self.mint(installation.id, repositories=[repo.name], permissions=wanted)

    async def mint(self, installation: int, **wanted: object) -> Credentials:
        """A token of this installation, with no more than what is wanted. Raises ForgeError."""
        path = join("app", "installations", str(installation), "access_tokens")
        made = _read(TokenAnswer, await self._patient(None, _Request("POST", path, json=wanted)))
        return Credentials(token=made.token, expires=made.expires_at)

    # --- patience -------------------------------------------------------------------------------------------

    async def _patient(self, who: Who, request: _Request, *, again: bool = True) -> httpx.Response:
        """The answer. `again=False`: it is asked again only when it was surely not carried out."""
        for attempt in range(1, self._pace.attempts + 1):
            try:
                return await self._in_our_name(who, request)
            except RateLimited as exc:
                wait = (exc.until - datetime.now(UTC)).total_seconds()
                if attempt == self._pace.attempts or wait > self._pace.longest_wait:
                    raise
            except Unanswered:
                if attempt == self._pace.attempts or not again:
                    raise
                wait = self.pause(attempt)
            await asyncio.sleep(max(wait, 0.0))
        raise AssertionError("the last attempt returns or raises")

    def pause(self, attempt: int) -> float:
        """Seconds to wait after this attempt got no answer; the first is 1."""
        doubled: float = self._pace.first_pause * 2 ** (attempt - 1)
        return doubled * random.uniform(0.5, 1.5)

    async def _in_our_name(self, who: Who, request: _Request) -> httpx.Response:
        if isinstance(who, Credentials):
            return await self._paced(request, who)
        if who is None:
            if self._as_app is None:
                raise SettingsError(
                    "only a GitHub App can ask that: set PATCHWRIGHT_APP_ID and its private key"
                )
            return await _ask(self._as_app, request, {})
        credentials = await self.credentials(who)
        try:
            return await self._paced(request, credentials)
        except Unauthorized:
            # Revoked or expired before its time; githubkit would go on using it for an hour.
            self.forget(who, credentials)
            renewed = await self.credentials(who)
            if renewed == credentials:
                raise
            return await self._paced(request, renewed)

    async def _paced(self, request: _Request, credentials: Credentials) -> httpx.Response:
        headers = {"Authorization": f"Bearer {credentials.token}"}
        if request.method == "GET":
            return await _ask(self._plain, request, headers)
        async with self._writing:
            clock = asyncio.get_running_loop()
            await asyncio.sleep(max(self._last_write + self._pace.between_writes - clock.time(), 0.0))
            try:
                return await _ask(self._plain, request, headers)
            finally:
                self._last_write = clock.time()


def path_of(repo: Repo) -> tuple[str, str, str]:
    """Where the API has a repository."""
    return "repos", repo.owner, repo.name


def join(*path: str) -> str:
    """A path of which no part can become two, or none. Raises NotFound for a name that no server has."""
    if {"", ".", ".."} & set(path):
        raise NotFound(f"there is nothing on GitHub at {'/'.join(path)}")
    return "/".join(quote(part, safe="") for part in path)


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


def _client(auth: Any, api_url: str, trust: ssl.SSLContext, pace: Pace) -> _Client:
    return _Client(
        auth,
        base_url=api_url,
        user_agent="patchwright",
        timeout=pace.timeout,
        ssl_verify=trust,
        auto_retry=False,
        http_cache=False,
        # Its default is one cache for the whole process, keyed without base URL or key.
        cache_strategy=MemCacheStrategy(),
    )


async def _ask(client: _Client, request: _Request, authorization: Mapping[str, str]) -> httpx.Response:
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


def _read(shape: type[T], response: httpx.Response) -> T:
    try:
        return TypeAdapter(shape).validate_json(response.content)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ForgeError(
            f"{response.url.path} is not answered as GitHub does: {where}: {first['msg']}"
        ) from exc
