"""Each browser call in a real Chromium, checked by the events that the page received."""

import inspect
import re
import time

import pytest

from patchwright.runtime.browser.action_space import ALL_CALLS, CALLS, WEB_CALLS
from patchwright.runtime.browser.call_executor import CallExecutor
from patchwright.runtime.observations import SnapshotOptions
from tests.runtime.web_fixture import Web

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("name", ALL_CALLS)
async def test_every_call_has_a_method_with_its_signature(name: str) -> None:
    method = list(inspect.signature(getattr(CallExecutor, name)).parameters.values())[1:]
    assert method == list(CALLS[name].signature.parameters.values())


# --- a turn -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_click_reveals_the_answer(web: Web) -> None:
    page = await web.open("answer.html")
    assert "The answer is" not in page.tree
    await web.do("click({button 'Click me'})")
    assert web.page is not None and "The answer is 42" in web.page.tree


@pytest.mark.slow
async def test_calls_after_a_goto_use_the_bids_of_the_new_page(web: Web) -> None:
    page = await web.open("answer.html")
    step = int(web.bid("button 'Click me'")) - int(web.bid("heading 'Question'"))
    first = 1 + max(int(word.split("]")[0]) for word in page.tree.split("[")[1:])
    page = await web.use(f"goto('{web.url}/answer.html')\nclick('{first + step}')")
    assert page.error is None and "The answer is 42" in page.tree


@pytest.mark.slow
async def test_a_turn_stops_at_the_first_failure_and_names_its_line(web: Web) -> None:
    await web.open("controls.html")
    error = await web.refused(
        "fill({textbox 'Name'}, 'Ada')\n\nclick('99999')\nclick({button 'Plain'})\nnoop()"
    )
    assert error == (
        "line 3: `click('99999')` failed (2 more calls were not run): there is no element '99999' on this page now: "
        "choose an element of the current tree"
    )
    assert web.take_lines() == ["input name Ada"]


async def test_a_login_takes_one_turn(web: Web) -> None:
    await web.open("controls.html")
    result = await web.do(
        "fill({textbox 'Name'}, 'Ada')\ncheck({checkbox 'Agree'})\npress({textbox 'Name'}, 'Enter')"
    )
    assert 'submit [["name","Ada"],["story",""],["agree","on"],["color","r"],["day",""]]' in result


@pytest.mark.slow
async def test_invalid_code_changes_nothing(web: Web) -> None:
    await web.open("controls.html")
    assert (await web.failed("goto('about:blank')\nimport os")).reason == "malformed"
    refused = await web.failed(f"goto('{web.url}')\ntab_close()", WEB_CALLS)
    assert refused.reason == "refused" and "Allowed calls: noop, send_msg_to_user" in refused.message
    assert (await web.use("")).title == "Controls"


async def test_a_snapshot_includes_everything_on_the_page(web: Web) -> None:
    await web.open("answer.html")
    page = await web.use(
        "focus(" + repr(web.bid("button 'Click me'")) + ")", SnapshotOptions(screenshot=True)
    )
    assert (page.url, page.title, page.error) == (f"{web.url}/answer.html", "The answer", None)
    assert page.focused_bid == web.bid("button 'Click me'")
    assert [(tab.url, tab.active) for tab in page.tabs] == [(page.url, True)]
    assert page.screenshot is not None and len(page.screenshot.data) > 1_000


@pytest.mark.slow
async def test_the_effects_of_a_request_are_awaited(web: Web) -> None:
    await web.open("trouble.html")
    await web.do("click({button 'Late'})")
    assert web.page is not None and web.page.title == "Late news"


# --- the agent --------------------------------------------------------------------------------------------------


async def test_an_answer_ends_the_turn(web: Web) -> None:
    await web.open("answer.html")
    page = await web.use("send_msg_to_user('It is\\n42')\ngoto('about:blank')")
    assert (page.user_message, page.infeasible_reason, page.title) == ("It is\n42", None, "The answer")


async def test_infeasible_goals_are_reported(web: Web) -> None:
    page = await web.use("report_infeasible('no such page')\nnoop()")
    assert (page.user_message, page.infeasible_reason) == (None, "no such page")


async def test_noop_waits_and_shows_the_page_as_it_is_then(web: Web) -> None:
    await web.open("later.html")
    start = time.monotonic()
    page = await web.use("noop(400)")
    assert 0.4 < time.monotonic() - start < 4 and page.title == "Later"


