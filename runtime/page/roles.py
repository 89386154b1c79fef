"""Accessibility roles: which ones are interactive, and which ones carry no information."""

from collections.abc import Callable, Mapping
from typing import Any

INTERACTIVE_ROLES = frozenset(
    "button checkbox combobox ComboBoxSelect DisclosureTriangle link listbox menuitem menuitemcheckbox "
    "menuitemradio option PopUpButton radio searchbox slider spinbutton switch tab textbox treeitem "
    "ColorWell Date DateTime InputTime Month Week".split()
)
"""Roles of elements that users click or type into."""

GENERIC_ROLES = frozenset(
    "none generic presentation paragraph LabelText strong emphasis mark subscript superscript insertion deletion "
    "code Abbr Ruby RubyAnnotation Section MenuListPopup rowgroup LayoutTable LayoutTableRow LayoutTableCell "
    "Details Pre FigcaptionCaption time".split()
)
"""Roles that carry no information. An element with such a role and without a name is left out of the tree, but its
content is included.
"""

IGNORED_ROLES = frozenset({"InlineTextBox", "LineBreak", "ListMarker", "StaticText"})
"""Roles of decorations and of parts of texts. The tree leaves them out, because it takes texts from text nodes."""

INLINE_TAGS = frozenset(
    "A ABBR B BDI BDO CITE CODE DATA DEL DFN EM FONT I INS KBD LABEL MARK Q S SAMP SLOT SMALL SPAN STRONG SUB SUP "
    "TIME TT U VAR WBR ::before ::after ::marker ::first-letter #text".split()
)
"""Inline elements. They stand within a sentence and do not interrupt it."""


def ax_value(field: Any) -> Any:
    """Return the value inside an AXValue, which is a DevTools object. Return None for any other field."""
    return field.get("value") if isinstance(field, Mapping) else None


def ax_properties(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a node in the accessibility tree (AXNode), by name."""
    return {found["name"]: ax_value(found.get("value")) for found in node.get("properties", ())}


def describe_states(
    role: str, shown_value: str, properties: Mapping[str, Any], quote: Callable[[str], str]
) -> list[str]:
    """Return the states that affect what a user can do with an element: `checked='false'`, `disabled`,
    `level=2`.

    `shown_value` is the value that the line of the element already shows.
    """
    said: list[str] = []
    for name in ("checked", "pressed", "expanded"):  # false is informative, too
        if (state := properties.get(name)) is not None:
            said.append(f"{name}='{str(state).lower()}'" if str(state).lower() in _STATES else name)
    for name in ("selected", "disabled", "required", "readonly", "multiselectable", "busy", "modal"):
        if properties.get(name) in (True, "true"):
            said.append(name)
    if (invalid := properties.get("invalid")) not in (None, False, "false", ""):
        said.append("invalid" if invalid in (True, "true") else f"invalid={quote(str(invalid))}")
    if role == "heading" and isinstance(level := properties.get("level"), int):
        said.append(f"level={level}")
    if role in ("slider", "spinbutton", "progressbar", "meter", "scrollbar"):
        for name in ("valuemin", "valuemax"):
            if isinstance(bound := properties.get(name), int | float):
                said.append(f"{name.removeprefix('value')}={bound:g}")
        if (text := properties.get("valuetext")) and str(text) != shown_value:
            said.append(f"valuetext={quote(str(text))}")
    return said


_STATES = ("true", "false", "mixed")
