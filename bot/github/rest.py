"""GitHub over HTTP: who we are, how long we wait, when we ask again."""

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
from pydantic import SecretStr

from bot.errors import NotGranted, Unanswered
from bot.github.answers import InstallationAnswer, TokenAnswer
from bot.github.client import Client, Request, anonymous, as_app, ask, join, read
from bot.github.trust import trust
from bot.pacing import Line, OwnLine, Urgency, check, turn, urgency_now
from resolver.domain import Credentials, Repo
from resolver.errors import Forbidden, NotFound, RateLimited, SettingsError, Unauthorized

T = TypeVar("T")

# Asked for by name, so that a token never has more of what the app was given.
PERMISSIONS = {"contents": "write", "issues": "write", "pull_requests": "write"}
# Only where the installation grants them: to ask for what it does not is refused, and they can be done without.
OPTIONAL = (("checks", "read"), ("checks", "write"), ("actions", "read"), ("statuses", "read"))
FRESH = timedelta(minutes=15)  # a token must last through a clone or push; GitHub's live an hour
A_MINUTE = timedelta(minutes=1)
ATTEMPTS = 4  # how often a request is made that gets no answer
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
    first_pause: float = 0.5
    """Seconds before the second attempt; doubled each time, with jitter."""
    longest_wait: float = 60.0
    """Seconds that a rate limit is waited out here; beyond that RateLimited is raised."""
    timeout: float = 30.0
    """Seconds without a byte from GitHub."""


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
        self,
        access: TokenAccess | AppAccess,
        api_url: str,
        ca_bundle: Path | None,
        pace: Pace,
        line: Line | None = None,
    ) -> None:
        """`line`: where writes wait for their turn; None: one of our own.

        Raises SettingsError when the app's key is none.
        """
        believed = trust(ca_bundle)
        self._access = access
        self._pace = pace
        self._plain = anonymous(api_url, believed, pace.timeout)
        self._as_app: Client | None = None
        if isinstance(access, AppAccess):
            self._as_app = as_app(access.app_id, access.private_key, api_url, believed, pace.timeout)
        self._tokens: dict[Repo, Credentials] = {}
        self._minting = asyncio.Lock()
        self._line = line or OwnLine()
        self._minted: dict[str, tuple[int, TokenAnswer]] = {}
        """Tokens that live, each with its installation."""

    @property
    def is_app(self) -> bool:
        return self._as_app is not None

    @property
    def between_writes(self) -> float:
        """Seconds to leave between two requests that change something."""
        return self._pace.between_writes

    def alone(self, what: str) -> contextlib.AbstractAsyncContextManager[None]:
        """See Line."""
        return self._line.alone(what)

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
                await ask(self._plain, Request("GET", "user"), headers)
        elif self._as_app is not None:
            await ask(self._as_app, Request("GET", "app"), {})

    async def get(self, shape: type[T], repo: Repo, *path: str, **query: str) -> T:
        """What is there, in the shape wanted. Raises ForgeError."""
        return read(shape, await self._patient(repo, Request("GET", join(*path), params=query)))

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
        answer = await self._patient(who, Request("GET", join(*path), params=query, etag=etag))
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        following = answer.links.get("next", {}).get("url")
        return Page(
            read(shape, answer),
            answer.headers.get("etag", ""),
            dict(parse_qsl(urlsplit(following).query)) if following else None,
        )

    async def patch(self, shape: type[T], repo: Repo, *path: str, body: Mapping[str, object]) -> T:
        """A change to what is there: doing it twice does no more than once. Raises ForgeError."""
        return read(shape, await self._patient(repo, Request("PATCH", join(*path), json=body)))

    async def post(self, shape: type[T], who: Who, *path: str, body: Mapping[str, object] | None = None) -> T:
        """Something new. Raises Unanswered when it may or may not be there: look before you ask again."""
        return read(shape, await self._patient(who, Request("POST", join(*path), json=body), again=False))

    async def post_query(
        self, shape: type[T], repo: Repo, url: str, body: Mapping[str, object], *, again: bool = True
    ) -> T:
        """A GraphQL request. `again=False`: its repetition does harm, see `post`. Raises ForgeError."""
        return read(shape, await self._patient(repo, Request("POST", url, json=body), again=again))

    async def delete(self, repo: Repo, *path: str) -> None:
        """Have something away; that it is away already is no error. Raises ForgeError."""
        with contextlib.suppress(NotFound):
            await self._patient(repo, Request("DELETE", join(*path)))

    def forget(self, repo: Repo, credentials: Credentials) -> None:
        """These credentials do not work any more: the next ones are minted anew."""
        if self._tokens.get(repo) == credentials:
            del self._tokens[repo]

    def outgrow(self, repo: Repo) -> None:
        """All that we need is granted there: a token from before that is not used for its last minute."""
        known = self._tokens.get(repo)
        minted = self._minted.get(known.token) if known else None
        if (
            known
            and minted
            and not all(is_granted(minted[1].permissions, *one) for one in PERMISSIONS.items())
        ):
            self.forget(repo, known)

    async def get_as_app(self, shape: type[T], *path: str) -> T:
        """What only the app itself may ask. Raises ForgeError."""
        return read(shape, await self._patient(None, Request("GET", join(*path))))

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
        has = installation.permissions
        useful = (*PERMISSIONS.items(), *OPTIONAL)  # of two levels the last that is granted
        wanted = {name: level for name, level in useful if is_granted(has, name, level)}
        complete = PERMISSIONS.keys() <= wanted.keys()
        if isinstance(self._access, AppAccess) and self._access.workflows:
            wanted |= {name: level for name, level in has.items() if name == "workflows"}
        if not wanted:
            raise NotGranted(
                f"the app has no permission that it needs on {repo}: see {installation.html_url}"
            )
        made = await self.mint(installation.id, repositories=[repo.name], permissions=wanted)
        # What is granted in a moment counts in a minute.
        return made if complete else made.model_copy(update={"expires": datetime.now(UTC) + FRESH + A_MINUTE})

    async def lacks(self, repo: Repo, permission: str) -> bool:
        """Whether we know that we may not write this; of a token that was given to us we know nothing."""
        token = (await self.credentials(repo)).token
        return token in self._minted and self._minted[token][1].permissions.get(permission) != "write"

    async def mint(self, installation: int, **wanted: object) -> Credentials:
        """A token of this installation, with no more than what is wanted. Raises ForgeError."""
        path = join("app", "installations", str(installation), "access_tokens")
        made = read(TokenAnswer, await self._patient(None, Request("POST", path, json=wanted)))
        lasting = ((token, of) for token, of in self._minted.items() if of[1].expires_at > datetime.now(UTC))
        self._minted = {**dict(lasting), made.token: (installation, made)}
        return Credentials(token=made.token, expires=made.expires_at)

    # --- patience -------------------------------------------------------------------------------------------

    async def _patient(self, who: Who, request: Request, *, again: bool = True) -> httpx.Response:
        """The answer. `again=False`: it is asked again only when it was surely not carried out."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._in_our_name(who, request)
            except RateLimited as exc:
                wait = (exc.until - datetime.now(UTC)).total_seconds()
                patient = urgency_now() is not Urgency.PROGRESS
                if attempt == ATTEMPTS or wait > self._pace.longest_wait or not patient:
                    raise
            except Unanswered:
                if attempt == ATTEMPTS or not again:
                    raise
                wait = self.pause(attempt)
            await asyncio.sleep(max(wait, 0.0))
        raise AssertionError("the last attempt returns or raises")

    def pause(self, attempt: int) -> float:
        """Seconds to wait after this attempt got no answer; the first is 1."""
        doubled: float = self._pace.first_pause * 2 ** (attempt - 1)
        return doubled * random.uniform(0.5, 1.5)

    async def _in_our_name(self, who: Who, request: Request) -> httpx.Response:
        if isinstance(who, Credentials):
            return await self._paced(request, who)
        if who is None:
            if self._as_app is None:
                raise SettingsError(
                    "only a GitHub App can ask that: set PATCHWRIGHT_APP_ID and its private key"
                )
            return await self._unless_held(self._as_app, request, {}, "app")
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

    async def _paced(self, request: Request, credentials: Credentials) -> httpx.Response:
        headers = {"Authorization": f"Bearer {credentials.token}"}
        whose = self._whose(credentials)
        if request.method != "GET" and self._pace.between_writes:
            await turn(self._line, whose, self._pace.between_writes)
        return await self._unless_held(self._plain, request, headers, whose)

    async def _unless_held(
        self, client: Client, request: Request, headers: Mapping[str, str], whose: str
    ) -> httpx.Response:
        """The answer, unless GitHub wants to be left alone; when it says so now, the others hear of it."""
        await check(self._line, whose)
        try:
            return await ask(client, request, headers)
        except RateLimited as exc:
            await self._hold(whose, exc)
            raise

    async def _hold(self, whose: str, limited: RateLimited) -> None:
        await self._line.hold(whose, (limited.until - datetime.now(UTC)).total_seconds())

    async def hold(self, repo: Repo, limited: RateLimited) -> None:
        """GitHub wants whoever asks for this repository to wait: nobody asks until then."""
        await self._hold(self._whose(await self.credentials(repo)), limited)

    def _whose(self, credentials: Credentials) -> str:
        """The name of the line; it tells nothing of the token."""
        if credentials.token in self._minted:
            return f"installation-{self._minted[credentials.token][0]}"
        return f"token-{sha256(credentials.token.encode()).hexdigest()[:16]}"


def is_granted(permissions: Mapping[str, str], name: str, least: str) -> bool:
    """Whether these are enough for what is needed."""
    return permissions.get(name) in (least, "write", "admin")


def path_of(repo: Repo) -> tuple[str, str, str]:
    """Where the API has a repository."""
    return "repos", repo.owner, repo.name