# --- elements ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "saw"),
    [
        ("fill({textbox 'Name'}, 'O\\'Hara \"x\"')", ['input name O\'Hara "x"']),
        ("fill({textbox 'Story'}, 'one\\n \"two\"\\n')", [r'input story "one\n \"two\"\n"']),
        ("fill({textbox 'Rich'}, 'new')", ['input rich "new"']),
        ("fill({textbox 'Name'}, 'x')\nclear({textbox 'Name'})", ["input name x", "input name"]),
        ("check({checkbox 'Agree'})\ncheck({checkbox 'Agree'})", ["change agree true"]),
        (
            "check({checkbox 'Agree'})\nuncheck({checkbox 'Agree'})",
            ["change agree true", "change agree false"],
        ),
        ("uncheck({checkbox 'Agree'})", []),
        ("check({radio 'Small'})", ["change small true"]),
        ("select_option({combobox 'Color'}, 'g')", ["change color g"]),
        ("select_option({combobox 'Color'}, 'Green')", ["change color g"]),
        ("select_option({listbox 'Toppings'}, ['Ham', '3'])", ["change toppings 1,3"]),
        ("select_option({listbox 'Toppings'}, [])", ["change toppings"]),
        ("click({button 'Plain'})", ["mouseover plain", "focus plain", "click plain 0"]),
        (
            "click({button 'Plain'}, 'right')",
            ["mouseover plain", "focus plain", "contextmenu plain 2", "auxclick plain 2"],
        ),
        ("click({button 'Plain'}, button='middle')", ["mouseover plain", "focus plain", "auxclick plain 1"]),
        (
            "click({button 'Plain'}, modifiers=['Shift', 'Alt'])",
            ["mouseover plain", "focus plain", "click plain 0 alt+shift"],
        ),
        (
            "dblclick({button 'Plain'})",
            ["mouseover plain", "focus plain", "click plain 0", "click plain 0", "dblclick plain"],
        ),
        ("hover({button 'Plain'})", ["mouseover plain"]),
        ("focus({button 'Plain'})", ["focus plain"]),
        ("press({button 'Plain'}, 'Enter')", ["focus plain", "click plain 0"]),
        (
            "fill({textbox 'Name'}, 'abc')\npress({textbox 'Name'}, 'Control+a')\npress({textbox 'Name'}, 'Backspace')",
            ["input name abc", "input name"],
        ),
    ],
)
async def test_an_element_receives_the_events_of_a_call(web: Web, call: str, saw: list[str]) -> None:
    await web.open("controls.html")
    result = await web.do(call)
    # Chromium reports each line of a text again
    once = [
        line
        for n, line in enumerate(result)
        if not (line.startswith("input") and result[n - 1 : n] == [line])
    ]
    assert once == saw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("click({button 'Idle'})", "the element is disabled: first use the control that enables it"),
        (
            "click({button 'Under'})",
            'the element is covered by <div id="cover">Banner</div>: close what covers it',
        ),
        ("fill({textbox 'Fixed'}, 'x')", "the element is read-only"),
        ("fill({button 'Plain'}, 'x')", "the element accepts no text"),
        ("fill({checkbox 'Agree'}, 'x')", "the element accepts no text"),
        ("check({button 'Plain'})", "the element is not a checkbox or radio button: click it"),
        ("select_option({button 'Plain'}, 'x')", "the element is not a select element"),
        (
            "select_option({combobox 'Color'}, 'Blue')",
            "there is no such option; the options are ['Red', 'Green']",
        ),
        ("press({button 'Plain'}, 'Entr')", "there is no such key: names are Enter, Tab"),
        (
            "click({button 'Vanish'})\nnoop(300)\nclick({button 'Vanish'})",
            "the element was removed from the page",
        ),
    ],
)
async def test_an_element_that_is_not_ready_yields_a_reason(web: Web, call: str, advice: str) -> None:
    await web.open("controls.html")
    assert advice in await web.refused(call)


async def test_a_bid_of_another_page_is_not_found(web: Web) -> None:
    await web.open("controls.html")
    old = web.bid("button 'Plain'")
    await web.open("answer.html")
    assert f"there is no element '{old}' on this page now" in await web.refused(f"click('{old}')")


async def test_elements_in_frames_and_shadow_trees_are_elements(web: Web) -> None:
    await web.open("frames.html")
    assert await web.do("click({button 'Framed'})") == ["in frame"]
    assert await web.do("click({button 'Foreign'})") == ["from another origin clicked"]
    assert await web.do("click({button 'Shadow open'})") == ["in shadow open"]
    assert await web.do("click({button 'Shadow closed'})") == ["in shadow closed"]


async def test_an_element_is_dragged_and_dropped(web: Web) -> None:
    await web.open("mouse.html#keys")
    assert await web.do("drag_and_drop({button 'Card'}, {button 'Bin'})") == ["drop card"]
    assert await web.do("drag_and_drop({button 'Knob'}, {button 'Bin'})") == ["dropped knob 440,320"]


