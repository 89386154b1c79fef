"""Setting up in real Chromium, as docs/self-hosting.md tells it, until a labelled issue has a pull request."""

import json
import stat

import pytest
from playwright.async_api import Page

from bot.embedded import embedded_redis
from tests.page.browsing import NARROW, WIDE, window
from tests.page.test_in_browser import Judge, judge
from tests.runtime.looking import chromium
from tests.setup.conftest import Fresh
from tests.stories.conftest import CODE, KEY

__all__ = ["judge"]  # a fixture

pytestmark = [pytest.mark.redis, pytest.mark.browser]


# Playwright looks at no page that is being left, and a person does.
LISTEN = """
const status = document.querySelector("[role=status]");
new MutationObserver(() => { sessionStorage.heard = status.textContent; }).observe(status, {childList: true});
"""


async def enter(page: Page, fresh: Fresh) -> None:
    await page.goto("/")
    await page.get_by_label("The code that the server printed").fill(fresh.code.lower())
    await page.get_by_role("button", name="Go on").click()


async def test_a_code_a_model_an_app_and_a_labelled_issue_has_its_pull_request(fresh: Fresh) -> None:
    async with fresh.serving(), chromium() as browser, window(browser, fresh.url) as page:
        await enter(page, fresh)
        await page.get_by_role("heading", name="The model", exact=True).wait_for()
        await page.get_by_label("Name, as provider/model").fill("openai/scripted")
        await page.get_by_label("Key").fill(KEY)
        await page.get_by_label("Address, for an OpenAI-compatible").fill(fresh.mind.base_url)
        await page.evaluate(LISTEN)
        await page.get_by_role("button", name="Try and keep it").click()
        await page.get_by_role("button", name="Use it without a price").click()
        assert str(await page.evaluate("sessionStorage.heard")).startswith("The model is being tried.")
        await page.get_by_label("GitHub reaches that address").check()
        await page.get_by_role("button", name="Go on").click()
        assert await page.get_by_role("listitem").all_inner_texts() == [
            "metadata: read", "contents: write", "issues: write", "pull requests: write", "checks: write",
            "actions: read", "statuses: read",
        ]  # fmt: skip
        await page.get_by_role("button", name="Make the App on").click()
        await page.get_by_role("button", name="Create GitHub App for maintainer").click()
        await page.get_by_role("heading", name="What is left to do").wait_for()
        assert page.url == f"{fresh.url}/welcome"
        await page.get_by_role("link", name="Install the App").click()
        await page.get_by_role("button", name="Install").click()
        await page.get_by_text("It is installed for acme.").wait_for()
        await page.get_by_role("link", name="Look now").focus()
        await page.get_by_text("GitHub's deliveries arrive here").wait_for(timeout=60_000)
        await page.get_by_text("1 with openai/scripted, ready.").wait_for(timeout=60_000)
        assert await page.evaluate("document.activeElement.innerText") == "Look now"

        (app,) = fresh.world.apps
        assert "workflows" not in app.permissions
        await fresh.world.label(fresh.issue, "fix-me", by="maintainer")
        await page.get_by_role("heading", name="All set").wait_for(timeout=60_000)
        (pull,) = fresh.repo.pulls
        link = page.get_by_role("link", name=f"Pull request #{pull.number}")
        assert await link.get_attribute("href") == f"{fresh.world.server_url}/acme/calc/pull/{pull.number}"
        assert (await page.request.get("/setup")).status == 404
        await page.get_by_role("link", name="all runs").click()
        await page.get_by_role("link", name="Log in with GitHub").click()
        await page.get_by_role("button", name=f"Authorize {app.slug} as maintainer").click()
        await page.get_by_role("link", name="add(2, 3) gives -1").wait_for()
    assert fresh.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    kept = fresh.data / "data/setup/kept.json"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (kept.parent, kept)]
    assert modes == [0o700, 0o600]
    assert json.loads(kept.read_text())["app"]["private_key"] == app.private_key_pem
    secret = json.loads(kept.read_text())["app"]["webhook_secret"]
    said = fresh.log + "".join(fresh.lines)
    assert not any(one in said for one in (KEY, secret, app.private_key_pem.splitlines()[1]))


@pytest.mark.parametrize(
    ("size", "dark"),
    [pytest.param(WIDE, False, marks=pytest.mark.slow, id="light"), pytest.param(NARROW, True, id="dark")],
)
async def test_axe_finds_nothing_in_any_step_and_nothing_is_wider_than_a_phone(
    fresh: Fresh, judge: Judge, size: tuple[int, int], dark: bool
) -> None:
    fresh.mind.fit = False
    known = ("403", "400", "409")
    async with (
        embedded_redis(fresh.data) as redis,
        fresh.serving("--no-worker", REDIS_URL=redis),
        chromium() as browser,
        window(browser, fresh.url, size, dark=dark, complaints=known) as page,
    ):

        async def look(name: str) -> list[str]:
            faults = await judge.faults(page)
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            return [*faults, f"{name} is wider than the window by {wide}"] if wide > 0 else faults

        await page.goto("/")
        await page.get_by_label("The code that the server printed").fill("WRONG")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        found = await look("code")
        await enter(page, fresh)
        await page.get_by_label("Name, as provider/model").fill("openai/scripted")
        await page.get_by_label("Key").fill(KEY)
        await page.get_by_label("Address, for an OpenAI-compatible").fill(fresh.mind.base_url)
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Use it anyway").wait_for(timeout=60_000)
        found += await look("model")
        await page.get_by_role("button", name="Use it anyway").click()
        await page.get_by_role("heading", name="The GitHub App").wait_for()
        found += await look("app")
        await page.get_by_label("GitHub reaches that address").check()
        await page.get_by_role("button", name="Go on").click()
        await page.get_by_role("button", name="Make the App on").wait_for()
        found += await look("send")
        await page.get_by_role("button", name="Make the App on").click()
        await page.get_by_role("button", name="Create GitHub App for maintainer").click()
        await page.get_by_role("heading", name="What is left to do").wait_for(timeout=60_000)
        found += await look("welcome")
        await page.context.clear_cookies()  # as after an hour
        await page.get_by_role("heading", name="Log in", exact=True).wait_for()
        found += await look("log-in")
    assert found == []
