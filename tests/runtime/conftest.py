import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
import pytest_asyncio

from runtime.docker.docker import DockerSandboxes
from runtime.egress.proxy import Egress
from runtime.plugins import Plugin
from runtime.sandbox import SandboxSpec

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.runtime.looking import Eyes

CA_BUNDLE = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))


@pytest.fixture
def docker_sandboxes() -> Callable[..., DockerSandboxes]:
    """Makes sandboxes of a given size on the usual base image, whose layer is built once."""

    def make(
        notice: Callable[[str], object] | None = None,
        egress: Egress | None = None,
        transport: Literal["auto", "socket", "exec"] = "auto",
        warm: int = 0,
        whose: str = "",
        plugins: tuple[Plugin, ...] = (),
        logs: Path | None = None,
        **spec: object,
    ) -> DockerSandboxes:
        return DockerSandboxes(
            SandboxSpec(**{"memory_mb": 512, **spec}),
            notice=notice,
            egress=egress,
            transport=transport,
            warm=warm,
            whose=whose,
            plugins=plugins,
            logs=logs,
            ca_bundle=CA_BUNDLE if CA_BUNDLE.exists() else None,
            package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
        )

    return make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator["Browser"]:
    """One for all tests of a file."""
    from tests.runtime.looking import chromium  # most files look at no page

    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def seer(browser: "Browser") -> AsyncIterator["Eyes"]:
    from tests.runtime.looking import eyes

    async with eyes(browser) as opened:
        yield opened
