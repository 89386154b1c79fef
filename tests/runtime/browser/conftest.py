"""One browser, with its small web, for all tests of a file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.runtime.browsing import Web, browsing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    async with browsing(tmp_path_factory.mktemp("browser")) as made:
        yield made
