"""The browser's language: what a model is told of it, what is read, what is refused and how that is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.browser.calls import ALL, CALLS, DEFAULT, describe, names
from runtime.browser.code import MOST_CALLS, Call, parse
from runtime.observations import Failed


def calls(code: str, allowed: tuple[str, ...] = ALL) -> list[tuple[str, dict[str, object]]]:
    read = parse(code, allowed)
    assert not isinstance(read, Failed), read.message
    return [(call.name, dict(call.arguments)) for call in read]


def refused(code: str, allowed: tuple[str, ...] = ALL) -> str:
    read = parse(code, allowed)
    assert isinstance(read, Failed), read
    return read.message


# --- what a model is told ---------------------------------------------------------------------------------------


def test_the_language_has_the_34_calls_of_the_paper() -> None:
    assert sorted(ALL) == sorted(
        "check clear click dblclick drag_and_drop fill focus go_back go_forward goto hover keyboard_down "
        "keyboard_insert_text keyboard_press keyboard_type keyboard_up mouse_click mouse_dblclick mouse_down "
        "mouse_drag_and_drop mouse_move mouse_up mouse_upload_file new_tab noop press report_infeasible scroll "
        "select_option send_msg_to_user tab_close tab_focus uncheck upload_file".split()
    )
    assert len(ALL) == 34


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
    assert len(DEFAULT) == len(set(DEFAULT)) == 16
    assert set(DEFAULT) < set(ALL)
    assert not {name for name in DEFAULT if CALLS[name].category in ("coordinates", "keyboard", "tab")}


def test_each_call_is_in_one_category() -> None:
    assert names("tab") == ("new_tab", "tab_close", "tab_focus")
    assert names("agent", "navigation") == (
        "noop",
        "send_msg_to_user",
        "report_infeasible",
        "go_back",
        "go_forward",
        "goto",
    )
    assert names() == ALL


@pytest.mark.parametrize("name", ALL)
def test_every_example_of_a_call_can_be_read(name: str) -> None:
    assert CALLS[name].examples
    for example in CALLS[name].examples:
        assert [called for called, _ in calls(example)] == [name]


def test_a_call_is_described_by_signature_sentence_and_examples() -> None:
    assert describe(["fill", "go_back"]) == (
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


# --- what is read -----------------------------------------------------------------------------------------------


def test_several_calls_are_read_in_order_with_their_defaults_and_lines() -> None:
    read = parse('goto("http://localhost:8000")\n\n# then\nclick(bid="10", modifiers=["Shift"])\n')
    assert read == (
        Call("goto", {"url": "http://localhost:8000"}, 1, '`goto("http://localhost:8000")`'),
        Call(
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
def test_a_fence_and_white_space_around_the_code_are_no_part_of_it(code: str) -> None:
    assert calls(code) == [("go_back", {})]


def test_numbers_may_be_whole_or_negative() -> None:
    assert calls("scroll(0, -200)\nnoop(500)") == [
        ("scroll", {"delta_x": 0.0, "delta_y": -200.0}),
        ("noop", {"wait_ms": 500.0}),
    ]


def test_nothing_is_no_call() -> None:
    assert calls("") == calls("# just looking\n") == []


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
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
        ('print("1")', "there is no call print; there are noop, "),
        ("click()", "missing a required argument: 'bid', but it is click(bid: str, "),
        ('goto("a", "b")', "too many positional arguments, but it is goto(url: str)"),
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
def test_what_is_no_call_is_refused_with_its_line_and_what_is_right(code: str, said: str) -> None:
    message = refused(code)
    assert said in message
    assert "nothing was run. Write one call a line" in message
    assert len(message) < 1_000


def test_a_call_outside_the_subset_is_refused_with_the_allowed_ones() -> None:
    assert refused('goto("http://localhost")\ntab_close()', ("goto", "click")) == (
        "line 2: tab_close may not be called here; nothing was run. Allowed are: click, goto"
    )


def test_a_turn_has_an_end() -> None:
    assert len(calls("noop()\n" * MOST_CALLS)) == MOST_CALLS
    assert refused("noop()\n" * (MOST_CALLS + 1)).startswith(
        f"line {MOST_CALLS + 1}: at most {MOST_CALLS} calls"
    )


pieces = st.sampled_from(
    ["click", "fill(", "goto", "(", ")", '"12"', "'", '"""', ",", "\n", "```", "=", "[", "{", "-"]
)


@given(st.text() | st.lists(pieces | st.text(max_size=3), max_size=30).map("".join))
def test_no_code_makes_the_parser_fail(code: str) -> None:
    read = parse(code)
    assert isinstance(read, Failed) or all(call.name in ALL for call in read)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_what_was_written_as_a_literal_is_what_is_read(text: str, options: list[str]) -> None:
    if all("\0" not in part and part.isprintable() for part in (text, *options)):
        code = f"fill({text!r}, {text!r})\nselect_option({text!r}, options={options!r})"
        assert calls(code) == [
            ("fill", {"bid": text, "value": text}),
            ("select_option", {"bid": text, "options": options}),
        ]
