"""The `search_web` tool. The tool runs on the host, where the API key is, and is available only if a key is
configured.
"""

from dataclasses import dataclass

from patchwright.resolver.actions import AnyObservation, ExternalToolResult
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_calls import iter_calls
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.lookup_actions import SearchWeb
from patchwright.resolver.tools.search_providers import (
    SEARCH_APIS,
    HttpSearchClient,
    SearchClient,
    SearchResults,
)
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.observations import ActionFailure

MAX_SEARCHES = 20  # per run


@dataclass(frozen=True)
class SearchWebTool:
    """The `search_web` tool of one run."""

    client: SearchClient
    log: RunLog
    """Log of the run, used to count its searches."""
    secrets: Secrets
    """Secrets that a query must not contain."""
    max_searches: int
    """Maximum number of searches per run."""

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(SearchWeb, self.search),)

    async def search(self, action: SearchWeb) -> AnyObservation:
        """Returns the search results as text."""
        if (search_count := self._count_searches()) >= self.max_searches:
            return self._reject(self.max_searches)
        if self.secrets.mask(action.query) != action.query:
            return self._reject(None)
        results = await self.client.search(action.query)
        if not isinstance(results, SearchResults):
            return results
        return ExternalToolResult(
            text=render_prompt(
                "found_on_web.md.j2",
                results=results,
                used=search_count + 1,
                max_searches=self.max_searches,
            ),
            usd=results.usd,
        )

    def _reject(self, max_searches: int | None) -> ActionFailure:
        """Tells the agent that the run has reached `max_searches`, or, if that is None, that the query contains a
        secret.
        """
        text = render_prompt("not_searched.md.j2", provider=self.client.name, max_searches=max_searches)
        return ActionFailure(reason="refused", message=text)

    def _count_searches(self) -> int:
        """Returns the number of successful searches. Failed searches are not counted, because they cost
        nothing.
        """
        return sum(
            isinstance(call.action, SearchWeb) and isinstance(call.observation, ExternalToolResult)
            for call in iter_calls(self.log.trajectory)
        )


def build_search_tools(settings: Settings, log: RunLog, secrets: Secrets) -> tuple[Tool, ...]:
    """Returns the tool if a search API key is configured, else no tools."""
    if settings.search_api_key is None:
        return ()
    provider, _, url = settings.search_provider.partition("=")
    client = HttpSearchClient(
        SEARCH_APIS[provider],
        settings.search_api_key,
        base_url=url or None,
        proxy=settings.proxy.get_secret_value() if settings.proxy else None,
        ca_bundle=settings.ca_bundle,
    )
    return SearchWebTool(client, log, secrets, MAX_SEARCHES).tools()
