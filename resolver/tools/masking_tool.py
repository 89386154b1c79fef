"""Masks secrets in the results of third-party tools before they are logged or shown to the model.

MaskingSandbox masks the sandbox's output, but these tools also return text from the host or from an HTTP
server.
"""

from typing import Any

from patchwright.resolver.actions import AnyObservation
from patchwright.resolver.secrets import Secrets, mask_secrets
from patchwright.resolver.tools.tool import Tool, WrapperTool


class MaskingTool(WrapperTool):
    """Wraps a tool and masks secrets in its results."""

    def __init__(self, tool: Tool, secrets: Secrets) -> None:
        super().__init__(tool)
        self._secrets = secrets

    async def execute(self, action: Any) -> AnyObservation:
        return mask_secrets(await self._tool.execute(action), self._secrets)
