"""Challenge pages are detected in snapshots of a real Chromium, and the agent stops at them."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.browsing.challenges import detect_challenge, find_blocking_challenge
from patchwright.resolver.browsing.prompt import MAX_ANSWER_LENGTH
from patchwright.runtime.actions import UseBrowser
from patchwright.runtime.browser.action_space import WEB_CALLS
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import PageSnapshot
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.sandbox_actions import printed, shell
from tests.resolver.fake_browser import BLANK, FakeBrowserSandbox, code_reply, page, run_browse_task

HUMAN, CONSENT = "a CAPTCHA", "a consent wall"

WIDGET = "<!doctype html><input type=checkbox aria-label='{}'>"
PAGES = {
    "cloudflare": (
        HUMAN,
        """<!doctype html><title>Just a moment...</title><h1>shop.test</h1>
        <p>Verify you are human by completing the action below.</p>
        <iframe title="Widget containing a Cloudflare security challenge" src="widget.html"></iframe>
        <p>shop.test needs to review the security of your connection before proceeding.</p>""",
    ),
    "search": (
        HUMAN,
        """<!doctype html><title>http://search.test/?q=mug</title>
        <p>Our systems have detected unusual traffic from your computer network. This page checks to see if it's
        really you sending the requests, and not a robot.</p>
        <iframe title="reCAPTCHA" src="widget.html"></iframe>""",
    ),
    "letters": (
        HUMAN,
        """<!doctype html><title>Robot Check</title>
        <h4>Enter the characters you see below</h4><p>Sorry, we just need to make sure you're not a robot.</p>
        <img alt="captcha" src="x.png"><form><input type=text placeholder="Type characters"><button>Continue</button>
        </form>""",
    ),
    "consent": (
        CONSENT,
        """<!doctype html><title>News</title><p>We and our 812 partners store cookies with your consent.</p>""",
    ),
    "consent-with-a-way": (
        None,
        """<!doctype html><title>News</title><p>We and our 812 partners store cookies with your consent.</p>
        <button>Reject all</button><button>Accept all</button>""",
    ),
    "login": (
        None,
        """<!doctype html><title>Sign in</title><label>Name <input></label>
        <label>Password <input type=password></label>
        <iframe title="reCAPTCHA" src="widget.html"></iframe><p>Prove that you are not a robot.</p>
        <button>Sign in</button>""",
    ),
    "documentation": (
        None,
        "<!doctype html><title>Turnstile</title><h1>Turnstile</h1><p>Shows the visitor a box to verify you are human."
        "</p><ul>"
        + "".join(f"<li>Option {n}: <a href='#{n}'>see there</a></li>" for n in range(200))
        + "</ul>",
    ),
    "article": (
        None,
        """<!doctype html><title>Why sites ask "are you a robot?"</title><p>A short history of the CAPTCHA, by which
        sites tell people from programs: you prove that you are not a robot by typing letters.</p>""",
    ),
    "loading": (None, "<!doctype html><title>Just a moment</title><p>Loading the shop.</p>"),
    "shop": (None, "<!doctype html><title>Shop</title><p>The red mug: $279.49</p><button>Buy</button>"),
}

SERVE = """cat > serve.py <<'END'
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
open("port", "w").write(str(server.server_port))
server.serve_forever()
END
python3 serve.py > /dev/null 2>&1 &
until [ -s port ]; do sleep 0.05; done"""


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, os.environ).open("pages") as sandbox:
        yield sandbox


@pytest.mark.slow
@pytest.mark.browser
async def test_challenge_pages_are_distinguished_from_pages_about_challenges(sandbox: Sandbox) -> None:
    tree = Path(sandbox.root)
    for name, (_, text) in PAGES.items():
        await asyncio.to_thread((tree / f"{name}.html").write_text, text)
    await asyncio.to_thread((tree / "widget.html").write_text, WIDGET.format("Verify you are human"))
    await shell(sandbox, SERVE)
    address = f"http://127.0.0.1:{(await printed(sandbox, 'cat port')).strip()}"
    found: dict[str, str | None] = {}
    for name in PAGES:
        result = await sandbox.act(UseBrowser(code=f"goto('{address}/{name}.html')", allowed_calls=WEB_CALLS))
        assert isinstance(result, PageSnapshot) and result.error is None, result
        found[name] = detect_challenge(result)
    assert found == {name: kind for name, (kind, _) in PAGES.items()}


WALL = page(
    "RootWebArea 'Just a moment...', focused\n\t[2] heading 'Verify you are human', level=2",
    url="http://shop.test/mug",
    title="Just a moment...",
)
SHOP = page("RootWebArea 'Shop', focused\n\tStaticText 'The red mug: $279.49'", url="http://shop.test/mug")
GOES = code_reply("goto('http://shop.test/mug')")


async def test_the_agent_is_told_of_a_challenge_and_can_report_infeasible(tmp_path: Path) -> None:
    over = WALL.model_copy(update={"infeasible_reason": "shop.test wants a human."})
    answer, model = await run_browse_task(
        tmp_path, FakeBrowserSandbox(BLANK, WALL, over), GOES, code_reply("report_infeasible('...')")
    )
    assert isinstance(answer, SubagentResult)
    assert (answer.status, answer.text, answer.usage.steps) == ("infeasible", "shop.test wants a human.", 2)
    assert "- this page is a CAPTCHA" in model.requests[2][-1].text
    assert "a CAPTCHA" not in model.requests[1][-1].text


async def test_an_agent_at_a_challenge_is_stopped_after_two_steps(tmp_path: Path) -> None:
    clicks = [code_reply("click('2')", f"I try once more, {n}.") for n in range(20)]
    answer, _ = await run_browse_task(tmp_path, FakeBrowserSandbox(BLANK, *[WALL] * 20), GOES, *clicks)
    assert isinstance(answer, SubagentResult) and (answer.status, answer.usage.steps) == ("infeasible", 2)
    assert "http://shop.test/mug shows a CAPTCHA" in answer.text and len(answer.text) < MAX_ANSWER_LENGTH
    assert "cannot be done" in render_observation(answer).splitlines()[0]


async def test_a_challenge_that_clears_does_not_stop_the_agent(tmp_path: Path) -> None:
    answered = SHOP.model_copy(update={"user_message": "$279.49"})
    script = [GOES, code_reply("noop(5000)"), code_reply("send_msg_to_user('$279.49')")]
    answer, _ = await run_browse_task(tmp_path, FakeBrowserSandbox(BLANK, WALL, SHOP, answered), *script)
    assert isinstance(answer, SubagentResult) and (answer.status, answer.text) == ("answered", "$279.49")


async def test_a_challenge_of_an_earlier_task_does_not_count(tmp_path: Path) -> None:
    answered = SHOP.model_copy(update={"user_message": "$279.49"})
    box = FakeBrowserSandbox(WALL, WALL, answered)
    answer, _ = await run_browse_task(
        tmp_path, box, code_reply("noop(5000)"), code_reply("send_msg_to_user('$279.49')")
    )
    assert isinstance(answer, SubagentResult) and answer.status == "answered"


def test_a_long_hostile_page_is_classified_fast() -> None:
    long = page("RootWebArea 'x'\n" + "\t[1] Iframe 'captcha' " * 5_000, title="captcha " * 10_000)
    assert find_blocking_challenge([long, long]) is None
    most = page("[1] Iframe '" + "a" * 5_900, title="just a moment" + "." * 100_000 + "x")
    assert detect_challenge(most) is None
