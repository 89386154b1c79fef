"""The browser's action space: descriptions for the model, parsing, and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.runtime.browser.action_space import (
    ALL_CALLS,
    CALLS,
    WEB_CALLS,
    call_names,
    describe_calls,
)
from patchwright.runtime.browser.call_parser import MAX_CALLS, BrowserCall, parse_calls
from patchwright.runtime.observations import ActionFailure


def calls(code: str, allowed: tuple[str, ...] = ALL_CALLS) -> list[tuple[str, dict[str, object]]]:
    read = parse_calls(code, allowed)
    assert not isinstance(read, ActionFailure), read.message
    return [(call.name, dict(call.arguments)) for call in read]


def refused(code: str, allowed: tuple[str, ...] = ALL_CALLS) -> str:
    read = parse_calls(code, allowed)
    assert isinstance(read, ActionFailure), read
    return read.message


# --- descriptions
# -----------------------------------------------------------------------------------------------


def test_the_language_has_the_34_calls_of_the_paper() -> None:
    assert sorted(ALL_CALLS) == sorted(
        "check clear click dblclick drag_and_drop fill focus go_back go_forward goto hover keyboard_down "
        "keyboard_insert_text keyboard_press keyboard_type keyboard_up mouse_click mouse_dblclick mouse_down "
        "mouse_drag_and_drop mouse_move mouse_up mouse_upload_file new_tab noop press report_infeasible scroll "
        "select_option send_msg_to_user tab_close tab_focus uncheck upload_file".split()
    )
    assert len(ALL_CALLS) == 34


def test_the_signatures_are_those_of_the_paper() -> None:
    button, modifiers = (
        "Literal['left', 'middle', 'right']",
        "list[Literal['Alt', 'Control', 'Meta', 'Shift']]",
    )
    assert CALLS["click"].text == f"click(bid: str, button: {button} = 'left', modifiers: {modifiers} = [])"
    assert CALLS["noop"].text == "noop(wait_ms: float = 1000)"
    assert CALLS["upload_file"].text == "upload_file(bid: str, file: str | list[str])"
    assert CALLS["mouse_drag_and_drop"].text == (
        "mouse_drag_and_drop(from_x: float, from_y: float, to_x: float, to_y: float)"
    )


def test_the_default_is_the_subset_of_the_papers_prompt() -> None:
    assert " ".join(WEB_CALLS) == (
        "noop send_msg_to_user scroll fill select_option click dblclick hover press focus clear drag_and_drop "
        "upload_file go_back go_forward goto"
    )
    assert set(WEB_CALLS) < set(ALL_CALLS)
    assert not {name for name in WEB_CALLS if CALLS[name].category in ("coordinates", "keyboard", "tabs")}


def test_each_call_is_in_one_category() -> None:
    assert call_names("tabs") == ("new_tab", "tab_close", "tab_focus")
    assert call_names("agent", "navigation") == (
        "noop",
        "send_msg_to_user",
        "report_infeasible",
        "go_back",
        "go_forward",
        "goto",
    )
    assert call_names() == ALL_CALLS


@pytest.mark.parametrize("name", ALL_CALLS)
def test_every_example_of_a_call_can_be_parsed(name: str) -> None:
    assert CALLS[name].examples
    for example in CALLS[name].examples:
        assert [called for called, _ in calls(example)] == [name]


def test_a_call_is_described_by_signature_sentence_and_examples() -> None:
    assert describe_calls(["fill", "go_back"]) == (
        "fill(bid: str, value: str)\n"
        "    Replace the text of an input, textarea or editable element.\n"
        "    Examples:\n"
        '        fill("17", "a value")\n'
        '        fill("45", "several\\nlines")\n'
        "\n"
        "go_back()\n"
        "    Go to the previous page of this tab's history.\n"
        "    Example:\n"
        "        go_back()"
    )


# --- parsing
# ----------------------------------------------------------------------------------------------------


def test_several_calls_are_read_in_order_with_their_defaults_and_lines() -> None:
    read = parse_calls('goto("http://localhost:8000")\n\n# then\nclick(bid="10", modifiers=["Shift"])\n')
    assert read == (
        BrowserCall("goto", {"url": "http://localhost:8000"}, 1, '`goto("http://localhost:8000")`'),
        BrowserCall(
            "click",
            {"bid": "10", "button": "left", "modifiers": ["Shift"]},
            4,
            '`click(bid="10", modifiers=["Shift"])`',
        ),
    )


def test_text_arrives_exactly() -> None:
    assert calls('fill("1", """it\'s\n"quoted"\n  text""")') == [
        ("fill", {"bid": "1", "value": 'it\'s\n"quoted"\n  text'})
    ]
    assert calls(r"fill('1', 'tab\t, d\d, \u00e9, a' ' b')") == [
        ("fill", {"bid": "1", "value": "tab\t, d\\d, é, a b"})
    ]


