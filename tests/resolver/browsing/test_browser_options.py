"""The sets of browser calls, the options of snapshots, and the tool `use_browser`."""

import re
from pathlib import Path
from typing import get_args

import pytest

from patchwright.resolver.browsing.browser_options import (
    DEFAULT_OPTIONS,
    BrowserTool,
    build_action,
    build_browser_tools,
    limit_to_model,
    options_from_settings,
)
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.run_events import BrowserOptions
from patchwright.resolver.settings.settings import Settings, build_settings
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import UseBrowser
from patchwright.runtime.browser.action_space import ALL_CALLS, CALLS, WEB_CALLS, allowed_calls, select_calls
from patchwright.runtime.browser.call_signature import CallSet
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.observations import SnapshotOptions, Tab
from tests.resolver.fake_browser import BLANK, FakeBrowserSandbox, code_reply, page, run_browse_task
from tests.resolver.scripted_model import ScriptedModel

ANSWERED = page("RootWebArea 'Shop'", user_message="42")
DOCS = Path(__file__).parents[3] / "docs" / "tools.md"


def options(**settings: object) -> BrowserOptions:
    return options_from_settings(Settings.model_validate({"data": Path("/data"), **settings}))


def listed_signatures(text: str) -> list[str]:
    """Returns the signatures that an action space lists. Their descriptions are indented."""
    return re.findall(r"^(\w+\(.*\))$", text, re.MULTILINE)


# The sets


def test_the_default_settings_are_the_default_options() -> None:
    assert options() == DEFAULT_OPTIONS
    assert DEFAULT_OPTIONS.calls == WEB_CALLS and len(WEB_CALLS) == 16


def test_all_calls_can_be_reached() -> None:
    everything = select_calls(get_args(CallSet))
    assert set(allowed_calls(everything, 1)) == set(ALL_CALLS)


@pytest.mark.parametrize("name", [name for name in get_args(CallSet) if name != "web"])
def test_a_set_has_the_calls_of_its_category(name: CallSet) -> None:
    always = {"noop", "send_msg_to_user"}
    assert set(select_calls([name])) - always == {call for call in ALL_CALLS if CALLS[call].category == name}


@pytest.mark.parametrize("sets", [("web",), ("navigation",), ("web", "elements", "tabs"), get_args(CallSet)])
async def test_the_prompt_lists_exactly_the_calls_of_the_sets(
    tmp_path: Path, sets: tuple[CallSet, ...]
) -> None:
    box = FakeBrowserSandbox(BLANK, ANSWERED)
    _, model = await run_browse_task(
        tmp_path, box, code_reply("send_msg_to_user('42')"), options=options(browser_calls=sets), sees=True
    )
    space = model.requests[1][-1].text.split("# Action Space")[1].split("# Current Accessibility Tree")[0]
    assert listed_signatures(space) == [CALLS[name].text for name in select_calls(sets)]
    assert f"{len(select_calls(sets))} different types of actions are available." in space
    assert box.used[-1].allowed_calls == (*select_calls(sets), "report_infeasible")
    example = model.requests[1][-1].text.split("# Example of a Reply")[1]
    assert ("fill(" in example) == ("fill" in select_calls(sets))


async def test_a_model_without_screenshots_gets_no_calls_at_points(tmp_path: Path) -> None:
    chosen = options(browser_calls=("web", "coordinates", "files"))
    assert limit_to_model(chosen, supports_vision=True) == chosen
    blind = limit_to_model(chosen, supports_vision=False)
    assert blind.calls == WEB_CALLS and not blind.snapshot.screenshot
    without = options(browser_calls=("web", "coordinates"), browser_observation=("axtree", "marks"))
    assert limit_to_model(without, supports_vision=True).calls == WEB_CALLS
    box = FakeBrowserSandbox(BLANK, ANSWERED)
    _, model = await run_browse_task(tmp_path, box, code_reply("send_msg_to_user('42')"), options=chosen)
    assert "mouse_" not in model.requests[1][-1].text and "mouse_click" not in box.used[-1].allowed_calls


async def test_a_tab_that_a_page_opened_can_be_left_without_the_set(tmp_path: Path) -> None:
    tabs = (Tab(url="http://a.test/", title="A"), Tab(url="http://b.test/", title="B", active=True))
    box = FakeBrowserSandbox(BLANK, page("RootWebArea 'B'", tabs=tabs), page("RootWebArea 'A'"), ANSWERED)
    script = [code_reply("click('1')"), code_reply("tab_close()"), code_reply("send_msg_to_user('42')")]
    _, model = await run_browse_task(tmp_path, box, *script)
    assert ["tab_close" in use.allowed_calls for use in box.used] == [False, False, True, False]
    assert ["tab_close()" in request[-1].text for request in model.requests[1:3]] == [False, True]
    assert not any("new_tab" in use.allowed_calls for use in box.used)


