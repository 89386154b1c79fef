"""Local sandboxes that run a setup on this machine, in a directory of their own."""

from typing import Self

from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import LayerNote, LayerSetup

INSTALL = "python3 -m pip install --quiet"


class SetupSandboxes(LocalSandboxes):
    """Local sandboxes that run a setup; its result is not kept."""

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> tuple[Self, LayerNote]:
        async with self.open(name) as sandbox:
            return self, await setup(sandbox)
