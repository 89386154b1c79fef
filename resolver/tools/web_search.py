"""Searching the web through a provider's API: Tavily, Exa or Brave, each behind the same seam."""

import asyncio
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from resolver.settings.runs import SearchProvider
from resolver.tools import search_prose
from resolver.tools.search_prose import NoSearch
from resolver.words.quotation import visible
from runtime.frozen import Frozen
from runtime.observations import Failed

RESULTS = 8  # that are asked for
SNIPPET = 600  # characters
SECONDS = 20.0  # for one answer, from the first byte to the last
MOST = 2 << 20  # bytes of one answer


class Hit(Frozen):
    """One page that a provider names, in its words."""

    title: str
    url: str
    snippet: str


class Hits(Frozen):
    """What a provider answered."""

    provider: str
    hits: tuple[Hit, ...]
    cost: str = ""
    """What this one search cost, in the provider's own unit; empty: it does not say."""
    usd: Decimal = Decimal(0)
    """As far as it says that in dollars."""


class WebSearch(Protocol):
    """Finds pages."""

    @property
    def name(self) -> str:
        """Who is asked, for people."""

    async def search(self, query: str) -> Hits | Failed: ...


@dataclass(frozen=True, slots=True)
class Asking:
    """One request to a provider, and how its answer is read."""

    method: Literal["GET", "POST"]
    path: str
    headers: Mapping[str, str]
    parameters: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


class Provider(Protocol):
    """One provider's API, without the network."""

    name: str
    home: str
    """Its address, unless the operator names another."""

    def asking(self, query: str, key: str) -> Asking: ...

    def read(self, answer: bytes) -> Hits:
        """Raises ValidationError."""


