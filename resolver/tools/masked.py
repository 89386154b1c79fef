"""Tools that others bring, whose words are masked before anybody reads or records them.

What goes through the sandbox is masked there; these also speak from the host, or from a server by HTTP.
"""

from typing import Any

from resolver.actions import Action, Result
from resolver.llm.model import ToolSpec
from resolver.secrets import Secrets, masked
from resolver.tools.tool import Tool


class Masked:
    """A tool that says no secret."""

    def __init__(self, tool: Tool, secrets: Secrets) -> None:
        self._tool = tool
        self._secrets = secrets

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def kind(self) -> str:
        return self._tool.kind

    def parse(self, arguments: dict[str, Any]) -> Action:
        return self._tool.parse(arguments)

    async def answer(self, action: Any) -> Result:
        return masked(await self._tool.answer(action), self._secrets)
