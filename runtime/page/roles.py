"""What accessibility roles mean to a reader of a page: which are answered by a click, which say nothing."""

from collections.abc import Callable, Mapping
from typing import Any

INTERACTIVE = frozenset(
    "button checkbox combobox ComboBoxSelect DisclosureTriangle link listbox menuitem menuitemcheckbox "
    "menuitemradio option PopUpButton radio searchbox slider spinbutton switch tab textbox treeitem "
    "ColorWell Date DateTime InputTime Month Week".split()
)
"""Roles of elements that are there to be clicked or typed into."""

SILENT = frozenset(
    "none generic presentation paragraph LabelText strong emphasis mark subscript superscript insertion deletion "
    "code Abbr Ruby RubyAnnotation Section MenuListPopup rowgroup LayoutTable LayoutTableRow LayoutTableCell "
    "Details Pre FigcaptionCaption time".split()
)
"""Roles that say nothing without a name: their content stands in their place."""

DROPPED = frozenset({"InlineTextBox", "LineBreak", "ListMarker", "StaticText"})
"""Parts of texts, which come from the text nodes, and decoration."""

INLINE = frozenset(
    "A ABBR B BDI BDO CITE CODE DATA DEL DFN EM FONT I INS KBD LABEL MARK Q S SAMP SLOT SMALL SPAN STRONG SUB SUP "
    "TIME TT U VAR WBR ::before ::after ::marker ::first-letter #text".split()
)
"""Elements that do not end a sentence."""


def value(field: Any) -> Any:
    """What an AXValue holds; None without one."""
    return field.get("value") if isinstance(field, Mapping) else None


def properties(node: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of an AXNode by name."""
    return {found["name"]: value(found.get("value")) for found in node.get("properties", ())}


def states(role: str, shown: str, found: Mapping[str, Any], quote: Callable[[str], str]) -> list[str]:
    """Flags that change what a reader would do: `checked='false'`, `disabled`, `level=2`.

    `shown` is the value that the line tells anyway.
    """
    said: list[str] = []
    for name in ("checked", "pressed", "expanded"):  # both answers matter
        if (state := found.get(name)) is not None:
            said.append(f"{name}='{str(state).lower()}'" if str(state).lower() in _STATES else name)
    for name in ("selected", "disabled", "required", "readonly", "multiselectable", "busy", "modal"):
        if found.get(name) in (True, "true"):
            said.append(name)
    if (invalid := found.get("invalid")) not in (None, False, "false", ""):
        said.append("invalid" if invalid in (True, "true") else f"invalid={quote(str(invalid))}")
    if role == "heading" and isinstance(level := found.get("level"), int):
        said.append(f"level={level}")
    if role in ("slider", "spinbutton", "progressbar", "meter", "scrollbar"):
        for name in ("valuemin", "valuemax"):
            if isinstance(bound := found.get(name), int | float):
                said.append(f"{name.removeprefix('value')}={bound:g}")
        if (text := found.get("valuetext")) and str(text) != shown:
            said.append(f"valuetext={quote(str(text))}")
    return said


_STATES = ("true", "false", "mixed")
