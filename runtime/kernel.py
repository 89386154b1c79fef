"""IPython in the sandbox: one kernel, started with its first cell, whose state lasts as long as the sandbox."""

from collections.abc import Mapping
from pathlib import Path

from runtime.observations import Failed, RanPython, Wanted
from runtime.plugins import Plugins


class Kernel:
    """One IPython session. Started when it is first used."""

    def __init__(self, root: Path, scratch: Path, env: Mapping[str, str], plugins: Plugins) -> None:
        self._plugins = plugins

    async def run(self, code: str, timeout: int) -> RanPython | Wanted | Failed:
        """Run a cell, at most `timeout` seconds."""
        return Failed(reason="missing", message=self._plugins.missing("kernel"))

    async def provide(self, text: str, timeout: int, *, failed: bool) -> RanPython | Wanted | Failed:
        """Go on with the cell that waits for this."""
        return Failed(reason="refused", message="no cell waits for anything")

    async def close(self) -> None:
        """End the kernel and everything that it started."""
