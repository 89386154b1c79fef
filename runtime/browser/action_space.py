"""The browser's action space: 34 calls. Each call is declared once. The prompt and the parser use this
declaration.

Used on the host and in the container. Source: arXiv:2407.16741v2, appendix J (the action set of BrowserGym
0.3.4).
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_type_hints

from pydantic import TypeAdapter

MAX_WAIT_MS = 30_000.0

Button = Literal["left", "middle", "right"]
Modifier = Literal["Alt", "Control", "Meta", "Shift"]
Category = Literal["agent", "navigation", "bid", "coordinates", "keyboard", "tab"]


@dataclass(frozen=True, slots=True)
class CallSignature:
    """The description of one call for a model."""

    name: str
    category: Category
    text: str
    """The call with its arguments, their types and their defaults."""
    description: str
    examples: tuple[str, ...]
    signature: inspect.Signature
    types: Mapping[str, TypeAdapter[object]]


CALLS: dict[str, CallSignature] = {}
"""All calls by name, in the order of the prompt."""

CallDeclaration = Callable[..., None]


def _declare_call(category: Category, *examples: str) -> Callable[[CallDeclaration], CallDeclaration]:
    def declare(function: CallDeclaration) -> CallDeclaration:
        bound, hints = inspect.signature(function), get_type_hints(function)
        CALLS[function.__name__] = CallSignature(
            name=function.__name__,
            category=category,
            text=f"{function.__name__}({', '.join(map(str, bound.parameters.values()))})".replace(
                "typing.", ""
            ),
            description=inspect.getdoc(function) or "",
            examples=examples,
            signature=bound,
            types={name: TypeAdapter(hints[name]) for name in bound.parameters},
        )
        return function

    return declare


# --- the agent itself ---------------------------------------------------------------------------------------------


@_declare_call("agent", "noop()", "noop(500)")
def noop(wait_ms: float = 1000) -> None:
    """Do nothing for a while, at most 30,000 ms, then look at the page again."""


@_declare_call("agent", 'send_msg_to_user("The total of the order is $279.49.")')
def send_msg_to_user(text: str) -> None:
    """Send the answer to the user. This ends the task."""


@_declare_call(
    "agent", 'report_infeasible("There is no search field on this site, and no list of its articles.")'
)
def report_infeasible(reason: str) -> None:
    """Report that the goal cannot be reached, and why. This ends the task."""


# --- elements, by the bid in the brackets of the tree ---------------------------------------------------------------


@_declare_call("bid", "scroll(0, 600)", "scroll(-50.5, -100)")
def scroll(delta_x: float, delta_y: float) -> None:
    """Turn the mouse wheel by these pixels: right and down are positive, left and up negative."""


@_declare_call("bid", 'fill("17", "a value")', 'fill("45", "several\\nlines")')
def fill(bid: str, value: str) -> None:
    """Replace the text of an input, textarea or editable element."""


@_declare_call("bid", 'check("55")')
def check(bid: str) -> None:
    """Make sure that a checkbox or radio button is checked."""


@_declare_call("bid", 'uncheck("31")')
def uncheck(bid: str) -> None:
    """Make sure that a checkbox is not checked."""


@_declare_call("bid", 'select_option("48", "blue")', 'select_option("48", ["red", "green"])')
def select_option(bid: str, options: str | list[str]) -> None:
    """Select one or several options of a select element, by value or label."""


@_declare_call("bid", 'click("51")', 'click("22", button="right")', 'click("48", modifiers=["Shift"])')
def click(bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006  # the prompt shows the default []
    """Click an element."""


@_declare_call("bid", 'dblclick("12")', 'dblclick("178", button="middle")')
def dblclick(bid: str, button: Button = "left", modifiers: list[Modifier] = []) -> None:  # noqa: B006
    """Double-click an element."""


@_declare_call("bid", 'hover("8")')
def hover(bid: str) -> None:
    """Move the mouse over an element."""


@_declare_call("bid", 'press("88", "Enter")', 'press("26", "Control+a")', 'press("61", "Shift+Tab")')
def press(bid: str, key_comb: str) -> None:
    """Focus an element and press a key or a combination of keys.

    Names: single characters, Enter, Tab, Escape, Backspace, Delete, Insert, Home, End, PageUp, PageDown, ArrowLeft,
    ArrowRight, ArrowUp, ArrowDown, F1 to F12, Digit0 to Digit9, KeyA to KeyZ, Backquote, Minus, Equal, Backslash;
    Shift, Control, Alt and Meta are joined to a key with +.
    """


@_declare_call("bid", 'focus("45")')
def focus(bid: str) -> None:
    """Move the keyboard focus to an element."""


@_declare_call("bid", 'clear("96")')
def clear(bid: str) -> None:
    """Empty an input, textarea or editable element."""


@_declare_call("bid", 'drag_and_drop("56", "498")')
def drag_and_drop(from_bid: str, to_bid: str) -> None:
    """Drag one element and drop it on another."""


@_declare_call("bid", 'upload_file("57", "tests/data/cv.pdf")', 'upload_file("63", ["a.csv", "b.csv"])')
def upload_file(bid: str, file: str | list[str]) -> None:
    """Choose files of the sandbox in a file input, by paths relative to the repository; [] clears the input.

    Only works on pages that the sandbox itself serves, on localhost.
    """


# --- navigation -----------------------------------------------------------------------------------------------------


@_declare_call("navigation", "go_back()")
def go_back() -> None:
    """Go to the previous page of this tab's history."""


