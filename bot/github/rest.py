"""GitHub's REST API: authentication, rate limits, retries and pagination."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpx

from patchwright.bot.errors import ForgeUnavailable, PermissionNotGranted
from patchwright.bot.github.auth import AppAuth, RequestPolicy, TokenAuth
from patchwright.bot.github.http_client import (
    GitHubClient,
    GitHubRequest,
    create_app_client,
    create_unauthenticated_client,
    join_path,
    parse_response,
    send_request,
)
from patchwright.bot.github.schemas import InstallationResponse, InstallationTokenResponse
from patchwright.bot.github.tls import create_ssl_context
from patchwright.bot.write_limiter import (
    LocalWriteLimiter,
    Priority,
    WriteLimiter,
    acquire,
    current_priority,
    raise_if_blocked,
)
from patchwright.resolver.domain import Credentials, Repo
from patchwright.resolver.errors import Forbidden, NotFound, RateLimited, SettingsError, Unauthorized

T = TypeVar("T")

# Token requests list these permissions. A token that lists none would get all of the App's permissions.
REQUIRED_PERMISSIONS = {"contents": "write", "issues": "write", "pull_requests": "write"}
# Requested only if the installation has granted them. Otherwise GitHub would reject the token request.
OPTIONAL_PERMISSIONS = (("checks", "read"), ("checks", "write"), ("actions", "read"), ("statuses", "read"))
MIN_TOKEN_LIFETIME = timedelta(minutes=15)  # enough for a clone; tokens are valid for an hour
PERMISSION_DELAY = timedelta(minutes=1)
MAX_ATTEMPTS = 4  # maximum number of attempts for a request that gets no usable response
PER_PAGE = 100  # GitHub's maximum
MAX_PAGES = 100


Principal: TypeAlias = Repo | Credentials | None
"""The sender of a request: the token of a repository (Repo), a given token (Credentials), or the App (None)."""


@dataclass(frozen=True)
class ResultPage(Generic[T]):
    """One page of a list."""

    data: T
    etag: str
    next_query: Mapping[str, str] | None
    """The query parameters of the next page; None if this is the last page."""


class RestClient:
    """Sends REST requests with a token, or as the App's installation in a repository."""

    def __init__(
        self,
        auth: TokenAuth | AppAuth,
        api_url: str,
        ca_bundle: Path | None,
        policy: RequestPolicy,
        write_limiter: WriteLimiter | None = None,
    ) -> None:
        """`write_limiter` limits the rate of writes. If it is None, the limit applies to this process only.

        Raises SettingsError if the App's key is invalid.
        """
        ssl_context = create_ssl_context(ca_bundle)
        self._auth = auth
        self._policy = policy
        self._token_client = create_unauthenticated_client(api_url, ssl_context, policy.timeout)
        self._app_client: GitHubClient | None = None
        if isinstance(auth, AppAuth):
            self._app_client = create_app_client(
                auth.app_id, auth.private_key, api_url, ssl_context, policy.timeout
            )
        self._tokens: dict[Repo, Credentials] = {}
        self._token_lock = asyncio.Lock()
        self._write_limiter = write_limiter or LocalWriteLimiter()
        self._minted_tokens: dict[str, tuple[int, InstallationTokenResponse]] = {}
        """Valid tokens of installations, each with the installation's ID and GitHub's response."""

    @property
    def is_app(self) -> bool:
        return self._app_client is not None

    @property
    def write_interval(self) -> float:
        """Minimum time between two writes, in seconds."""
        return self._policy.write_interval

    def lock(self, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Returns the lock with this name from the write limiter; see `WriteLimiter.lock`."""
        return self._write_limiter.lock(name)

    async def aclose(self) -> None:
        await self._token_client.aclose()
        if self._app_client is not None:
            await self._app_client.aclose()

    # --- requests -------------------------------------------------------------------------------------------

    async def verify_credentials(self) -> None:
        """Checks the key or token without retries. Raises Unauthorized if it is invalid, or another ForgeError."""
        if isinstance(self._auth, TokenAuth):
            headers = {"Authorization": f"Bearer {self._auth.token.get_secret_value()}"}
            with contextlib.suppress(
                Forbidden
            ):  # the token is valid, but the token of a workflow may not request its user
                await send_request(self._token_client, GitHubRequest("GET", "user"), headers)
        elif self._app_client is not None:
            await send_request(self._app_client, GitHubRequest("GET", "app"), {})

    async def get(self, response_type: type[T], principal: Principal, *path: str, **query: str) -> T:
        """Gets a resource, parsed as `response_type`. Raises ForgeError."""
        request = GitHubRequest("GET", join_path(*path), params=query)
        return parse_response(response_type, await self._send_with_retries(principal, request))

    async def get_all(
        self, response_type: type[T], principal: Principal, *path: str, **query: str
    ) -> list[T]:
        """Gets all pages, at most 10,000 items. Raises ForgeError."""
        pages = self.iter_pages(list[response_type], principal, *path, **query)  # type: ignore[valid-type]
        return [item async for found in pages for item in found]

    async def iter_pages(
        self, response_type: type[T], principal: Principal, *path: str, **query: str
    ) -> AsyncIterator[T]:
        """Yields pages, at most 100. Raises ForgeError."""
        next_query: Mapping[str, str] | None = {"per_page": str(PER_PAGE), **query}
        for _ in range(MAX_PAGES):
            if (
                next_query is None
                or (page := await self.get_page(response_type, principal, *path, **next_query)) is None
            ):
                return
            yield page.data
            next_query = page.next_query

    async def get_page(
        self, response_type: type[T], principal: Principal, *path: str, etag: str = "", **query: str
    ) -> ResultPage[T] | None:
        """Gets one page, or None if the page has not changed since `etag`. Raises ForgeError."""
        response = await self._send_with_retries(
            principal, GitHubRequest("GET", join_path(*path), params=query, etag=etag)
        )
        if response.status_code == httpx.codes.NOT_MODIFIED:
            return None
        next_url = response.links.get("next", {}).get("url")
        return ResultPage(
            parse_response(response_type, response),
            response.headers.get("etag", ""),
            dict(parse_qsl(urlsplit(next_url).query)) if next_url else None,
        )

    async def patch(self, response_type: type[T], repo: Repo, *path: str, body: Mapping[str, object]) -> T:
        """Updates a resource. The request may be sent again if no response arrives. Raises ForgeError."""
        return parse_response(
            response_type,
            await self._send_with_retries(repo, GitHubRequest("PATCH", join_path(*path), json=body)),
        )

    async def post(
        self,
        response_type: type[T],
        principal: Principal,
        *path: str,
        body: Mapping[str, object] | None = None,
    ) -> T:
        """Creates a resource. Before you retry after ForgeUnavailable, check whether the resource exists."""
        return parse_response(
            response_type,
            await self._send_with_retries(
                principal, GitHubRequest("POST", join_path(*path), json=body), idempotent=False
            ),
        )

    async def post_graphql(
        self,
        response_type: type[T],
        principal: Principal,
        url: str,
        body: Mapping[str, object],
        *,
        idempotent: bool = True,
    ) -> T:
        """Sends a GraphQL request. If `idempotent` is False, GitHub executes it at most once. Raises
        ForgeError.
        """
        request = GitHubRequest("POST", url, json=body)
        response = await self._send_with_retries(principal, request, idempotent=idempotent)
        return parse_response(response_type, response)

    async def delete(self, repo: Repo, *path: str) -> None:
        """Deletes a resource. Does nothing if the resource does not exist. Raises ForgeError."""
        with contextlib.suppress(NotFound):
            await self._send_with_retries(repo, GitHubRequest("DELETE", join_path(*path)))

    def invalidate_credentials(self, repo: Repo, credentials: Credentials) -> None:
        """Drops credentials that no longer work. The next request creates new ones."""
        if self._tokens.get(repo) == credentials:
            del self._tokens[repo]

    def discard_outdated_token(self, repo: Repo) -> None:
        """Drops the cached token if it lacks required permissions. Call this after the owner has granted them."""
        cached = self._tokens.get(repo)
        minted = self._minted_tokens.get(cached.token) if cached else None
        if (
            cached
            and minted
            and not all(is_granted(minted[1].permissions, *one) for one in REQUIRED_PERMISSIONS.items())
        ):
            self.invalidate_credentials(repo, cached)

    async def get_as_app(self, response_type: type[T], *path: str) -> T:
        """Gets a resource that only the App itself may read. Raises ForgeError."""
        return parse_response(
            response_type, await self._send_with_retries(None, GitHubRequest("GET", join_path(*path)))
        )

    # --- tokens ---------------------------------------------------------------------------------------------

    async def get_credentials(self, repo: Repo) -> Credentials:
        """Returns a token for this repository that is valid for at least 15 more minutes.

        Raises Forbidden if the App is not installed in the repository. Source:
        docs.github.com/rest/apps/apps#create-an-installation-access-token-for-an-app
        """
        if isinstance(self._auth, TokenAuth):
            return Credentials(token=self._auth.token.get_secret_value())
        async with self._token_lock:
            cached = self._tokens.get(repo)
            if (
                cached is None
                or cached.expires is None
                or cached.expires < datetime.now(UTC) + MIN_TOKEN_LIFETIME
            ):
                cached = self._tokens[repo] = await self._mint_repo_token(repo)
            return cached

    async def _mint_repo_token(self, repo: Repo) -> Credentials:
        try:
            installation = await self.get_as_app(
                InstallationResponse, "repos", repo.owner, repo.name, "installation"
            )
        except NotFound as exc:
            raise Forbidden(f"the app is not installed on {repo}: ask the owner to install it") from exc
        granted = installation.permissions
        useful = (
            *REQUIRED_PERMISSIONS.items(),
            *OPTIONAL_PERMISSIONS,
        )  # GitHub uses the last level of a permission, so write must come after read
        requested = {name: level for name, level in useful if is_granted(granted, name, level)}
        complete = REQUIRED_PERMISSIONS.keys() <= requested.keys()
        if isinstance(self._auth, AppAuth) and self._auth.workflows:
            requested |= {name: level for name, level in granted.items() if name == "workflows"}
        if not requested:
            raise PermissionNotGranted(
                f"the app has none of the required permissions on {repo}: see {installation.html_url}"
            )
        credentials = await self.mint_token(installation.id, repositories=[repo.name], permissions=requested)
        # A token that lacks a required permission is renewed after a minute. So a new grant works soon.
        expires = datetime.now(UTC) + MIN_TOKEN_LIFETIME + PERMISSION_DELAY
        return credentials if complete else credentials.model_copy(update={"expires": expires})

    async def get_installation_id(self, repo: Repo) -> int | None:
        """Returns the installation of the current token; None if the operator configured the token."""
        token = (await self.get_credentials(repo)).token  # may replace `_minted_tokens`
        minted = self._minted_tokens.get(token)
        return minted[0] if minted else None

    async def is_write_denied(self, repo: Repo, permission: str) -> bool:
        """Returns True if the token lacks this write permission. Returns False if the token's permissions are
        unknown, because this client did not create the token.
        """
        token = (await self.get_credentials(repo)).token
        return (
            token in self._minted_tokens
            and self._minted_tokens[token][1].permissions.get(permission) != "write"
        )

    async def mint_token(self, installation: int, **scope: object) -> Credentials:
        """Creates an installation token, limited to the repositories and permissions in `scope`."""
        path = join_path("app", "installations", str(installation), "access_tokens")
        token = parse_response(
            InstallationTokenResponse,
            await self._send_with_retries(None, GitHubRequest("POST", path, json=scope)),
        )
        unexpired = (
            (text, minted)
            for text, minted in self._minted_tokens.items()
            if minted[1].expires_at > datetime.now(UTC)
        )
        self._minted_tokens = {**dict(unexpired), token.token: (installation, token)}
        return Credentials(token=token.token, expires=token.expires_at)

    # --- retries --------------------------------------------------------------------------------------------

    async def _send_with_retries(
        self, principal: Principal, request: GitHubRequest, *, idempotent: bool = True
    ) -> httpx.Response:
        """Sends a request with retries. With `idempotent=False`, GitHub executes it at most once."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return await self._send_as(principal, request)
            except RateLimited as exc:
                wait = (exc.until - datetime.now(UTC)).total_seconds()
                may_wait = current_priority() is not Priority.PROGRESS
                if attempt == MAX_ATTEMPTS or wait > self._policy.max_rate_limit_wait or not may_wait:
                    raise
            except ForgeUnavailable:
                if attempt == MAX_ATTEMPTS or not idempotent:
                    raise
                wait = self.backoff(attempt)
            await asyncio.sleep(max(wait, 0.0))
        raise AssertionError("the last attempt returns or raises")

    def backoff(self, attempt: int) -> float:
        """Returns how many seconds to wait after a failed attempt. The first attempt has the number 1."""
        delay: float = self._policy.initial_backoff * 2 ** (attempt - 1)
        return delay * random.uniform(0.5, 1.5)

    async def _send_as(self, principal: Principal, request: GitHubRequest) -> httpx.Response:
        if isinstance(principal, Credentials):
            return await self._send_with_token(request, principal)
        if principal is None:
            if self._app_client is None:
                raise SettingsError(
                    "this request needs a GitHub App: set PATCHWRIGHT_APP_ID and its private key"
                )
            return await self._send_unless_rate_limited(self._app_client, request, {}, "app")
        credentials = await self.get_credentials(principal)
        try:
            return await self._send_with_token(request, credentials)
        except Unauthorized:
            # The token was revoked or expired early. It would stay in the cache for up to an hour.
            self.invalidate_credentials(principal, credentials)
            renewed = await self.get_credentials(principal)
            if renewed == credentials:
                raise
            return await self._send_with_token(request, renewed)

    async def _send_with_token(self, request: GitHubRequest, credentials: Credentials) -> httpx.Response:
        headers = {"Authorization": f"Bearer {credentials.token}"}
        limiter_key = self._limiter_key(credentials)
        if request.method != "GET" and self._policy.write_interval:
            await acquire(self._write_limiter, limiter_key, self._policy.write_interval)
        return await self._send_unless_rate_limited(self._token_client, request, headers, limiter_key)

    async def _send_unless_rate_limited(
        self, client: GitHubClient, request: GitHubRequest, headers: Mapping[str, str], limiter_key: str
    ) -> httpx.Response:
        """Sends a request unless a rate limit is active. Records new rate limits for all processes."""
        await raise_if_blocked(self._write_limiter, limiter_key)
        try:
            return await send_request(client, request, headers)
        except RateLimited as exc:
            await self._record_rate_limit(limiter_key, exc)
            raise

    async def _record_rate_limit(self, limiter_key: str, error: RateLimited) -> None:
        await self._write_limiter.block(limiter_key, (error.until - datetime.now(UTC)).total_seconds())

    async def record_rate_limit(self, principal: Repo | Credentials, error: RateLimited) -> None:
        """Records a rate limit and blocks requests until it expires."""
        credentials = await self.get_credentials(principal) if isinstance(principal, Repo) else principal
        await self._record_rate_limit(self._limiter_key(credentials), error)

    def _limiter_key(self, credentials: Credentials) -> str:
        """Returns a name for these credentials in the write limiter. The name does not reveal the token."""
        if credentials.token in self._minted_tokens:
            return f"installation-{self._minted_tokens[credentials.token][0]}"
        return f"token-{sha256(credentials.token.encode()).hexdigest()[:16]}"


def is_granted(permissions: Mapping[str, str], name: str, level: str) -> bool:
    """Returns whether `permissions` grant the permission `name` at `level` or at a higher level."""
    return permissions.get(name) in (level, "write", "admin")


def repo_path(repo: Repo) -> tuple[str, str, str]:
    """Returns the API path of a repository."""
    return "repos", repo.owner, repo.name
