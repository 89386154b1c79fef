"""The operator's settings decide which browser calls an agent can make, and what it sees, in a real Chromium."""

import re
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from patchwright.resolver.browsing.browser_options import options_from_settings
from patchwright.resolver.delegation.browse_tool import BrowseTool
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply, ReplyUsage, ToolCall
from patchwright.resolver.llm.model import ChatMessage, Reply, ToolSpec, UserMessage
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.actions import SandboxAction, UseBrowser
from patchwright.runtime.observations import Observation
from tests.runtime.web_fixture import Web, open_web

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

USAGE = ReplyUsage(model="m", usd=Decimal(0))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    async with open_web(tmp_path_factory.mktemp("browser")) as made:
        yield made


class BrowserSandbox:
    """A sandbox that has only the browser."""

    root = "/workspace"
    scratch = "/tmp/scratch"

    def __init__(self, web: Web) -> None:
        self._web = web

    async def act(self, action: SandboxAction) -> Observation:
        assert isinstance(action, UseBrowser)
        return await self._web.browser.run_code(action.code, action.allowed_calls, action.snapshot)


class CodeModel:
    """A model that writes one code after the other, with the bids that its prompt shows, and then reports."""

    name = "m"
    context_window = None

    def __init__(self, codes: Sequence[str], supports_vision: bool) -> None:
        self._codes = [*codes, "send_msg_to_user('done')"]
        self.supports_vision = supports_vision
        self.prompts: list[UserMessage] = []

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        prompt = messages[-1]
        assert isinstance(prompt, UserMessage)
        self.prompts.append(prompt)
        code = self._codes.pop(0)
        for node in re.findall(r"\{([^{}]+)\}", code):
            (bid,) = set(
                re.findall(
                    rf"\[(\d+)\] {re.escape(node)}|<button bid=\"(\d+)\"[^>]*>{re.escape(node)}", prompt.text
                )
            )
            code = code.replace(f"{{{node}}}", repr("".join(bid)))
        return Reply(text=f"Next.\n```\n{code}\n```", tool_calls=(), usage=USAGE)


async def browse(
    web: Web, path: Path, codes: Sequence[str], supports_vision: bool = True, **settings: object
) -> list[UserMessage]:
    """Runs a browsing agent with these settings, and returns its prompts."""
    options = options_from_settings(Settings.model_validate({"data": path, **settings}))
    model, logs, task = CodeModel(codes, supports_vision), FileLogStore(path), Browse(task="Look.")
    async with logs.open(RunId("job-7")) as log:
        call = ToolCall(id="c", action=task)
        await log.append(ModelReply(thought="", calls=(call,), usage=USAGE))
        tool = BrowseTool(RunId("job-7"), log, logs, model, BrowserSandbox(web), Limits(), options=options)  # type: ignore[arg-type]
        await tool.browse(task)
    return model.prompts


