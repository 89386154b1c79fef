"""An API that provisions Patchwright servers, as a hosting service would. `docs/library.md` describes it."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.contracts.workspace_servers import serve_workspaces

API_KEY = "key-of-the-runtime-api"


class RuntimeApi:
    """`runtimes` are those that exist. `requests` are the methods and paths of all requests."""

    def __init__(self, directory: Path, status: str) -> None:
        self._directory = directory
        self._status = status
        self._servers: dict[str, contextlib.ExitStack] = {}
        self.runtimes: dict[str, dict[str, str]] = {}
        self.requests: list[tuple[str, str]] = []

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        self.requests.append((method, path))
        id = path.removeprefix("/runtimes/")
        if method == "PUT":
            self.runtimes[id] = {"status": "starting"}
        elif id not in self.runtimes:
            return 404, {"detail": f"There is no runtime {id}."}
        elif method == "DELETE":
            self._servers.pop(id, contextlib.ExitStack()).close()
            del self.runtimes[id]
            return 200, {}
        elif self._status == "running" and id not in self._servers:
            self._servers[id] = contextlib.ExitStack()
            url, key = self._servers[id].enter_context(serve_workspaces(self._directory / id))
            self.runtimes[id] = {"status": "running", "url": url, "api_key": key}
        elif self._status != "running":
            self.runtimes[id] = {"status": self._status}
        return 200, self.runtimes[id]


@contextlib.contextmanager
def serve_runtime_api(directory: Path, status: str = "running") -> Iterator[tuple[str, RuntimeApi]]:
    """Yields the address of an API whose runtimes reach this status after they started."""
    directory.mkdir(exist_ok=True)
    api = RuntimeApi(directory, status)

    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            is_authorized = self.headers["authorization"] == f"Bearer {API_KEY}"
            code, body = (
                api.answer(self.command, self.path) if is_authorized else (401, {"detail": "No key."})
            )
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_DELETE = handle_request  # noqa: N815 (the names that http.server calls)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", api
        server.shutdown()