@_declare_call("navigation", "go_forward()")
def go_forward() -> None:
    """Go to the next page of this tab's history."""


@_declare_call("navigation", 'goto("http://localhost:8000/login")')
def goto(url: str) -> None:
    """Open a URL in this tab."""


# --- coordinates: for models that see the screenshot
# ----------------------------------------------------------------


@_declare_call("coordinates", "mouse_move(65.2, 158.5)")
def mouse_move(x: float, y: float) -> None:
    """Move the mouse to a point of the screenshot, in pixels from its upper left corner."""


@_declare_call("coordinates", "mouse_up(250, 120)", 'mouse_up(47, 252, "right")')
def mouse_up(x: float, y: float, button: Button = "left") -> None:
    """Move the mouse to a point and release a button."""


@_declare_call("coordinates", "mouse_down(140.2, 580.1)", 'mouse_down(458, 254.5, "middle")')
def mouse_down(x: float, y: float, button: Button = "left") -> None:
    """Move the mouse to a point, press a button and hold it."""


@_declare_call("coordinates", "mouse_click(887.2, 68)", 'mouse_click(56, 712.5, "right")')
def mouse_click(x: float, y: float, button: Button = "left") -> None:
    """Move the mouse to a point and click."""


@_declare_call("coordinates", "mouse_dblclick(5, 236)", 'mouse_dblclick(87.5, 354, "right")')
def mouse_dblclick(x: float, y: float, button: Button = "left") -> None:
    """Move the mouse to a point and double-click."""


@_declare_call("coordinates", "mouse_drag_and_drop(10.7, 325, 235.6, 24.54)")
def mouse_drag_and_drop(from_x: float, from_y: float, to_x: float, to_y: float) -> None:
    """Drag from one point and drop at another."""


@_declare_call("coordinates", 'mouse_upload_file(132.1, 547, "tests/data/cv.pdf")')
def mouse_upload_file(x: float, y: float, file: str | list[str]) -> None:
    """Click at a point that opens a file chooser, and choose files of the sandbox as upload_file does."""


# --- the keyboard, wherever the focus is ----------------------------------------------------------------------------


@_declare_call(
    "keyboard", 'keyboard_press("Backspace")', 'keyboard_press("Control+a")', 'keyboard_press("PageDown")'
)
def keyboard_press(key: str) -> None:
    """Press a key or a combination of keys. Their names are those that `press` takes."""


@_declare_call("keyboard", 'keyboard_up("Shift")')
def keyboard_up(key: str) -> None:
    """Release a key."""


@_declare_call("keyboard", 'keyboard_down("Shift")')
def keyboard_down(key: str) -> None:
    """Press a key and hold it."""


@_declare_call("keyboard", 'keyboard_type("Hello world!")')
def keyboard_type(text: str) -> None:
    """Type text key by key. Keys that are held down do not affect the text."""


@_declare_call("keyboard", 'keyboard_insert_text("Hello world!")')
def keyboard_insert_text(text: str) -> None:
    """Insert text into the focused element without any key event."""


# --- tabs -----------------------------------------------------------------------------------------------------------


@_declare_call("tab", "new_tab()")
def new_tab() -> None:
    """Open an empty tab; it becomes the active one."""


@_declare_call("tab", "tab_close()")
def tab_close() -> None:
    """Close the active tab."""


@_declare_call("tab", "tab_focus(2)")
def tab_focus(index: int) -> None:
    """Make a tab the active one, by its index in the list of open tabs, from 0."""


def call_names(*categories: Category) -> tuple[str, ...]:
    """Return the names of the calls in these categories. Without categories, return the names of all
    calls.
    """
    return tuple(name for name, call in CALLS.items() if not categories or call.category in categories)


ALL_CALLS = call_names()
DEFAULT_CALLS = (
    "noop",
    "send_msg_to_user",
    "scroll",
    "fill",
    "select_option",
    "click",
    "dblclick",
    "hover",
    "press",
    "focus",
    "clear",
    "drag_and_drop",
    "upload_file",
    "go_back",
    "go_forward",
    "goto",
)
"""The calls that the prompt in appendix K of arXiv:2407.16741v2 describes, in the same order."""


def describe_calls(names: Iterable[str]) -> str:
    """Return the action space for a prompt: each call with its signature, description and examples."""
    return "\n\n".join(_describe_call(CALLS[name]) for name in names)


def _describe_call(call: CallSignature) -> str:
    lines = [call.text, *(f"    {line}".rstrip() for line in call.description.splitlines())]
    lines += ["    Examples:" if len(call.examples) > 1 else "    Example:"]
    return "\n".join([*lines, *(f"        {example}" for example in call.examples)])
