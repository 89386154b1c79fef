"""The browser's action space: 34 calls. Each call is declared once, as a method of CallExecutor. The prompt and the
parser use this declaration.

Used on the host and in the container. Source: arXiv:2407.16741v2, appendix J (the action set of BrowserGym
0.3.4).
"""

from collections.abc import Iterable

from patchwright.runtime.browser.call_executor import CallExecutor
from patchwright.runtime.browser.call_signature import CallSet, CallSignature, Category

CALLS: dict[str, CallSignature] = {
    name: method.call_signature
    for name, method in vars(CallExecutor).items()
    if hasattr(method, "call_signature")
}
"""All calls by name, in the order of the prompt."""


def call_names(*categories: Category) -> tuple[str, ...]:
    """Return the names of the calls in these categories. Without categories, return the names of all
    calls.
    """
    return tuple(name for name, call in CALLS.items() if not categories or call.category in categories)


ALL_CALLS = call_names()
WEB_CALLS = tuple(
    "noop send_msg_to_user scroll fill select_option click dblclick hover press focus clear "
    "drag_and_drop upload_file go_back go_forward goto".split()
)
"""The set `web`: the calls that the prompt in appendix K of arXiv:2407.16741v2 describes, in the same order."""


def select_calls(sets: Iterable[CallSet]) -> tuple[str, ...]:
    """Return the calls of these sets in the order of the prompt. They include the calls to wait and to answer."""
    chosen = {"noop", "send_msg_to_user"}
    for name in sets:
        chosen.update(WEB_CALLS if name == "web" else call_names(name))
    return tuple(name for name in dict.fromkeys((*WEB_CALLS, *ALL_CALLS)) if name in chosen)


def allowed_calls(selected: tuple[str, ...], tab_count: int) -> tuple[str, ...]:
    """Return the calls that may run: the selected ones, and those without which an agent could not continue.

    An agent that can answer can also report that there is no answer. If a page has opened another tab, an agent can
    leave that tab.
    """
    report = ("report_infeasible",) if "send_msg_to_user" in selected else ()
    return (*selected, *report, *(("tab_focus", "tab_close") if tab_count > 1 else ()))


def needs_screenshot(name: str) -> bool:
    """True if the arguments of the call are a point of the screenshot."""
    return "x" in CALLS[name].types or "from_x" in CALLS[name].types


def describe_calls(names: Iterable[str]) -> str:
    """Return the action space for a prompt: each call with its signature, description and examples."""
    return "\n\n".join(_describe_call(CALLS[name]) for name in names)


def _describe_call(call: CallSignature) -> str:
    lines = [call.text, *(f"    {line}".rstrip() for line in call.description.splitlines())]
    lines += ["    Examples:" if len(call.examples) > 1 else "    Example:"]
    return "\n".join([*lines, *(f"        {example}" for example in call.examples)])
