"""The dashboard behind a reverse proxy, and servers without a sign-in method."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from patchwright.bot.http_server import listener_url, open_listener
from patchwright.bot.web.lazy_application import has_sign_in
from patchwright.bot.web.server import run_server
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings
from tests.bot.dashboard.conftest import OPERATOR, dashboard_server, wait_until_ready
from tests.bot.dashboard.event_stream import watch_run
from tests.bot.dashboard.test_access_control import parse_csrf
from tests.bot.deliveries import signed
from tests.resolver.sample_runs import full_run, started

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("kept", [True, False], ids=["path kept", "path stripped"])
async def test_the_path_prefix_is_in_every_link_whether_or_not_the_proxy_strips_it(
    short_tmp: Path, kept: bool
) -> None:
    async with dashboard_server(short_tmp, "/bot") as server:
        await server.add_finished_run("acme-calc-1-x", *full_run())
        base_url = f"{server.url}/bot" if kept else server.url
        async with httpx.AsyncClient(base_url=base_url, trust_env=False) as browser:
            led = await browser.get("/runs/acme-calc-1-x")
            assert led.headers["location"] == "/bot/login?back_to=%2Fruns%2Facme-calc-1-x"
            entered = await browser.post("/login", data={"token": OPERATOR, "back_to": "/runs/acme-calc-1-x"})
            assert entered.headers["location"] == "/bot/runs/acme-calc-1-x"
            assert (await browser.get(base_url)).status_code == 200  # without a slash at its end, too
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
            async with server.add_running_run("acme-calc-2-live") as worker:
                await worker.write(started())
                assert (
                    'data-events="/bot/runs/acme-calc-2-live/events'
                    in (await browser.get("/runs/acme-calc-2-live")).text
                )
                async with watch_run(browser, "acme-calc-2-live") as watch:
                    assert await watch.entries(1) == ["0"]


async def test_https_cookies_are_secure_and_bound_to_the_host(short_tmp: Path) -> None:
    async with dashboard_server(short_tmp, scheme="https") as server:
        browser = server.browser()
        entered = await browser.post("/login", data={"token": OPERATOR})
        (cookie,) = entered.headers.get_list("set-cookie")
        assert cookie.startswith("__Host-patchwright-session=")
        assert {"HttpOnly", "SameSite=lax", "Path=/", "Secure"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        kept = {"cookie": cookie.partition(";")[0]}  # by hand: this way to the server is no https
        csrf = parse_csrf((await browser.get("/", headers=kept)).text)
        left = await browser.post("/logout", data={"csrf": csrf}, headers=kept)
        (dropped,) = left.headers.get_list("set-cookie")  # else browsers do not let go of it
        assert dropped.startswith('__Host-patchwright-session="";')
        assert {"Max-Age=0", "Path=/", "Secure"} <= set(dropped.split("; "))
        there = (await browser.get("/login/github")).headers["location"]
        back = parse_qs(urlsplit(there).query)["redirect_uri"]
        assert back == [f"{server.url.replace('http', 'https', 1)}/login/callback"]


async def test_without_a_sign_in_method_there_is_no_dashboard(short_tmp: Path) -> None:
    settings = Settings(data=short_tmp, webhook_secret="story-webhook-secret")
    with open_listener("127.0.0.1", 0) as listener:
        url = listener_url(listener)
        serving = asyncio.create_task(run_server(settings, (), {}, listener, announce=lambda line: None))
        try:
            await wait_until_ready(url)
            async with httpx.AsyncClient(base_url=url, trust_env=False) as browser:
                for path in ("/", "/login", "/runs/x", "/static/style.css"):
                    answer = await browser.get(path)
                    assert (answer.status_code, answer.text) == (404, "Not found.\n")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("left_out", ["oauth_client_id", "oauth_client_secret", "public_url"])
def test_incomplete_oauth_settings_are_an_error(tmp_path: Path, left_out: str) -> None:
    given = {"oauth_client_id": "Iv1", "oauth_client_secret": "secret", "public_url": "https://bot.test"}
    settings = Settings.model_validate({"data": tmp_path, **given, left_out: None})
    with pytest.raises(
        SettingsError, match="PATCHWRIGHT_OAUTH_CLIENT_ID, PATCHWRIGHT_OAUTH_CLIENT_SECRET and PATCHW"
    ):
        has_sign_in(settings)


@pytest.mark.slow
def test_the_dashboard_is_imported_on_first_use() -> None:
    program = (
        "import sys, patchwright.bot.web.server; "
        "late = ('patchwright.bot.dashboard', 'fastapi', 'starlette', 'opentelemetry'); "
        "print([n for n in sys.modules if n.startswith(late)])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
