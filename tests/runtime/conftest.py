import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
import pytest_asyncio

from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.sandbox import SandboxSpec

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.runtime.chromium_page import PageSession

CA_BUNDLE = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))


@pytest.fixture
def docker_sandboxes() -> Callable[..., DockerSandboxes]:
    """Return a factory of sandboxes on the usual base image, whose layer is built once."""

    def make(
        notice: Callable[[str], object] = lambda _: None,
        egress: EgressConfig | None = None,
        transport: Literal["auto", "socket", "exec"] = "auto",
        whose: str = "",
        plugins: tuple[SandboxFeature, ...] = (),
        logs: Path | None = None,
        **spec: object,
    ) -> DockerSandboxes:
        build = BuildSettings(
            features=plugins,
            ca_bundle=CA_BUNDLE if CA_BUNDLE.exists() else None,
            package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
            log_dir=logs,
            on_notice=notice,
        )
        return DockerSandboxes(
            SandboxSpec(**{"memory_mb": 512, **spec}),
            build,
            engine=EngineAddress(transport=transport),
            egress=egress,
            namespace=whose,
        )

    return make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator["Browser"]:
    """One browser for all tests of a file."""
    from tests.runtime.chromium_page import chromium  # most files need no browser

    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def page_session(browser: "Browser") -> AsyncIterator["PageSession"]:
    from tests.runtime.chromium_page import open_page

    async with open_page(browser) as opened:
        yield opened
