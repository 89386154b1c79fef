"""Renders the elements of a page as markup: as HTML pruned to the rendered content, or the whole DOM.

An element's id (bid) is its attribute `bid`. A page cannot set this attribute itself, and its texts are escaped.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from patchwright.runtime.page.layout import PageLayout
from patchwright.runtime.page.quoting import TextQuoter

MAX_TEXT = 2_000  # characters of one text
MAX_ATTRIBUTE = 200  # characters of the value of one attribute
MAX_ATTRIBUTES = 40  # attributes of one element
MAX_DEPTH = 24  # maximum number of tabs; nodes that are nested deeper are shown at this depth

_KEPT_ATTRIBUTES = frozenset(
    "id role type name value placeholder href src alt title for action checked selected disabled readonly required "
    "open contenteditable data-testid".split()
)
"""Attributes in pruned HTML, in addition to `aria-` ones."""
_PRUNED_TAGS = frozenset("HEAD SCRIPT STYLE NOSCRIPT TEMPLATE LINK META".split())
_WRAPPER_TAGS = frozenset("HTML BODY DIV SPAN TBODY CENTER FONT".split())
"""Elements that pruned HTML leaves out if none of their attributes is kept. Their content is shown."""
_LEAF_TAGS = frozenset("INPUT TEXTAREA svg VIDEO AUDIO".split())
"""Elements whose inner nodes Chromium creates, or only draws."""
_OPTION_TAGS = ("OPTION", "OPTGROUP")
_NAME = re.compile(r"[\w:.-]+")


@dataclass(frozen=True)
class MarkupWriter:
    """Writes the markup of one page."""

    layout: PageLayout
    get_bid: Callable[[int], str]
    """Returns the bid of the node with this index."""
    whole: bool
    """True for the whole DOM, with elements that are not rendered. False for pruned HTML."""

    def write(self, max_chars: int, in_view: bool) -> tuple[str, bool]:
        """Return the markup, one element or text per line, and whether all of it fit into `max_chars`.

        If `in_view` is True, return only the elements of which a part is in the viewport.
        """
        lines: list[str] = []
        length = 0
        for line in self._lines(self._find_shown_nodes(in_view)):
            length += len(line) + 1
            if length > max_chars + 1:
                return "\n".join(lines), False
            lines.append(line)
        return "\n".join(lines), True

    def _find_shown_nodes(self, in_view: bool) -> Sequence[bool]:
        """Return for each node whether the node or a node inside it is shown."""
        shown = [self._is_shown(node, in_view) for node in range(len(self.layout.tag))]
        for node in range(len(shown) - 1, 0, -1):
            # An option shows nothing of a select element that is hidden itself.
            if shown[node] and (
                self.layout.tag[node] not in _OPTION_TAGS or self.layout.box[node] is not None
            ):
                shown[self.layout.parent[node]] = True
        return shown

    def _is_shown(self, node: int, in_view: bool) -> bool:
        box = self.layout.box[node]
        if box is not None:
            return box.has_area or not in_view
        if self.whole and not in_view:
            return True
        # The list of a closed select element is not rendered, but its options can be selected.
        option = self.layout.parent[node] if self.layout.tag[node] == "#text" else node
        return self.layout.tag[option] in _OPTION_TAGS

    def _lines(self, shown: Sequence[bool]) -> Iterator[str]:
        layout = self.layout
        # This uses a stack instead of recursion, because elements may be nested deeper than Python's recursion limit.
        stack: list[tuple[int, int] | str] = [(0, 0)]
        while stack:
            if isinstance(item := stack.pop(), str):
                yield item
                continue
            node, depth = item
            tag, indent = layout.tag[node], "\t" * min(depth, MAX_DEPTH)
            is_doctype = tag == "html" and not layout.children[node]
            if not shown[node] or is_doctype or (not self.whole and tag in _PRUNED_TAGS):
                continue
            if tag == "#text":
                if text := self._text(node):
                    yield indent + text
                continue
            children = [] if tag in _LEAF_TAGS else [child for child in layout.children[node] if shown[child]]
            attributes = self._attributes(node)
            if tag[:1] in ("#", ":") or (not self.whole and tag in _WRAPPER_TAGS and not attributes):
                stack += [(child, depth) for child in reversed(children)]
                continue
            name = "".join(_NAME.findall(tag)).lower()
            opening = indent + self._opening_tag(node, name, attributes)
            if [layout.tag[child] for child in children] == ["#text"]:
                yield f"{opening}{self._text(children[0])}</{name}>"
                continue
            yield opening
            if children:
                stack.append(f"{indent}</{name}>")
                stack += [(child, depth + 1) for child in reversed(children)]

    def _opening_tag(self, node: int, name: str, attributes: dict[str, str]) -> str:
        is_rendered = self.layout.box[node] is not None
        parts = [f'{name} bid="{self.get_bid(node)}"' if is_rendered or name == "option" else name]
        for key, value in attributes.items():
            parts.append(f'{key}="{self._escape(value, MAX_ATTRIBUTE)}"' if value else key)
        return f"<{' '.join(parts)}>" + ("" if is_rendered or not self.whole else "<!-- not rendered -->")

    def _attributes(self, node: int) -> dict[str, str]:
        """Return the attributes to show, with the current state of a form control."""
        tag, attributes = self.layout.tag[node], self.layout.attributes(node)
        for state in ("bid", "checked", "selected"):
            attributes.pop(state, None)
        if node in self.layout.selected:
            attributes["selected" if tag == "OPTION" else "checked"] = ""
        kind = attributes.get("type", "").lower()
        if kind == "password":
            attributes.pop("value", None)
        elif node in self.layout.value and kind not in ("checkbox", "radio"):
            attributes["value"] = self.layout.value[node]
        kept = [
            (key, value)
            for key, value in attributes.items()
            if _NAME.fullmatch(key) and (self.whole or key in _KEPT_ATTRIBUTES or key.startswith("aria-"))
        ]
        return dict(kept[:MAX_ATTRIBUTES])

    def _text(self, node: int) -> str:
        text, above = self.layout.text[node], self.layout.tag[self.layout.parent[node]]
        if not text and (above == "OPTION" or (self.whole and above not in ("SCRIPT", "STYLE"))):
            text = self.layout.source_text(node)
        return self._escape(text, MAX_TEXT)

    def _escape(self, text: str, limit: int) -> str:
        return html.escape(TextQuoter().clean(text, limit))
