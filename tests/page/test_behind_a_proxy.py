"""Where people reach the server by another address than its own; and where nobody can log in."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from bot.beyond import beyond
from bot.serve import serve
from resolver.errors import SettingsError
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from tests.bot.deliveries import signed
from tests.page.conftest import OPERATOR, answering, free_port, room_at
from tests.page.streaming import watching
from tests.page.test_access import csrf_of
from tests.resolver.seen_runs import started, whole_run

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("kept", [True, False], ids=["path kept", "path stripped"])
async def test_a_path_stands_in_every_link_whether_the_proxy_strips_it_or_not(
    short_tmp: Path, kept: bool
) -> None:
    async with room_at(short_tmp, "/bot") as room:
        await room.ran("acme-calc-1-x", *whole_run())
        asked = f"{room.url}/bot" if kept else room.url
        async with httpx.AsyncClient(base_url=asked, trust_env=False) as browser:
            led = await browser.get("/runs/acme-calc-1-x")
            assert led.headers["location"] == "/bot/login?back_to=%2Fruns%2Facme-calc-1-x"
            entered = await browser.post("/login", data={"token": OPERATOR, "back_to": "/runs/acme-calc-1-x"})
            assert entered.headers["location"] == "/bot/runs/acme-calc-1-x"
            assert (await browser.get(asked)).status_code == 200  # without a slash at its end, too
            for path in ("/", "/runs/acme-calc-1-x"):
                page = (await browser.get(path)).text
                links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
                assert links
                assert [link for link in links if not link.startswith("/bot/")] == []
            headers, body = signed("ping", b"{}", secret="story-webhook-secret")
            pinged = await browser.post("/webhook", headers=headers, content=body)
            assert (pinged.status_code, pinged.json()) == (200, {"status": "pong"})
            assert (await browser.get("/healthz")).status_code == 200
            assert (await browser.get("/jobs/x")).status_code == 401
            async with room.running("acme-calc-2-live") as worker:
                await worker.write(started())
                assert (
                    'data-events="/bot/runs/acme-calc-2-live/events'
                    in (await browser.get("/runs/acme-calc-2-live")).text
                )
                async with watching(browser, "acme-calc-2-live") as watch:
                    assert await watch.entries(1) == ["0"]


async def test_behind_https_cookies_are_for_https_and_this_host_alone(short_tmp: Path) -> None:
    async with room_at(short_tmp, scheme="https") as room:
        browser = room.browser()
        entered = await browser.post("/login", data={"token": OPERATOR})
        (cookie,) = entered.headers.get_list("set-cookie")
        assert cookie.startswith("__Host-patchwright-session=")
        assert {"HttpOnly", "SameSite=lax", "Path=/", "Secure"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        kept = {"cookie": cookie.partition(";")[0]}  # by hand: this way to the server is no https
        csrf = csrf_of((await browser.get("/", headers=kept)).text)
        left = await browser.post("/logout", data={"csrf": csrf}, headers=kept)
        (dropped,) = left.headers.get_list("set-cookie")  # else browsers do not let go of it
        assert dropped.startswith('__Host-patchwright-session="";')
        assert {"Max-Age=0", "Path=/", "Secure"} <= set(dropped.split("; "))
        there = (await browser.get("/login/github")).headers["location"]
        back = parse_qs(urlsplit(there).query)["redirect_uri"]
        assert back == [f"{room.url.replace('http', 'https', 1)}/login/callback"]


async def test_where_nobody_can_log_in_there_is_no_page(short_tmp: Path) -> None:
    port = free_port()
    settings = Settings(data=short_tmp, webhook_secret="story-webhook-secret")
    serving = asyncio.create_task(
        serve(settings, (), {}, host="127.0.0.1", port=port, announce=lambda line: None)
    )
    try:
        await answering(f"http://127.0.0.1:{port}")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as browser:
            for path in ("/", "/login", "/runs/x", "/static/style.css"):
                answer = await browser.get(path)
                assert (answer.status_code, answer.text) == (404, "There is nothing here.\n")
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("left_out", ["oauth_client_id", "oauth_client_secret", "public_url"])
def test_half_of_a_log_in_is_an_error_that_names_the_rest(tmp_path: Path, left_out: str) -> None:
    given = {"oauth_client_id": "Iv1", "oauth_client_secret": "secret", "public_url": "https://bot.test"}
    settings = Settings.model_validate({"data": tmp_path, **given, left_out: None})
    with pytest.raises(
        SettingsError, match="PATCHWRIGHT_OAUTH_CLIENT_ID, PATCHWRIGHT_OAUTH_CLIENT_SECRET and PATCHW"
    ):
        beyond(settings, "redis://nowhere", Secrets(), {})


def test_a_receiver_whose_page_nobody_has_asked_for_has_not_loaded_it() -> None:
    program = (
        "import sys, bot.serve; print([n for n in sys.modules if n.startswith(('bot.page', 'starlette'))])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
