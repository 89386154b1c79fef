"""The GitHub checks of `patchwright doctor`: each with its requirement met and broken."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from patchwright.bot.doctor import github_checks
from patchwright.bot.doctor.runner import CheckState
from patchwright.bot.setup.app_api import APP_PERMISSIONS, AppClient
from patchwright.resolver.settings.settings import Settings
from tests.bot.doctor.doctor_server import SECRET, find_result, run_all, server_under_test, states


async def test_all_checks_pass_on_a_healthy_server(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        results = await run_all(server.checks())
        assert states(results) == {"ok"}, results
        (webhook,) = [result for result in results if result.name == "webhook"]
        assert webhook.detail == "GitHub reaches the webhook, and a new ping had a valid signature"
        assert any(
            "got an installation token that is valid for 60 minutes" in result.detail for result in results
        )
        pings = [one for one in server.fake_github.deliveries if one.event == "ping"]
        assert [ping.status for ping in pings] == [200, 200]
        # Doctor writes nothing else.
        assert [write.path.rpartition("/")[2] for write in server.fake_github.writes] == ["attempts"]


async def test_a_wrong_private_key_is_reported(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        checks = github_checks.build_checks(
            Settings(**server.settings), server.fake_github.create_app("other").private_key_pem
        )
        result = await find_result(checks, "GitHub App", "failed")
        assert result.detail.startswith("GitHub rejected the App's credentials:")
        assert "generate a new key on the App's page" in result.fix


async def test_an_invalid_private_key_is_reported_without_quoting_it(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        result = await find_result(
            github_checks.build_checks(Settings(**server.settings), "-----nonsense"), "GitHub App", "failed"
        )
        assert result.detail == "the App's private key is not a PEM private key"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "state"), [("contents", "failed"), ("checks", "warning"), ("statuses", "warning")]
)
async def test_a_missing_permission_is_reported_with_a_link(
    tmp_path: Path, without: str, state: CheckState
) -> None:
    async with server_under_test(tmp_path) as server:
        del server.app.permissions[without]
        result = await find_result(server.checks(), "permissions", state)
        assert f"the App patchwright lacks {without}: {APP_PERMISSIONS[without]}" in result.detail
        assert result.fix == f"Grant the permissions at {server.fake_github.server_url}/apps/patchwright."


async def test_an_app_without_installations_is_reported(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        server.app = server.fake_github.create_app("lonely", APP_PERMISSIONS)
        checks = server.checks(app_id=str(server.app.id))
        assert "not installed anywhere" in (await find_result(checks, "installations", "failed")).detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "secret", "status", "fix"),
    [
        ("/webhook", "another", "401", "The webhook secret on the App's page is not the one configured here"),
        ("/hooks", SECRET, "404", "The URL must lead to /webhook of patchwright serve"),
    ],
)
async def test_a_rejected_delivery_is_reported_with_a_fix(
    tmp_path: Path, path: str, secret: str, status: str, fix: str
) -> None:
    async with server_under_test(tmp_path, path, secret) as server:
        checks = [check for check in server.checks() if check.name == "webhook"]
        result = (await run_all(checks))[-1]
        assert result.state == "failed"
        assert f"a new ping failed: {status}" in result.detail
        assert fix in result.fix


async def test_an_unreachable_server_gets_advice_on_firewalls(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        hook = server.fake_github.add_webhook("http://127.0.0.1:1/webhook", SECRET)
        await server.fake_github.send_delivery(hook, "ping", "", b"{}", guid="later")
        result = (await run_all([check for check in server.checks() if check.name == "webhook"]))[-1]
        assert (result.state, result.fix) == ("failed", github_checks.FIREWALL_FIX)


@pytest.mark.slow
async def test_a_wrong_public_url_is_reported(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        result = await find_result(server.checks(public_url="http://127.0.0.1:1"), "webhook", "warning")
        assert "not http://127.0.0.1:1/webhook" in result.detail
        assert (
            "no response"
            in (
                await find_result(server.checks(public_url="http://127.0.0.1:1"), "public URL", "failed")
            ).detail
        )


async def test_a_wrong_public_url_of_a_server_that_polls_is_a_warning(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        found = await find_result(server.checks(poll=True), "public URL", "ok")
        assert found.detail.endswith(" responds")
        wrong = {"poll": True, "public_url": "http://127.0.0.1:1"}
        found = await find_result(server.checks(**wrong), "public URL", "warning")
        assert found.detail.startswith("http://127.0.0.1:1 does not respond: no response from 127.0.0.1:1 (")
        assert "check the host and the port in PATCHWRIGHT_PUBLIC_URL" in found.fix
        names = [one.name for one in server.checks(**wrong, redis_url="redis://elsewhere")]
        assert "public URL" not in names


async def test_a_webhook_at_a_loopback_url_is_reported(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        app = AppClient(str(server.app.id), server.app.private_key_pem, server.fake_github.api_url, None)
        settings = Settings(**server.settings | {"github_server_url": "https://github.com"})
        (result,) = await github_checks._check_webhook_url(app, settings)
        url = f"{server.settings['public_url']}/webhook"
        assert result.detail == f"GitHub cannot reach {url}, because it is a loopback address"
        assert result.fix.endswith("or use patchwright serve --poll.")


async def test_clock_skew_is_reported(tmp_path: Path) -> None:
    import httpx

    for minutes, state in ((0, "ok"), (5, "failed")):
        date = format_datetime(datetime.now(UTC) - timedelta(minutes=minutes), usegmt=True)
        result = github_checks._check_clock(httpx.Response(200, headers={"date": date}))
        assert result.state == state
    assert result.detail in ("300 s ahead of GitHub's clock", "301 s ahead of GitHub's clock")
    assert github_checks._check_clock(httpx.Response(200)).state == "warning"


async def test_a_missing_webhook_secret_fails_unless_the_server_polls(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        server.settings["webhook_secret"] = None
        assert (
            "the webhook secret is not set"
            in (await find_result(server.checks(), "webhook", "failed")).detail
        )
        assert "polls GitHub" in (await find_result(server.checks(poll=True), "webhook", "ok")).detail


async def test_an_unavailable_github_fails_each_check(
    tmp_path: Path,
) -> None:
    async with server_under_test(tmp_path) as server:
        server.fake_github.fail_next_request("GET", "/app", status=500, times=2)
        result = await find_result(server.checks(), "GitHub App", "failed")
        assert "GitHub returned 500" in result.detail
        results = await run_all(server.checks(github_server_url="http://127.0.0.1:1"))
        assert {result.state for result in results if result.name != "public URL"} == {"failed"}
        assert all(
            "no response from 127.0.0.1:1" in one.detail for one in results if one.name != "public URL"
        )


async def test_a_token_is_checked_in_each_polled_repository(tmp_path: Path) -> None:
    async with server_under_test(tmp_path) as server:
        plain = {"data": tmp_path, "github_server_url": server.fake_github.server_url, "poll": True}
        token = server.fake_github.create_token("maintainer")
        settings = Settings(**plain, github_token=token, allowed_repositories=("acme/calc",))
        assert states(await run_all(github_checks.build_checks(settings, None))) == {"ok"}
        server.repo.labels.clear()
        result = await find_result(github_checks.build_checks(settings, None), "label", "warning")
        assert result.detail == "acme/calc has no label fix-me"
        assert result.fix.startswith("Run: gh label create fix-me --repo acme/calc --color ")
        assert (await find_result(server.checks(), "label", "warning")).fix == result.fix
        stranger = Settings(
            **plain,
            github_token=server.fake_github.create_token("stranger"),
            allowed_repositories=("acme/calc", "acme/none"),
        )
        assert [result.detail for result in await run_all(github_checks.build_checks(stranger, None))][
            2:
        ] == [
            "the token cannot write to acme/calc",
            "the token has no access to acme/none",
        ]
        wrong = Settings(**plain, github_token="ghp_wrong")
        assert (
            "GitHub rejected the token"
            in (await find_result(github_checks.build_checks(wrong, None), "token", "failed")).detail
        )


async def test_a_server_needs_a_github_identity_and_the_command_line_does_not(tmp_path: Path) -> None:
    unconfigured, server = Settings(data=tmp_path), Settings(data=tmp_path, poll=True)
    result = await find_result(github_checks.build_checks(server, None), "GitHub App", "failed")
    assert result.fix.startswith("Start patchwright serve and open the URL that it prints")
    result = await find_result(github_checks.build_checks(unconfigured, None), "GitHub App", "warning")
    assert "only patchwright resolve --repo works" in result.detail
    assert result.fix.startswith("For issues on GitHub, set GITHUB_TOKEN.")
