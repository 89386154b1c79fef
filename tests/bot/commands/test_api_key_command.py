"""`patchwright api-key`: the keys that it creates work at a server until it revokes them."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest

from patchwright.bot.http_server import listener_url, open_listener
from patchwright.bot.redis.api_keys import API_SCOPES
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings
from tests.bot.dashboard.conftest import wait_until_ready
from tests.preloaded_command import preloaded_command

pytestmark = pytest.mark.redis


def api_key(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*preloaded_command(), "api-key", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(data), "PATCHWRIGHT_DATA": str(data)},
        cwd=data,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_a_key_works_at_a_running_server_until_it_is_revoked(short_tmp: Path) -> None:
    early = api_key(short_tmp, "create", "early", "--scope", "jobs:read")  # before the first start
    assert (early.returncode, early.stderr) == (0, "")
    settings = Settings(data=short_tmp, webhook_secret="story-webhook-secret")
    with open_listener("127.0.0.1", 0) as listener:
        url = listener_url(listener)
        serving = asyncio.create_task(run_server(settings, (), {}, listener, announce=lambda line: None))
        try:
            await wait_until_ready(url)
            late = await asyncio.to_thread(api_key, short_tmp, "create", "late", "--json")
            assert json.loads(late.stdout)["scopes"] == list(API_SCOPES)
            body = {"repository": "acme/sample", "number": 7, "id": "mine"}
            async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
                reader = {"authorization": f"Bearer {early.stdout.strip()}"}
                writer = {"authorization": f"Bearer {json.loads(late.stdout)['key']}"}
                assert (await http.get("/jobs/mine")).status_code == 401
                assert (await http.post("/jobs", json=body, headers=writer)).status_code == 202
                assert (await http.post("/jobs", json=body, headers=reader)).status_code == 403
                assert (await http.get("/jobs/mine", headers=reader)).status_code == 200
                revoked = await asyncio.to_thread(api_key, short_tmp, "revoke", "early")
                assert (revoked.returncode, revoked.stdout) == (0, "early no longer works.\n")
                assert (await http.get("/jobs/mine", headers=reader)).status_code == 401
                assert (await http.get("/jobs/mine", headers=writer)).status_code == 200
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def test_the_list_shows_names_and_scopes_but_no_key(short_tmp: Path) -> None:
    assert api_key(short_tmp, "list").stdout.startswith("There are no API keys.")
    text = api_key(short_tmp, "create", "nightly", "--scope", "jobs:read").stdout.strip()
    assert text.startswith("pw_nightly_")
    listed = api_key(short_tmp, "list").stdout
    assert listed.split()[0] == "nightly" and listed.rstrip().endswith("  jobs:read")
    (key,) = json.loads(api_key(short_tmp, "list", "--json").stdout)["keys"]
    assert (key["name"], key["scopes"], sorted(key)) == (
        "nightly",
        ["jobs:read"],
        ["created_at", "name", "scopes"],
    )
    assert text.rpartition("_")[2] not in listed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create",), "NAME is missing: create NAME."),
        (("list", "nightly"), "list takes no NAME."),
        (("revoke", "nightly"), "There is no API key nightly. List the keys: patchwright api-key list."),
        (("revoke", "nightly", "--scope", "jobs:read"), "Only create takes --scope."),
        (
            ("create", "nightly", "--scope", "all"),
            f"There is no scope all. There are: {', '.join(API_SCOPES)}.",
        ),
        (("create", "A"), "The name of a key has 1 to 40 lowercase letters, digits and hyphens."),
    ],
)
def test_a_mistake_is_one_sentence(short_tmp: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = api_key(short_tmp, *arguments)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"patchwright: {sentence}\n")
