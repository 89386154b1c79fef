"""Chromium in the sandbox: one context a run, started with its first call."""

from collections.abc import Mapping
from pathlib import Path

from runtime.observations import Failed, Look, Page
from runtime.plugins import Plugins


class Browser:
    """One browser with one context. Started when it is first used."""

    def __init__(self, root: Path, scratch: Path, env: Mapping[str, str], plugins: Plugins) -> None:
        self._plugins = plugins

    async def use(self, code: str, allowed: tuple[str, ...], look: Look) -> Page | Failed:
        """Run the calls in order, then look at the page."""
        return Failed(reason="missing", message=self._plugins.missing("browser"))

    async def close(self) -> None:
        """End the browser."""
