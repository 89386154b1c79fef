"""A run's page and the list, as somebody sees them who has logged in."""

import pytest

from tests.page.conftest import Room
from tests.resolver.seen_runs import whole_run

pytestmark = pytest.mark.redis


async def test_the_operator_sees_a_run_in_the_list_and_opens_it(room: Room) -> None:
    await room.ran("acme-calc-1-done", *whole_run())
    browser = await room.operator()
    seen = await browser.get("/")
    assert seen.status_code == 200
    assert 'href="/runs/acme-calc-1-done"' in seen.text
    page = await browser.get("/runs/acme-calc-1-done")
    assert page.status_code == 200
    assert "Timeline" in page.text