# What the agent sees


@pytest.mark.parametrize(
    ("part", "default"),
    [
        *((part, True) for part in ("axtree", "screenshot", "marks", "flag_clickable", "flag_focused")),
        *((part, False) for part in ("html", "dom", "viewport_only", "flag_visible")),
    ],
)
def test_each_part_of_an_observation_is_an_option_of_the_snapshot(part: str, default: bool) -> None:
    on = options(browser_observation=("dom", "axtree", part)).snapshot
    off = options(browser_observation=tuple(each for each in ("html", "dom") if each != part)).snapshot
    assert (getattr(on, part), getattr(off, part)) == (True, False)
    assert getattr(options().snapshot, part) is default


def test_an_observation_contains_text() -> None:
    with pytest.raises(SettingsError, match="it must contain axtree, html or dom"):
        build_settings({"data": Path("/data"), "browser_observation": "screenshot marks"})
    with pytest.raises(SettingsError, match="'pixels' is not one of axtree, html, dom"):
        build_settings({"data": Path("/data"), "browser_observation": "axtree pixels"})


# The tool of the main agent


async def test_the_tool_lists_its_calls_and_runs_them_with_the_operators_options() -> None:
    box = FakeBrowserSandbox(page("RootWebArea 'Shop'"))
    chosen = options(browser_calls=("navigation", "coordinates"), browser_observation=("html", "screenshot"))
    tool = BrowserTool(box, chosen)
    calls = [name for name in chosen.calls if name != "send_msg_to_user"]
    assert listed_signatures(tool.spec.description) == [CALLS[name].text for name in calls]
    assert list(tool.spec.parameters["properties"]) == ["code"]
    action = ToolRegistry([tool]).parse(
        RawToolCall(id="c", name="use_browser", arguments='{"code": "noop()"}')
    )
    assert action == UseBrowser(code="noop()")
    await tool.execute(action)
    assert box.used == [build_action(chosen.model_copy(update={"calls": tuple(calls)}), "noop()", 1)]
    assert box.used[0].allowed_calls == tuple(calls) and box.used[0].snapshot == chosen.snapshot


async def test_a_model_cannot_choose_the_options_of_the_tool() -> None:
    registry = ToolRegistry([BrowserTool(FakeBrowserSandbox(), DEFAULT_OPTIONS)])
    wide = UseBrowser(code="tab_close()", allowed_calls=ALL_CALLS, snapshot=SnapshotOptions())
    call = RawToolCall(id="c", name="use_browser", arguments=wide.model_dump_json(exclude={"kind"}))
    action = registry.parse(call)
    assert isinstance(action, MalformedCall) and "`allowed_calls` is not a field" in action.problem


async def test_the_tool_can_leave_a_tab_that_a_page_opened() -> None:
    tabs = (Tab(url="http://a.test/", title="A"), Tab(url="http://b.test/", title="B", active=True))
    box = FakeBrowserSandbox(page("B", tabs=tabs), page("A"))
    tool = BrowserTool(box, DEFAULT_OPTIONS)
    for code in ("click('1')", "tab_close()"):
        await tool.execute(UseBrowser(code=code))
    assert ["tab_close" in use.allowed_calls for use in box.used] == [False, True]


@pytest.mark.parametrize(
    ("allowed", "features", "sees", "expected"),
    [
        (True, ("browser",), True, ["use_browser"]),
        (False, ("browser",), True, []),
        (True, (), True, []),
        (True, ("browser",), False, []),
    ],
)
def test_the_tool_needs_a_setting_a_browser_and_vision(
    allowed: bool, features: tuple[SandboxFeature, ...], sees: bool, expected: list[str]
) -> None:
    settings = Settings(data=Path("/data"), agent_uses_browser=allowed)
    tools = build_browser_tools(settings, features, ScriptedModel([], sees=sees), FakeBrowserSandbox())
    assert [tool.spec.name for tool in tools] == expected


def test_the_documentation_lists_the_sets() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (`.*) \|$", DOCS.read_text(), re.MULTILINE))
    always = {"noop", "send_msg_to_user"}
    for name in get_args(CallSet):
        listed = {call.strip("`") for call in rows[name].split(", ")}
        assert listed == set(select_calls([name])) - (set() if name == "web" else always), name
