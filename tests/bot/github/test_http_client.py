"""Responses that do not come from GitHub."""

import httpx
import pytest

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.http_client import parse_response


def test_a_web_page_is_not_a_response_of_github() -> None:
    page = httpx.Response(200, text="<html>", request=httpx.Request("GET", "https://proxy.test/user"))
    with pytest.raises(ForgeUnavailable, match=r"^the response to /user is not JSON"):
        parse_response(dict[str, str], page)
