"""One browser with its web server for all tests of a file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.runtime.web_fixture import Web, open_web


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    async with open_web(tmp_path_factory.mktemp("browser")) as made:
        yield made
