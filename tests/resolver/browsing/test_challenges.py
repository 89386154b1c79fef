"""Pages that stand in the way: told from what a real Chromium shows of them, and what becomes of the task."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolver.actions import Reported
from resolver.browsing.challenges import blocked, challenge
from resolver.browsing.prompt import MAX_ANSWER
from resolver.render import result
from runtime.actions import UseBrowser
from runtime.browser.calls import DEFAULT
from runtime.observations import Page
from runtime.sandbox import Sandbox
from tests.contracts.acts import printed, shell
from tests.contracts.conftest import opened
from tests.resolver.pages import BLANK, Paper, browsed, does, page

HUMAN, CONSENT = "a test for humans", "a wall of consent without a way on"

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
    async with opened("executor", short_tmp) as sandbox:
        yield sandbox


@pytest.mark.browser
async def test_what_stands_in_the_way_is_told_from_what_only_speaks_of_it(sandbox: Sandbox) -> None:
    tree = Path(sandbox.root)
    for name, (_, text) in PAGES.items():
        await asyncio.to_thread((tree / f"{name}.html").write_text, text)
    await asyncio.to_thread((tree / "widget.html").write_text, WIDGET.format("Verify you are human"))
    await shell(sandbox, SERVE)
    address = f"http://127.0.0.1:{(await printed(sandbox, 'cat port')).strip()}"
    found: dict[str, str | None] = {}
    for name in PAGES:
        seen = await sandbox.act(UseBrowser(code=f"goto('{address}/{name}.html')", allowed=DEFAULT))
        assert isinstance(seen, Page) and seen.error is None, seen
        found[name] = challenge(seen)
    assert found == {name: kind for name, (kind, _) in PAGES.items()}


WALL = page(
    "RootWebArea 'Just a moment...', focused\n\t[2] heading 'Verify you are human', level=2",
    url="http://shop.test/mug",
    title="Just a moment...",
)
SHOP = page("RootWebArea 'Shop', focused\n\tStaticText 'The red mug: $279.49'", url="http://shop.test/mug")
GOES = does("goto('http://shop.test/mug')")


async def test_the_agent_is_told_and_can_say_that_it_cannot_be_done(tmp_path: Path) -> None:
    over = WALL.model_copy(update={"infeasible": "shop.test wants a human."})
    answer, model = await browsed(tmp_path, Paper(BLANK, WALL, over), GOES, does("report_infeasible('...')"))
    assert isinstance(answer, Reported)
    assert (answer.status, answer.text, answer.spent.steps) == ("infeasible", "shop.test wants a human.", 2)
    assert "- this page is a test for humans" in model.asked[2][-1].text
    assert "a test for humans" not in model.asked[1][-1].text


async def test_an_agent_that_does_not_let_go_is_stopped_after_two_steps(tmp_path: Path) -> None:
    clicks = [does("click('2')", f"I try once more, {n}.") for n in range(20)]
    answer, _ = await browsed(tmp_path, Paper(BLANK, *[WALL] * 20), GOES, *clicks)
    assert isinstance(answer, Reported) and (answer.status, answer.spent.steps) == ("infeasible", 2)
    assert "http://shop.test/mug shows a test for humans" in answer.text and len(answer.text) < MAX_ANSWER
    assert "cannot be done" in result(answer).splitlines()[0]


async def test_a_test_that_passes_by_itself_or_another_source_is_no_end(tmp_path: Path) -> None:
    answered = SHOP.model_copy(update={"answer": "$279.49"})
    script = [GOES, does("noop(5000)"), does("send_msg_to_user('$279.49')")]
    answer, _ = await browsed(tmp_path, Paper(BLANK, WALL, SHOP, answered), *script)
    assert isinstance(answer, Reported) and (answer.status, answer.text) == ("answered", "$279.49")


async def test_a_page_that_an_earlier_task_left_does_not_count(tmp_path: Path) -> None:
    answered = SHOP.model_copy(update={"answer": "$279.49"})
    box = Paper(WALL, WALL, answered)
    answer, _ = await browsed(tmp_path, box, does("noop(5000)"), does("send_msg_to_user('$279.49')"))
    assert isinstance(answer, Reported) and answer.status == "answered"


def test_a_long_hostile_page_is_judged_in_no_time() -> None:
    long = page("RootWebArea 'x'\n" + "\t[1] Iframe 'captcha' " * 5_000, title="captcha " * 10_000)
    assert blocked([long, long]) is None
    most = page("[1] Iframe '" + "a" * 5_900, title="just a moment" + "." * 100_000 + "x")
    assert challenge(most) is None
