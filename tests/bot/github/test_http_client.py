"""Responses that do not come from GitHub."""

import socket

import httpx
import pytest

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.api_errors import describe_connection_error
from patchwright.bot.github.http_client import parse_response


def test_a_web_page_is_not_a_response_of_github() -> None:
    page = httpx.Response(200, text="<html>", request=httpx.Request("GET", "https://proxy.test/user"))
    with pytest.raises(ForgeUnavailable, match=r"^the response to /user is not JSON"):
        parse_response(dict[str, str], page)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (OSError(113, "No route to host"), "no route to host"),
        (None, "All connection attempts failed"),
    ],
)
def test_a_failed_connection_is_described_without_error_numbers(cause: OSError | None, reason: str) -> None:
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = cause
    assert describe_connection_error(error) == reason
    assert describe_connection_error(httpx.ConnectError("[Errno -3] Try again")) == "Try again"
    assert describe_connection_error(httpx.ReadTimeout("")) == "ReadTimeout"