@pytest.mark.parametrize(
    "code", ["```\ngo_back()\n```", "```python\ngo_back()\n```", "```go_back()```", "\n  go_back()  \n"]
)
def test_a_code_fence_and_whitespace_around_the_code_are_ignored(code: str) -> None:
    assert calls(code) == [("go_back", {})]


def test_numbers_may_be_whole_or_negative() -> None:
    assert calls("scroll(0, -200)\nnoop(500)") == [
        ("scroll", {"delta_x": 0.0, "delta_y": -200.0}),
        ("noop", {"wait_ms": 500.0}),
    ]


def test_empty_code_has_no_calls() -> None:
    assert calls("") == calls("# just looking\n") == []


# --- errors
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1", "line 1: `x = 1` is not a call"),
        ('go_back()\nimport os\nclick("1")', "line 2: `import os` is not a call"),
        ('page.click("1")', 'line 1: `page.click("1")` is not a call'),
        ("go_back", "`go_back` is not a call"),
        ("for i in [1]:\n    go_back()", "`for i in [1]:` is not a call"),
        ('fill("1", str(5))', "an argument is not a literal"),
        ('goto(f"http://{host}")', "an argument is not a literal"),
        ("click(bid)", "an argument is not a literal"),
        ('clik("1")', "there is no call clik; did you mean click?"),
        ('print("1")', "there is no call print; the calls are noop, "),
        ("click()", "missing a required argument: 'bid'; the call is click(bid: str, "),
        ('goto("a", "b")', "too many positional arguments; the call is goto(url: str)"),
        ('click("1", where="b")', "got an unexpected keyword argument 'where'"),
        ('click("1", **{"button": "left"})', "unexpected keyword argument '**'"),
        ("click(12)", 'bid is a string: write "12"'),
        ('click("1", button="back")', "button cannot be 'back'; the call is click("),
        ('click("1", modifiers="Shift")', "modifiers cannot be 'Shift'; the call is click("),
        ('scroll("1", 2)', "delta_x cannot be '1'; the call is scroll("),
        ("scroll(1e999, 0)", "delta_x cannot be inf"),
        ("scroll(True, 0)", "delta_x cannot be True"),
        ("tab_focus(1.5)", "index cannot be 1.5"),
        ('click("1"', "line 1: `click(\"1\"` cannot be read ('(' was never closed)"),
        ("```\ngo_back()\noops!\n```", "line 3: `oops!` cannot be read"),
        ("go_back()\0", "cannot be read"),
        ("-" * 90_000 + "1", "cannot be read"),
        ("noop(" * 5_000, "cannot be read"),
    ],
)
def test_an_invalid_call_is_rejected_with_its_line_and_the_correct_form(code: str, expected: str) -> None:
    message = refused(code)
    assert expected in message
    assert "nothing was run. Write one call per line" in message
    assert len(message) < 1_000


def test_a_call_outside_the_subset_is_refused_with_the_allowed_ones() -> None:
    assert refused('goto("http://localhost")\ntab_close()', ("goto", "click")) == (
        "line 2: tab_close is not allowed here; nothing was run. Allowed calls: click, goto"
    )


def test_a_turn_has_a_time_limit() -> None:
    assert len(calls("noop()\n" * MAX_CALLS)) == MAX_CALLS
    assert refused("noop()\n" * (MAX_CALLS + 1)).startswith(
        f"line {MAX_CALLS + 1}: at most {MAX_CALLS} calls"
    )


pieces = st.sampled_from(
    ["click", "fill(", "goto", "(", ")", '"12"', "'", '"""', ",", "\n", "```", "=", "[", "{", "-"]
)


@given(st.text() | st.lists(pieces | st.text(max_size=3), max_size=30).map("".join))
def test_no_code_makes_the_parser_fail(code: str) -> None:
    read = parse_calls(code)
    assert isinstance(read, ActionFailure) or all(call.name in ALL_CALLS for call in read)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_literals_round_trip(text: str, options: list[str]) -> None:
    if all("\0" not in part and part.isprintable() for part in (text, *options)):
        code = f"fill({text!r}, {text!r})\nselect_option({text!r}, options={options!r})"
        assert calls(code) == [
            ("fill", {"bid": text, "value": text}),
            ("select_option", {"bid": text, "options": options}),
        ]
