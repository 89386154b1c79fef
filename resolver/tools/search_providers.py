"""Clients for the web search APIs of Tavily, Exa and Brave."""

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

from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.settings.run_settings import SEARCH_PROVIDERS
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure

MAX_RESULTS = 8  # per search
MAX_SNIPPET_LENGTH = 600  # characters
MAX_ANSWER_LENGTH = 2_000  # characters
TIMEOUT_SECONDS = 20.0  # seconds for one response, including its body
MAX_RESPONSE_BYTES = 2 << 20  # bytes of one response


SearchFailure = Literal["key", "credit", "busy", "query", "broken", "silent", "unreachable", "unreadable"]
"""Reason why a provider returned no results."""


class SearchResult(FrozenModel):
    """One search result, with the provider's title and snippet."""

    title: str
    url: str
    snippet: str


class SearchResults(FrozenModel):
    """The results of one search."""

    provider: str
    results: tuple[SearchResult, ...]
    answer: str = ""
    """The answer that the provider's own model wrote; an empty string if there is none."""
    cost: str = ""
    """Cost of this search in the provider's own unit; an empty string if the provider does not report it."""
    usd: Decimal = Decimal(0)
    """Cost of this search in US dollars, if the provider reports it."""


class SearchClient(Protocol):
    """Searches the web."""

    @property
    def name(self) -> str:
        """Display name of the provider."""

    async def search(self, query: str) -> SearchResults | ActionFailure: ...


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One HTTP request to a provider."""

    method: Literal["GET", "POST"]
    path: str
    headers: Mapping[str, str]
    query_parameters: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


class SearchApi(Protocol):
    """Builds the requests to one provider's API and parses the responses. It does not access the network."""

    name: str
    base_url: str
    """Default base URL; the operator can set another one."""

    def build_request(self, query: str, key: str) -> ProviderRequest: ...

    def parse_response(self, response: bytes) -> SearchResults:
        """Returns the results in a response body. Raises ValidationError if the body is not valid."""


