"""The setup in Chromium, from the code to the first pull request, as in docs/self-hosting.md."""

import stat

import pytest
from playwright.async_api import Page

from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.setup import credential_store
from tests.bot.dashboard.browsing import NARROW, WIDE, browser_window
from tests.bot.dashboard.test_in_browser import AxeChecker, axe
from tests.bot.setup.conftest import UnconfiguredServer
from tests.end_to_end.conftest import CODE, KEY
from tests.runtime.chromium_page import chromium

__all__ = ["axe"]  # a fixture

pytestmark = [pytest.mark.redis, pytest.mark.browser]


# Records the waiting message: Playwright cannot query a page that is being left.
RECORD_STATUS = """
const status = document.querySelector("[role=status]");
new MutationObserver(() => { sessionStorage.statusText = status.textContent; }).observe(status, {childList: true});
"""


async def enter_code(page: Page, server: UnconfiguredServer) -> None:
    await page.goto("/")
    await page.get_by_label("Enter the code that the server printed").fill(server.code.lower())
    await page.get_by_role("button", name="Continue", exact=True).click()


@pytest.mark.slow
async def test_the_setup_leads_to_a_first_pull_request(server: UnconfiguredServer) -> None:
    async with server.started(), chromium() as browser, browser_window(browser, server.url) as page:
        await enter_code(page, server)
        await page.get_by_role("heading", name="Choose a model", exact=True).wait_for()
        await page.get_by_label("Model name, as provider/model").fill("openai/scripted")
        await page.get_by_label("Key").fill(KEY)
        await page.get_by_label("Base URL of your own OpenAI-compatible").fill(server.fake_model.base_url)
        await page.evaluate(RECORD_STATUS)
        await page.get_by_role("button", name="Test and save").click()
        await page.get_by_role("button", name="Continue without a price").click()
        assert str(await page.evaluate("sessionStorage.statusText")).startswith("Testing the model.")
        await page.get_by_label("GitHub sends events to this server's URL").check()
        await page.get_by_role("button", name="Continue", exact=True).click()
        assert await page.get_by_role("listitem").all_inner_texts() == [
            "metadata: read", "contents: write", "issues: write", "pull requests: write", "checks: write",
            "actions: read", "statuses: read",
        ]  # fmt: skip
        await page.get_by_role("button", name="Continue on").click()
        await page.get_by_role("button", name="Create GitHub App for maintainer").click()
        await page.get_by_role("heading", name="Finish the setup").wait_for()
        assert page.url == f"{server.url}/welcome"
        await page.get_by_role("link", name="Install the App").click()
        await page.get_by_role("button", name="Install").click()
        await page.get_by_text("Installed for acme.").wait_for()
        await page.get_by_role("link", name="Refresh now").focus()
        await page.get_by_text("Webhook deliveries from GitHub arrive").wait_for(timeout=60_000)
        await page.get_by_text("1 worker is ready with openai/scripted.").wait_for(timeout=60_000)
        assert await page.evaluate("document.activeElement.innerText") == "Refresh now"

        (app,) = server.fake_github.apps
        assert "workflows" not in app.permissions
        await server.fake_github.add_label(server.issue, "fix-me", by="maintainer")
        await page.get_by_role("heading", name="Setup complete").wait_for(timeout=60_000)
        (pull,) = server.repo.pulls
        link = page.get_by_role("link", name=f"Pull request #{pull.number}")
        assert (
            await link.get_attribute("href")
            == f"{server.fake_github.server_url}/acme/calc/pull/{pull.number}"
        )
        assert (await page.request.get("/setup")).status == 404
        await page.get_by_role("link", name="all runs").click()
        await page.get_by_role("link", name="Sign in with GitHub").click()
        await page.get_by_role("button", name=f"Authorize {app.slug} as maintainer").click()
        await page.get_by_role("link", name="add(2, 3) gives -1").wait_for()
    assert server.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    credentials = server.data / "data/setup/credentials.json"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (credentials.parent, credentials)]
    assert modes == [0o700, 0o600]
    saved = credential_store.load(server.data / "data").app
    assert saved is not None
    assert saved.private_key == app.private_key_pem
    secret = saved.webhook_secret
    assert secret is not None
    content = credentials.read_text()
    assert not any(one in content for one in (KEY, secret, app.private_key_pem.splitlines()[1]))
    output = server.log + "".join(server.lines)
    assert not any(one in output for one in (KEY, secret, app.private_key_pem.splitlines()[1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "dark"),
    [pytest.param(WIDE, False, marks=pytest.mark.slow, id="light"), pytest.param(NARROW, True, id="dark")],
)
async def test_each_step_is_accessible_and_fits_a_phone(
    server: UnconfiguredServer, axe: AxeChecker, size: tuple[int, int], dark: bool
) -> None:
    server.fake_model.passes_probe = False
    expected = ("403", "400", "409")
    async with (
        run_embedded_redis(server.data) as redis,
        server.started("--no-worker", REDIS_URL=redis),
        chromium() as browser,
        browser_window(browser, server.url, size, dark=dark, expected_errors=expected) as page,
    ):

        async def check_page(name: str) -> list[str]:
            faults = await axe.find_violations(page)
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            return [*faults, f"{name} is wider than the window by {wide}"] if wide > 0 else faults

        await page.goto("/")
        await page.get_by_label("Enter the code that the server printed").fill("WRONG")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        found = await check_page("code")
        await enter_code(page, server)
        await page.get_by_label("Model name, as provider/model").fill("openai/scripted")
        await page.get_by_label("Key").fill(KEY)
        await page.get_by_label("Base URL of your own OpenAI-compatible").fill(server.fake_model.base_url)
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Use it anyway").wait_for(timeout=60_000)
        found += await check_page("model")
        await page.get_by_role("button", name="Use it anyway").click()
        await page.get_by_role("heading", name="Create the GitHub App").wait_for()
        found += await check_page("app")
        await page.get_by_label("GitHub sends events to this server's URL").check()
        await page.get_by_role("button", name="Continue", exact=True).click()
        await page.get_by_role("button", name="Continue on").wait_for()
        found += await check_page("send")
        await page.get_by_role("button", name="Continue on").click()
        await page.get_by_role("button", name="Create GitHub App for maintainer").click()
        await page.get_by_role("heading", name="Finish the setup").wait_for(timeout=60_000)
        found += await check_page("welcome")
        await page.context.clear_cookies()  # as after an hour
        await page.get_by_role("heading", name="Sign in", exact=True).wait_for()
        found += await check_page("sign-in")
    assert found == []