AREA = "area 0 150,120"
CASES = [
    (
        "elements",
        "controls.html",
        "check({checkbox 'Agree'})\ncheck({checkbox 'Agree'})",
        ["change agree true"],
    ),
    (
        "elements",
        "controls.html",
        "check({checkbox 'Agree'})\nuncheck({checkbox 'Agree'})\nuncheck({checkbox 'Agree'})",
        ["change agree true", "change agree false"],
    ),
    ("coordinates", "mouse.html", "mouse_move(150, 120)", [f"mousemove {AREA}"]),
    ("coordinates", "mouse.html", "mouse_down(150, 120)", [f"mousemove {AREA}", f"mousedown {AREA}"]),
    ("coordinates", "mouse.html", "mouse_up(150, 120)", [f"mousemove {AREA}", f"mouseup {AREA}"]),
    (
        "coordinates",
        "mouse.html",
        "mouse_click(150, 120)",
        [f"{event} {AREA}" for event in ("mousemove", "mousedown", "mouseup", "click")],
    ),
    (
        "coordinates",
        "mouse.html",
        "mouse_dblclick(150, 120)",
        [f"mousemove {AREA}"]
        + [f"{event} {AREA}" for event in ("mousedown", "mouseup", "click") * 2 + ("dblclick",)],
    ),
    ("coordinates", "mouse.html", "mouse_drag_and_drop(440, 120, 440, 320)", ["drop card"]),
    ("keyboard", "mouse.html", "keyboard_down('Shift')", ["keydown Shift"]),
    ("keyboard", "mouse.html", "keyboard_up('Shift')", ["keyup Shift"]),
    (
        "keyboard",
        "mouse.html",
        "focus({textbox 'Text'})\nkeyboard_type('H')",
        [f"{event} H" for event in ("keydown", "keypress", "input", "keyup")],
    ),
    ("keyboard", "mouse.html", "focus({textbox 'Text'})\nkeyboard_insert_text('Hello')", ["input Hello"]),
    ("files", "files.html", "mouse_upload_file(220, 210, 'a.csv')", ["photo [a.csv=1,2]"]),
]


@pytest.mark.parametrize(("name", "page", "code", "saw"), CASES, ids=[f"{case[2][:16]}" for case in CASES])
async def test_a_call_works_if_its_set_is_allowed_and_only_then(
    web: Web, tmp_path: Path, name: str, page: str, code: str, saw: list[str]
) -> None:
    (web.root / "a.csv").write_text("1,2")
    opening = f"goto('{web.url}/{page}')"
    await web.use("goto('about:blank')\nmouse_move(1, 1)")
    web.request_lines.clear()
    prompts = await browse(web, tmp_path / "refused", [opening, code])
    assert web.take_lines() == [] and "is not allowed here; nothing was run" in prompts[2].text
    await browse(web, tmp_path / "allowed", [opening, code, "noop(50)"], browser_calls=("web", name))
    assert web.take_lines() == saw


async def test_page_down_scrolls_with_the_keyboard_calls(web: Web, tmp_path: Path) -> None:
    codes = [
        f"goto('{web.url}/answer.html')",
        f"goto('{web.url}/mouse.html#keys')",
        "keyboard_press('PageDown')",
    ]
    await browse(web, tmp_path, codes, browser_calls=("web", "keyboard"))
    assert "scrolled 0 630" in web.take_lines()


async def test_html_and_dom_replace_the_tree_and_name_the_same_elements(web: Web, tmp_path: Path) -> None:
    codes = [f"goto('{web.url}/answer.html')", "click({Click me})"]
    parts = ("html", "dom", "screenshot", "marks")
    prompts = await browse(web, tmp_path, codes, browser_observation=parts)
    assert "# Current Accessibility Tree" not in prompts[1].text and "RootWebArea" not in prompts[1].text
    html, dom = prompts[2].text.split("# Current HTML:")[1].split("# Current DOM:")
    assert "The answer is 42" in html and "The answer is 42" in dom
    assert "<!-- not rendered -->" in dom and "<!-- not rendered -->" not in html
    assert prompts[2].images


async def test_only_the_viewport_is_shown_on_request(web: Web, tmp_path: Path) -> None:
    codes = [f"goto('{web.url}/table')"]
    (_, whole) = await browse(web, tmp_path / "whole", codes)
    parts = ("axtree", "html", "viewport_only")
    (_, part) = await browse(web, tmp_path / "part", codes, browser_observation=parts)
    assert (
        "link 'Row 1'" in whole.text
        and "link 'Row 199'" in whole.text
        and "Boxes in the picture" in whole.text
    )
    assert "link 'Row 1'" in part.text and "'Row 199'" not in part.text and ">Row 199<" not in part.text
    assert ">Row 1<" in part.text and "clickable" not in part.text.split("# Current Accessibility Tree:")[1]
    assert "only the part of the page that is in view. Scroll to see the rest." in part.text
