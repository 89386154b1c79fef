"""Every response of the setup has the security headers of the dashboard."""

import pytest

from tests.bot.setup.conftest import UnconfiguredServer

pytestmark = pytest.mark.redis


async def test_every_response_of_the_setup_has_security_headers(server: UnconfiguredServer) -> None:
    async with server.started(), server.browser() as http:
        answers = [await http.get(path) for path in ("/", "/setup", "/static/page.css", "/nothing")]
        answers.append(await http.post("/setup/app", data={"reach": "webhook"}))
        for answer in answers:
            assert "default-src 'none'" in answer.headers["content-security-policy"], answer.url
            assert answer.headers["x-frame-options"] == "DENY"
