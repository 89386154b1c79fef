"""The tool that searches the web: answered by the host, where the key is, and only when there is one."""

from dataclasses import dataclass

from resolver.actions import Called, Result, SearchWeb
from resolver.events import Observed
from resolver.log import Log
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from resolver.tools import search_prose
from resolver.tools.tool import ActionTool, Tool
from resolver.tools.web_search import PROVIDERS, Hits, OnTheWeb, WebSearch
from runtime.observations import Failed


@dataclass(frozen=True)
class Searching:
    """The tool `search_web` of one run."""

    web: WebSearch
    log: Log
    """Of that run: searches are counted in it."""
    secrets: Secrets
    """What no query may carry out."""
    most: int
    """Searches in one run."""

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(SearchWeb, self.search),)

    async def search(self, action: SearchWeb) -> Result:
        """What the provider names, as text."""
        if (used := self._used()) >= self.most:
            return Failed(reason="refused", message=search_prose.not_searched(self.web.name, self.most))
        if self.secrets.mask(action.query) != action.query:
            return Failed(reason="refused", message=search_prose.not_searched(self.web.name, None))
        found = await self.web.search(action.query)
        if not isinstance(found, Hits):
            return found
        return Called(text=search_prose.found(found, used + 1, self.most), usd=found.usd)

    def _used(self) -> int:
        """How many searches were answered so far; one that failed cost nothing."""
        trajectory = self.log.trajectory
        searches = {
            call.id
            for reply in trajectory.decisions()
            for call in reply.calls
            if isinstance(call.action, SearchWeb)
        }
        return sum(
            isinstance(event, Observed) and event.call in searches and isinstance(event.observation, Called)
            for event in trajectory
        )


def search_tools(settings: Settings, log: Log, secrets: Secrets) -> tuple[Tool, ...]:
    """The tool, if the operator gave a key."""
    if settings.search_api_key is None:
        return ()
    web = OnTheWeb(
        PROVIDERS[settings.search_provider],
        settings.search_api_key,
        base_url=settings.search_base_url,
        proxy=settings.proxy.get_secret_value() if settings.proxy else None,
        ca_bundle=settings.ca_bundle,
    )
    return Searching(web, log, secrets, settings.max_searches).tools()
