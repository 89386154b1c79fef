"""Image builds and commits on a fake engine with prepared responses."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from patchwright.runtime.docker import engine as engine_module
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.errors import EngineUnavailable, ImageUnavailable

NOWHERE = [{"stream": "pip: Temporary failure in name resolution"}, {"error": "returned a non-zero code: 1"}]
REFUSED = {
    "message": "the Docker proxy rejected this request: a build must use the network mode none or default"
}


@contextmanager
def engine(answers: dict[str, tuple[int, list[dict[str, str]]]]) -> Iterator[str]:
    """Yield the URL of an engine that answers builds by network mode."""

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, [{"ApiVersion": "1.41"}])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            query = parse_qs(urlsplit(self.path).query)
            if "/commit" in self.path:
                time.sleep(1.5)
            self._answer(*answers[query.get("networkmode", query.get("tag", []))[0]])

        def _answer(self, status: int, lines: list[dict[str, str]]) -> None:
            body = "\n".join(map(json.dumps, lines)).encode()
            piecemeal = self.command == "POST" and status == 200  # an engine's build output, and nothing else
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if piecemeal:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            else:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"tcp://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


async def build(url: str) -> None:
    made = await Engine.connect(url)
    try:
        await made.build("the plugin kernel", {"Dockerfile": b"FROM x"}, ["patchwright-x:1"], network=True)
    finally:
        await made.close()


async def test_a_proxy_that_forbids_host_network_builds_does_not_hide_the_reason() -> None:
    answers = {"default": (200, NOWHERE), "host": (403, [REFUSED])}
    with (
        engine(answers) as url,
        pytest.raises(ImageUnavailable, match="Temporary failure in name resolution"),
    ):
        await build(url)


async def test_an_engine_that_rejects_all_builds_is_reported() -> None:
    refusing = {"default": (403, [REFUSED])}
    with engine(refusing) as url, pytest.raises(EngineUnavailable, match="the Docker proxy rejected"):
        await build(url)


async def test_a_commit_may_take_longer_than_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "REQUEST_TIMEOUT", 1)
    with engine({"committed": (201, []), "rejected": (500, [REFUSED])}) as url:
        made = await Engine.connect(url)
        await made.commit("abc", "patchwright-x:committed", {"owner": "acme"})
        with pytest.raises(EngineUnavailable, match="rejected"):
            await made.commit("abc", "patchwright-x:rejected", {})
        await made.close()