class _ApiModel(BaseModel):
    """Base class of response schemas; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class TavilyApi:
    """Tavily's search API.

    Source: docs.tavily.com/documentation/api-reference/endpoint/search
    """

    name = "Tavily"
    base_url = "https://api.tavily.com"

    class Result(_ApiModel):
        title: str | None = ""
        url: str
        content: str | None = ""

    class CreditUsage(_ApiModel):
        credits: Decimal = Field(ge=0, le=1_000_000)

    class Response(_ApiModel):
        results: "tuple[TavilyApi.Result, ...]"
        answer: str | None = None
        usage: "TavilyApi.CreditUsage | None" = None

    def build_request(self, query: str, key: str) -> ProviderRequest:
        return ProviderRequest(
            method="POST",
            path="/search",
            headers={"Authorization": f"Bearer {key}"},
            body={
                "query": query,
                "max_results": MAX_RESULTS,
                "include_answer": True,
                "include_usage": True,
            },
        )

    def parse_response(self, response: bytes) -> SearchResults:
        parsed = TavilyApi.Response.model_validate_json(response)
        cost = f"{_format_amount(parsed.usage.credits)} of the plan's credits" if parsed.usage else ""
        results = (_build_result(result.title, result.url, result.content) for result in parsed.results)
        return SearchResults(
            provider=self.name,
            results=tuple(filter(None, results)),
            answer=_to_one_line(parsed.answer, MAX_ANSWER_LENGTH),
            cost=cost,
        )


class ExaApi:
    """Exa's search API.

    Source: docs.exa.ai/reference/search
    """

    name = "Exa"
    base_url = "https://api.exa.ai"

    class Result(_ApiModel):
        title: str | None = ""
        url: str
        highlights: tuple[str, ...] = ()
        summary: str | None = None
        text: str | None = None

    class Cost(_ApiModel):
        total: Decimal = Field(ge=0, le=1_000)

    class Response(_ApiModel):
        results: "tuple[ExaApi.Result, ...]"
        cost_dollars: "ExaApi.Cost | None" = Field(default=None, alias="costDollars")

    def build_request(self, query: str, key: str) -> ProviderRequest:
        return ProviderRequest(
            method="POST",
            path="/search",
            headers={"x-api-key": key},
            body={"query": query, "numResults": MAX_RESULTS, "contents": {"highlights": True}},
        )

    def parse_response(self, response: bytes) -> SearchResults:
        parsed = ExaApi.Response.model_validate_json(response)
        results = (
            _build_result(
                result.title, result.url, " ... ".join(result.highlights) or result.summary or result.text
            )
            for result in parsed.results
        )
        usd = parsed.cost_dollars.total if parsed.cost_dollars else Decimal(0)
        cost = f"${_format_amount(usd)}" if parsed.cost_dollars else ""
        return SearchResults(provider=self.name, results=tuple(filter(None, results)), cost=cost, usd=usd)


class BraveApi:
    """Brave's web search API.

    Source: api-dashboard.search.brave.com/app/documentation/web-search
    """

    name = "Brave"
    base_url = "https://api.search.brave.com"

    class Result(_ApiModel):
        title: str | None = ""
        url: str
        description: str | None = ""
        extra_snippets: tuple[str, ...] = ()

    class Web(_ApiModel):
        results: "tuple[BraveApi.Result, ...]" = ()

    class Response(_ApiModel):
        type: Literal["search"]
        web: "BraveApi.Web | None" = None
        """The web results; None if there are no results."""

    def build_request(self, query: str, key: str) -> ProviderRequest:
        return ProviderRequest(
            method="GET",
            path="/res/v1/web/search",
            headers={"X-Subscription-Token": key},
            query_parameters={
                "q": query,
                "count": MAX_RESULTS,
                "result_filter": "web",
                "text_decorations": "false",
            },
        )

    def parse_response(self, response: bytes) -> SearchResults:
        parsed = BraveApi.Response.model_validate_json(response)
        web_results = parsed.web.results if parsed.web else ()
        results = (
            _build_result(
                result.title, result.url, " ... ".join([result.description or "", *result.extra_snippets])
            )
            for result in web_results
        )
        return SearchResults(provider=self.name, results=tuple(filter(None, results)))


SEARCH_APIS: Mapping[str, SearchApi] = dict(
    zip(SEARCH_PROVIDERS, (TavilyApi(), ExaApi(), BraveApi()), strict=True)
)


class HttpSearchClient:
    """Searches through a provider's API with the operator's key."""

    def __init__(
        self,
        api: SearchApi,
        key: SecretStr,
        *,
        base_url: str | None = None,
        proxy: str | None = None,
        ca_bundle: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Creates the client.

        `proxy` is used for https URLs. If `proxy` is None, the proxy from the environment variables is used.
        """
        self._api = api
        self._key = key
        self._base_url = (base_url or api.base_url).rstrip("/")
        self._proxy = proxy
        self._timeout = timeout
        self._ssl_context = httpx.create_ssl_context()
        if ca_bundle is not None:
            self._ssl_context.load_verify_locations(ca_bundle)

    @property
    def name(self) -> str:
        return self._api.name

    async def search(self, query: str) -> SearchResults | ActionFailure:
        """Returns the results, or a failure that says whether a retry makes sense."""
        provider_request = self._api.build_request(query, self._key.get_secret_value().strip())
        try:
            async with asyncio.timeout(self._timeout), self._build_client() as client:
                request = client.stream(
                    provider_request.method,
                    f"{self._base_url}{provider_request.path}",
                    # Uncompressed, so that the size limit also holds for the decoded body.
                    headers={
                        "Accept": "application/json",
                        "Accept-Encoding": "identity",
                        **provider_request.headers,
                    },
                    params=dict(provider_request.query_parameters),
                    json=provider_request.body,
                )
                async with request as http_response:
                    status, body = http_response.status_code, await _read_body(http_response)
        except TimeoutError:
            return self._build_failure("silent")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            return self._build_failure("unreachable")
        if status != 200:
            return self._build_failure(_classify_status(status, body))
        if body is None:
            return self._build_failure("unreadable")
        try:
            return self._api.parse_response(body)
        except ValidationError:
            return self._build_failure("unreadable")

    def _build_client(self) -> httpx.AsyncClient:
        mounts = (
            {"https://": httpx.AsyncHTTPTransport(verify=self._ssl_context, proxy=self._proxy)}
            if self._proxy
            else None
        )
        # Redirects are not followed: they would send the key to another host.
        return httpx.AsyncClient(
            verify=self._ssl_context, mounts=mounts, follow_redirects=False, timeout=self._timeout
        )

    def _build_failure(self, reason: SearchFailure) -> ActionFailure:
        message = render(
            "prompts/search_failed.md.j2", provider=self.name, reason=reason, seconds=self._timeout
        )
        return ActionFailure(reason="io", message=message.strip())


async def _read_body(response: httpx.Response) -> bytes | None:
    """Returns the whole body, or None if it exceeds MAX_RESPONSE_BYTES."""
    body = bytearray()
    async for chunk in response.aiter_raw(1 << 16):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            return None
    return bytes(body)


def _classify_status(status: int, body: bytes | None) -> SearchFailure:
    """Returns the failure for an HTTP status code.

    Tavily and Exa answer 402, 432 or 433 if the account has no credit. Brave answers 422 to an invalid key.
    """
    if status in (401, 403) or b"SUBSCRIPTION_TOKEN_INVALID" in (body or b""):
        return "key"
    if status in (402, 432, 433):
        return "credit"
    if status == 429:
        return "busy"
    if status in (400, 422):
        return "query"
    return "broken" if status >= 500 else "unreadable"


def _build_result(title: str | None, url: str, snippet: str | None) -> SearchResult | None:
    """Returns one search result with cleaned texts, or None if its URL is not http or https."""
    if not re.match(r"https?://[^\s]", url, re.IGNORECASE):
        return None
    return SearchResult(
        title=_to_one_line(title, 200),
        url=_to_one_line(url, 1_000).replace(" ", "%20"),
        snippet=_to_one_line(snippet, MAX_SNIPPET_LENGTH),
    )


def _format_amount(amount: Decimal) -> str:
    return f"{round(amount, 6).normalize():f}"


def _to_one_line(text: str | None, max_length: int) -> str:
    """Returns the text on one line, without markup and hidden characters, cut to `max_length`."""
    visible, _ = strip_hidden(html.unescape(re.sub(r"</?\w+[^<>]*>", "", (text or "")[: 8 * max_length])))
    line = " ".join(visible.split())
    return line if len(line) <= max_length else line[: max_length - 3] + "..."
