"""Tools that others bring, whose words are masked before anybody reads or records them.

What goes through the sandbox is masked there; these also speak from the host, or from a server by HTTP.
"""

from typing import Any

from resolver.actions import Result
from resolver.secrets import Secrets, masked
from resolver.tools.tool import Around, Tool


class Masked(Around):
    """A tool that says no secret."""

    def __init__(self, tool: Tool, secrets: Secrets) -> None:
        super().__init__(tool)
        self._secrets = secrets

    async def answer(self, action: Any) -> Result:
        return masked(await self._tool.answer(action), self._secrets)