class _Answer(BaseModel):
    """Only what is read of an answer is checked."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Tavily:
    """Source: docs.tavily.com/documentation/api-reference/endpoint/search"""

    name = "Tavily"
    home = "https://api.tavily.com"

    class Result(_Answer):
        title: str | None = ""
        url: str
        content: str | None = ""

    class Usage(_Answer):
        credits: Decimal = Field(ge=0, le=1_000_000)

    class Answer(_Answer):
        results: "tuple[Tavily.Result, ...]"
        usage: "Tavily.Usage | None" = None

    def asking(self, query: str, key: str) -> Asking:
        return Asking(
            method="POST",
            path="/search",
            headers={"Authorization": f"Bearer {key}"},
            # Its own answer to the question is not asked for: it is a model's, and nobody could check it.
            body={"query": query, "max_results": RESULTS, "include_usage": True},
        )

    def read(self, answer: bytes) -> Hits:
        read = Tavily.Answer.model_validate_json(answer)
        cost = f"{_plain(read.usage.credits)} of the plan's credits" if read.usage else ""
        hits = (_hit(each.title, each.url, each.content) for each in read.results)
        return Hits(provider=self.name, hits=tuple(filter(None, hits)), cost=cost)


class Exa:
    """Source: docs.exa.ai/reference/search"""

    name = "Exa"
    home = "https://api.exa.ai"

    class Result(_Answer):
        title: str | None = ""
        url: str
        highlights: tuple[str, ...] = ()
        summary: str | None = None
        text: str | None = None

    class Dollars(_Answer):
        total: Decimal = Field(ge=0, le=1_000)

    class Answer(_Answer):
        results: "tuple[Exa.Result, ...]"
        cost_dollars: "Exa.Dollars | None" = Field(default=None, alias="costDollars")

    def asking(self, query: str, key: str) -> Asking:
        return Asking(
            method="POST",
            path="/search",
            headers={"x-api-key": key},
            body={"query": query, "numResults": RESULTS, "contents": {"highlights": True}},
        )

    def read(self, answer: bytes) -> Hits:
        read = Exa.Answer.model_validate_json(answer)
        hits = (
            _hit(each.title, each.url, " ... ".join(each.highlights) or each.summary or each.text)
            for each in read.results
        )
        usd = read.cost_dollars.total if read.cost_dollars else Decimal(0)
        cost = f"${_plain(usd)}" if read.cost_dollars else ""
        return Hits(provider=self.name, hits=tuple(filter(None, hits)), cost=cost, usd=usd)


class Brave:
    """Source: api-dashboard.search.brave.com/app/documentation/web-search"""

    name = "Brave"
    home = "https://api.search.brave.com"

    class Result(_Answer):
        title: str | None = ""
        url: str
        description: str | None = ""
        extra_snippets: tuple[str, ...] = ()

    class Web(_Answer):
        results: "tuple[Brave.Result, ...]" = ()

    class Answer(_Answer):
        type: Literal["search"]
        web: "Brave.Web | None" = None
        """None: nothing was found."""

    def asking(self, query: str, key: str) -> Asking:
        return Asking(
            method="GET",
            path="/res/v1/web/search",
            headers={"X-Subscription-Token": key},
            parameters={"q": query, "count": RESULTS, "result_filter": "web", "text_decorations": "false"},
        )

    def read(self, answer: bytes) -> Hits:
        read = Brave.Answer.model_validate_json(answer)
        results = read.web.results if read.web else ()
        hits = (
            _hit(each.title, each.url, " ... ".join([each.description or "", *each.extra_snippets]))
            for each in results
        )
        return Hits(provider=self.name, hits=tuple(filter(None, hits)))


PROVIDERS: dict[SearchProvider, Provider] = {"tavily": Tavily(), "exa": Exa(), "brave": Brave()}


class OnTheWeb:
    """A provider, asked over the network by the operator's key."""

    def __init__(
        self,
        provider: Provider,
        key: SecretStr,
        *,
        base_url: str | None = None,
        proxy: str | None = None,
        ca_bundle: Path | None = None,
        seconds: float = SECONDS,
    ) -> None:
        """`proxy`: for addresses with https. None: as the machine's own variables say."""
        self._provider = provider
        self._key = key
        self._base_url = (base_url or provider.home).rstrip("/")
        self._proxy = proxy
        self._seconds = seconds
        self._trust = httpx.create_ssl_context()
        if ca_bundle is not None:
            self._trust.load_verify_locations(ca_bundle)

    @property
    def name(self) -> str:
        return self._provider.name

    async def search(self, query: str) -> Hits | Failed:
        """The pages that it names; an error says whether another try is of use."""
        asking = self._provider.asking(query, self._key.get_secret_value().strip())
        try:
            async with asyncio.timeout(self._seconds), self._client() as client:
                request = client.stream(
                    asking.method,
                    f"{self._base_url}{asking.path}",
                    # Not compressed: else the limit would hold for what comes, not for what it becomes.
                    headers={"Accept": "application/json", "Accept-Encoding": "identity", **asking.headers},
                    params=dict(asking.parameters),
                    json=asking.body,
                )
                async with request as answer:
                    status, body = answer.status_code, await _bounded(answer)
        except TimeoutError:
            return self._failed("silent")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            return self._failed("unreachable")
        if status != 200:
            return self._failed(_meaning(status, body))
        if body is None:
            return self._failed("unreadable")
        try:
            return self._provider.read(body)
        except ValidationError:
            return self._failed("unreadable")

    def _client(self) -> httpx.AsyncClient:
        mounts = (
            {"https://": httpx.AsyncHTTPTransport(verify=self._trust, proxy=self._proxy)}
            if self._proxy
            else None
        )
        # A redirect is not followed: it would take the key elsewhere.
        return httpx.AsyncClient(
            verify=self._trust, mounts=mounts, follow_redirects=False, timeout=self._seconds
        )

    def _failed(self, why: NoSearch) -> Failed:
        return Failed(reason="io", message=search_prose.failed(self.name, why, self._seconds))


async def _bounded(answer: httpx.Response) -> bytes | None:
    """The whole body; None when it is longer than an answer may be."""
    body = bytearray()
    async for piece in answer.aiter_raw(1 << 16):
        body += piece
        if len(body) > MOST:
            return None
    return bytes(body)


def _meaning(status: int, body: bytes | None) -> NoSearch:
    """What a status says. 402, 432 and 433 are Tavily's and Exa's for spent credit; Brave answers 422 to a bad key."""
    if status in (401, 403) or b"SUBSCRIPTION_TOKEN_INVALID" in (body or b""):
        return "key"
    if status in (402, 432, 433):
        return "credit"
    if status == 429:
        return "busy"
    if status in (400, 422):
        return "query"
    return "broken" if status >= 500 else "unreadable"


def _hit(title: str | None, url: str, snippet: str | None) -> Hit | None:
    """One result, fit to be read; None for an address that no browser opens."""
    if not re.match(r"https?://[^\s]", url, re.IGNORECASE):
        return None
    return Hit(
        title=_line(title, 200), url=_line(url, 1_000).replace(" ", "%20"), snippet=_line(snippet, SNIPPET)
    )


def _plain(amount: Decimal) -> str:
    return f"{round(amount, 6).normalize():f}"


def _line(text: str | None, most: int) -> str:
    """One line without markup and without what cannot be seen."""
    shown, _ = visible(html.unescape(re.sub(r"</?\w+[^<>]*>", "", (text or "")[: 8 * most])))
    line = " ".join(shown.split())
    return line if len(line) <= most else line[: most - 3] + "..."
