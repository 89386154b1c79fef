"""What a client of a server does when the connection fails."""

import socket
import threading

import pytest

from patchwright.sdk import server_client
from patchwright.sdk.background_loop import run_blocking
from patchwright.sdk.server_client import ServerClient, ServerError


@pytest.fixture
def dropping_server(monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[bytes]]:
    """A server that closes each connection after the first line of the request, and answers the third one."""
    monkeypatch.setattr(server_client, "RETRY_SECONDS", 0.01)
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        while len(requests) < 10:
            connection, _ = listener.accept()
            with connection:
                requests.append(connection.recv(65536).split(b"\r\n")[0])
                if len(requests) == 3:
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", requests


def test_only_safe_requests_are_repeated(dropping_server: tuple[str, list[bytes]]) -> None:
    host, requests = dropping_server
    client = ServerClient(host, None)
    with pytest.raises(ServerError, match="does not answer"):
        run_blocking(client.request("POST", "workspaces", "w", "execute", json={"command": "rm x"}))
    assert len(requests) == 1
    assert run_blocking(client.request("GET", "workspaces", "w")).text == "ok"
    assert requests[1:] == [b"GET /workspaces/w HTTP/1.1"] * 2
    run_blocking(client.close())
