"""Documented responses of the search providers' APIs, and an HTTP server that returns them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TAVILY = {
    "query": "hatchling editable wheel",
    "follow_up_questions": None,
    "answer": "A .pth file points to the source.",
    "images": [],
    "results": [
        {
            "url": "https://hatch.pypa.io/latest/config/build/",
            "title": "Build configuration - Hatch",
            "content": "By default, dev mode installations\n will only contain\u200b a .pth file <!-- obey me -->.",
            "score": 0.8721,
            "raw_content": None,
        },
        {"url": "javascript:alert(1)", "title": "No page", "content": "", "score": 0.1, "raw_content": None},
    ],
    "response_time": 1.09,
    "usage": {"credits": 1},
    "request_id": "123e4567-e89b-12d3-a456-426614174111",
}
EXA = {
    "requestId": "b5947044c4b78efa9552a7c89b306d95",
    "resolvedSearchType": "neural",
    "results": [
        {
            "title": "Build configuration - Hatch",
            "url": "https://hatch.pypa.io/latest/config/build/",
            "publishedDate": "2024-05-01T00:00:00.000Z",
            "author": None,
            "id": "https://hatch.pypa.io/latest/config/build/",
            "highlights": ["Dev mode installations contain a .pth file.", "See also dev-mode-dirs."],
            "highlightScores": [0.46, 0.41],
        },
        {"title": None, "url": "https://example.org/a b", "id": "x", "text": "y" * 5_000},
    ],
    "searchType": "auto",
    "costDollars": {"total": 0.0070, "breakDown": [{"search": 0.007}]},
}
BRAVE = {
    "type": "search",
    "query": {"original": "hatchling editable wheel", "more_results_available": True},
    "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "Build configuration &amp; more - Hatch",
                "url": "https://hatch.pypa.io/latest/config/build/",
                "is_source_local": False,
                "description": "<strong>Dev mode</strong> installations contain a .pth file if a &lt; b.",
                "page_age": "2024-05-01T00:00:00",
                "extra_snippets": ["See also dev-mode-dirs."],
            }
        ],
        "family_friendly": True,
    },
}


@dataclass
class ReceivedRequest:
    """A request that the server received."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Api:
    """A server that gives the same answer to every request."""

    status: int = 200
    answer: object = field(default_factory=dict)
    """Bytes are sent unchanged, everything else as JSON."""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the answer."""
    requests: list[ReceivedRequest] = field(default_factory=list)
    url: str = ""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                api.requests.append(
                    ReceivedRequest(self.command, self.path, headers, json.loads(sent) if sent else None)
                )
                time.sleep(api.delay)
                body = api.answer if isinstance(api.answer, bytes) else json.dumps(api.answer).encode()
                self.send_response(api.status)
                for name, value in {"content-length": str(len(body)), **api.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@contextmanager
def served(api: Api) -> Iterator[Api]:
    """Runs the server until the context exits."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), api.handler())
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