# --- mouse and keyboard -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "saw"),
    [
        ("mouse_move(150, 120)", ["mousemove area 0 150,120"]),
        ("mouse_down(150, 120)", ["mousemove area 0 150,120", "mousedown area 0 150,120"]),
        (
            "mouse_down(150, 120)\nmouse_up(160, 130)",
            [
                "mousemove area 0 150,120",
                "mousedown area 0 150,120",
                "mousemove area 0 160,130",
                "mouseup area 0 160,130",
                "click area 0 160,130",
            ],
        ),
        (
            "mouse_click(150, 120)",
            [f"{event} area 0 150,120" for event in ("mousemove", "mousedown", "mouseup", "click")],
        ),
        (
            "mouse_click(150, 120, 'right')",
            ["mousemove area 0 150,120"]
            + [f"{event} area 2 150,120" for event in ("mousedown", "contextmenu", "mouseup", "auxclick")],
        ),
        (
            "mouse_dblclick(150, 120)",
            ["mousemove area 0 150,120"]
            + [f"{event} area 0 150,120" for event in ("mousedown", "mouseup", "click") * 2 + ("dblclick",)],
        ),
        ("mouse_drag_and_drop(440, 120, 440, 320)", ["drop card"]),
        ("mouse_drag_and_drop(640, 120, 700, 500)", ["dropped knob 700,500"]),
        ("scroll(0, 300)", ["scrolled 0 300"]),
        ("scroll(120, 300)\nscroll(-20, -100)", ["scrolled 120 300", "scrolled 100 200"]),
    ],
)
async def test_the_page_receives_mouse_events(web: Web, call: str, saw: list[str]) -> None:
    await web.open("mouse.html")
    await web.use("mouse_move(1, 1)\nmouse_up(2, 2)")
    web.request_lines.clear()
    assert await web.do(call) == saw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "saw"),
    [
        ("keyboard_down('Shift')\nkeyboard_up('Shift')", ["keydown Shift", "keyup Shift"]),
        (
            "focus({textbox 'Text'})\nkeyboard_type('Hi')",
            [f"{event} {key}" for key in "Hi" for event in ("keydown", "keypress", "input", "keyup")],
        ),
        ("focus({textbox 'Text'})\nkeyboard_insert_text('Hello')", ["input Hello"]),
        (
            "focus({textbox 'Text'})\nkeyboard_press('Control+a')",
            ["keydown Control", "keydown a", "keyup a", "keyup Control"],
        ),
    ],
)
async def test_the_page_receives_keyboard_events(web: Web, call: str, saw: list[str]) -> None:
    await web.open("answer.html")
    await web.open("mouse.html#keys")
    assert await web.do(call) == saw
    text = re.search(r"keyboard_(?:type|insert_text)\('(.*)'\)", call)
    assert web.page and (text is None or f"textbox 'Text', value='{text[1]}', focused" in web.page.tree)


@pytest.mark.slow
async def test_page_down_scrolls_the_page(web: Web) -> None:
    await web.open("answer.html")
    await web.open("mouse.html#keys")
    events = await web.do("keyboard_press('PageDown')")
    # The browser scrolls independently of the key events, so the scroll event may come before `keyup`.
    assert [event for event in events if event.startswith("key")] == ["keydown PageDown", "keyup PageDown"]
    assert [event for event in events if not event.startswith("key")] == ["scrolled 0 630"]


# --- navigation and tabs ----------------------------------------------------------------------------------------


async def test_go_back_and_go_forward_move_through_the_history(web: Web) -> None:
    await web.use("new_tab()")
    await web.open("answer.html")
    await web.open("away.html")
    assert (await web.use("go_back()")).title == "The answer"
    assert (await web.use("go_forward()")).title == "Away"
    assert "this tab has no later page: open one with goto(url" in await web.refused("go_forward()")
    await web.use("tab_close()")


@pytest.mark.slow
async def test_tabs_are_opened_chosen_and_closed(web: Web) -> None:
    await web.open("answer.html")
    page = await web.use("new_tab()")
    assert [(tab.url, tab.active) for tab in page.tabs] == [
        (f"{web.url}/answer.html", False),
        ("about:blank", True),
    ]
    page = await web.use("tab_focus(0)")
    assert page.title == "The answer" and [tab.active for tab in page.tabs] == [True, False]
    assert "there is no tab 2: the open tabs are 0 to 1" in await web.refused("tab_focus(2)")
    assert "there is no tab -1" in await web.refused("tab_focus(-1)")
    page = await web.use("tab_close()\ntab_close()")
    assert [(tab.url, tab.active) for tab in page.tabs] == [("about:blank", True)]
