"""The commands of `docs/http-api.md`, run as they are shown, at a server with its own Redis."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.http_server import listener_url, open_listener
from patchwright.bot.redis.api_keys import API_SCOPES
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings
from tests.bot.dashboard.conftest import wait_until_ready

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
async def server(short_tmp: Path) -> AsyncIterator[str]:
    settings = Settings(data=short_tmp, webhook_secret="story-webhook-secret")
    with open_listener("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(run_server(settings, (), {}, listener, announce=lambda line: None))
        try:
            await wait_until_ready(listener_url(listener))
            yield listener_url(listener)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def run_block(block: str, server: str, data: Path) -> str:
    script = "set -eu\n" + block.replace("https://patchwright.example.com", server)
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(data),
        "PATCHWRIGHT_DATA": str(data),
        "no_proxy": "127.0.0.1",
    }
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", script],
        env=environ,
        cwd=data,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_the_first_commands_create_read_and_stop_a_job(server: str, short_tmp: Path) -> None:
    output = await run_block(BLOCKS[0], server, short_tmp)
    decoder, answers = json.JSONDecoder(), list[Any]()
    while output := output.strip():
        answer, end = decoder.raw_decode(output)
        answers.append(answer)
        output = output[end:]
    created, job, stopped = answers
    assert (created, stopped) == ({"id": "nightly-7"}, {"id": "nightly-7", "stopped": True})
    assert (job["state"], job["repository"], job["number"]) == ("queued", "acme/sample", 7)


@pytest.mark.slow
@pytest.mark.redis
async def test_the_commands_for_keys_work(server: str, short_tmp: Path) -> None:
    key, listed, revoked = (await run_block(BLOCKS[1], server, short_tmp)).splitlines()
    assert key.startswith("pw_reports_") and listed.startswith("reports ")
    assert revoked == "reports no longer works."


def test_the_page_names_every_route_scope_and_status() -> None:
    text = PAGE.read_text()
    description = json.loads((PAGE.parent / "openapi.json").read_text())
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            row = f"| `{method.upper()} {path.replace('{id}', 'ID')}` | `{operation['security'][0]['apiKey'][0]}` |"
            assert row in text
            for status in operation["responses"]:
                assert status == "500" or status in text, status
    assert set(re.findall(r"\w+:(?:read|write)\b", text)) == set(API_SCOPES)
