"""A server loads FastAPI, with the HTTP API and the dashboard, when it gets the first request for either of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bot.deliveries import LABELED, SECRET, signed

pytestmark = [pytest.mark.redis, pytest.mark.slow]

PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from patchwright.bot.http_server import listener_url, open_listener
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings

async def ask(url, head, body=""):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"{head} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\ncontent-length: {len(body)}\\r\\n".encode())
    writer.write(f"{sys.argv[4]}\\r\\n\\r\\n{body}".encode())
    return (await reader.read())[9:12].decode(), "fastapi" in sys.modules

async def main():
    settings = Settings(data=Path(sys.argv[1]), webhook_secret=sys.argv[2], operator_token=sys.argv[3] or None)
    with open_listener("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(run_server(settings, (), {}, listener, announce=lambda line: None))
        url = listener_url(listener)
        while not serving.done() and (await ask(url, "GET /readyz"))[0] != "503":
            await asyncio.sleep(0.02)
        answers = {
            "health": await ask(url, "GET /healthz"),
            "webhook": await ask(url, "POST /webhook", sys.argv[5]),
            "page": await ask(url, "GET /login"),
            "job": await ask(url, "GET /jobs/mine"),
            "description": await ask(url, "GET /openapi.json"),
        }
        print(json.dumps(answers))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

asyncio.run(main())
"""


def ask_in_turn(data: Path, operator_token: str) -> dict[str, list[object]]:
    """Returns for each request the status, and whether FastAPI was loaded after it."""
    headers, body = signed("issues", LABELED)
    lines = "\r\n".join(f"{name}: {value}" for name, value in headers.items() if name != "content-length")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data), SECRET, operator_token, lines, body.decode()],
        env=os.environ,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers: dict[str, list[object]] = json.loads(done.stdout)
    return answers


def test_without_sign_in_only_the_api_loads_fastapi(short_tmp: Path) -> None:
    assert ask_in_turn(short_tmp, "") == {
        "health": ["200", False],
        "webhook": ["202", False],
        "page": ["404", False],
        "job": ["401", True],
        "description": ["200", True],
    }


def test_with_sign_in_a_page_loads_fastapi_and_a_delivery_does_not(short_tmp: Path) -> None:
    answers = ask_in_turn(short_tmp, "operator-token-of-a-test")
    assert answers["webhook"] == ["202", False]
    assert answers["page"] == ["200", True]
