"""Renders the accessibility tree of a page as text. Each line is one node, such as `[bid] role 'name', flag`,
and is indented by tabs.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from patchwright.runtime.observations import SnapshotOptions
from patchwright.runtime.page.layout import PageLayout
from patchwright.runtime.page.quoting import TextQuoter, collapse_spaces
from patchwright.runtime.page.roles import (
    GENERIC_ROLES,
    IGNORED_ROLES,
    INLINE_TAGS,
    INTERACTIVE_ROLES,
    ax_properties,
    ax_value,
    describe_states,
)

MAX_NAME = 300  # characters
MAX_TEXT = 2_000
MAX_DEPTH = 24  # maximum number of tabs; nodes that are nested deeper are shown at this depth
MAX_OPTIONS = 100  # maximum number of options that are shown for one list


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line of the tree. Its element has no bid (element id) yet."""

    depth: int
    text: str
    flags: tuple[str, ...] = ()
    node: int | None = None
    """Index of the node. None for a text, because texts have no bids (element ids)."""
    is_interactive: bool = False
    in_view: bool = True


@dataclass
class TreeLines:
    """The lines of a page and its focused element. `quoter` is the object that quoted the page's texts."""

    lines: list[TreeLine] = field(default_factory=list)
    focused: int | None = None
    """The innermost element that has the focus."""
    quoter: TextQuoter = field(default_factory=TextQuoter)


@dataclass(frozen=True)
class AccessibilityTree:
    """Chromium's accessibility tree: its nodes (AXNodes) by `backendNodeId`."""

    nodes: Mapping[int, Mapping[str, Any]]
    is_complete: bool
    """True if Chromium returned every node of the page. If False, texts are taken from the layout."""
    unread_frames: int = 0
    """Frames that did not respond."""


@dataclass(slots=True)
class _LineContext:
    """Where a nested line is in the tree: its depth, its enclosing line, and the text that the enclosing lines
    already show.
    """

    depth: int = 0
    announced: str = ""
    node: int = -1
    """The node of the enclosing line; -1 if there is none."""


class TreeReader:
    """Reads the lines of a page once, from the page's layout and its accessibility tree.

    An element without a node in the accessibility tree is left out, but its content is included.
    """

    def __init__(
        self, layout: PageLayout, accessibility: AccessibilityTree, options: SnapshotOptions
    ) -> None:
        self._layout = layout
        self._accessibility = accessibility
        self._snapshot_options = options
        self._result = TreeLines()
        self._option_counts = Counter[int]()
        self._text_run: list[str] = []
        self._text_run_context = _LineContext()
        self._text_run_in_view = False
        self._half_viewport_area = layout.box[0].area / 2 if layout.box and layout.box[0] else 0.0

    def read(self) -> TreeLines:
        """Return all lines, in the order of the page."""
        # This uses a stack instead of recursion, because elements may be nested deeper than Python's
        # recursion limit.
        stack: list[tuple[int, _LineContext] | None] = [(0, _LineContext())]
        while stack:
            if (here := stack.pop()) is None:
                self._flush_text()
                continue
            node, above = here
            if (inner := self._visit(node, above)) is None:
                continue
            if self._layout.tag[node] not in INLINE_TAGS:
                self._flush_text()
                stack.append(None)
            stack.extend((child, inner) for child in reversed(self._layout.children[node]))
        self._flush_text()
        return self._result

    def _visit(self, node: int, context: _LineContext) -> _LineContext | None:
        """Add a line for the node. Return the context for its children, or None if its children are
        skipped.
        """
        tag = self._layout.tag[node]
        if tag == "#text":
            self._add_text(node, context)
            return None
        if not self._accessibility.is_complete and self._is_hidden(node):
            return None
        facts = self._accessibility.nodes.get(self._layout.backend_id[node])
        if tag == "LABEL" and (control := self._find_labeled_control(node)) is not None:
            # The line of the labeled control already shows this text.
            named = ax_value(self._accessibility.nodes.get(self._layout.backend_id[control], {}).get("name"))
            context = replace(context, announced=collapse_spaces(f"{context.announced} {named or ''}"))
        if facts is None or facts.get("ignored"):
            return context
        role = str(ax_value(facts.get("role")) or "generic")
        if role in IGNORED_ROLES:
            return context
        return self._add_element(node, role, facts, context)

    def _is_hidden(self, node: int) -> bool:
        attributes = self._layout.attributes(node)
        return attributes.get("aria-hidden", "").lower() == "true" or "inert" in attributes

    def _add_element(
        self, node: int, role: str, ax_node: Mapping[str, Any], context: _LineContext
    ) -> _LineContext | None:
        found = ax_properties(ax_node)
        name = str(ax_value(ax_node.get("name")) or "")
        if role == "option" and self._should_skip_option(context):
            return None
        interactive = self._is_interactive(node, role, found)
        focused = bool(found.get("focused"))
        if (
            role in GENERIC_ROLES
            and not interactive
            and not focused
            and (not name or collapse_spaces(name) in context.announced)
        ):
            return context
        self._flush_text()
        flags = self._flags(node, role, name, ax_node, found, interactive)
        root = role == "RootWebArea"
        if focused and not root:
            self._result.focused = node
        if role == "Iframe" and not self._layout.children[node]:
            flags = (*flags, "not read")
        quote = self._result.quoter.quote
        label = f"{role} {quote(name, MAX_NAME)}" if name or root else role
        self._result.lines.append(
            TreeLine(
                depth=min(context.depth, MAX_DEPTH),
                text=label,
                flags=flags,
                node=None if root else node,
                is_interactive=interactive,
                in_view=root or self._layout.is_in_view(node),
            )
        )
        # A name that was cut does not show all of the text. The content of the element is therefore shown,
        # too.
        announced = collapse_spaces(name) if len(name) <= MAX_NAME and not root else ""
        if interactive and (shown := ax_value(ax_node.get("value"))) is not None:
            announced = f"{announced} {collapse_spaces(str(shown))}".strip()
        return _LineContext(depth=context.depth + 1, announced=announced, node=node)

    def _should_skip_option(self, context: _LineContext) -> bool:
        self._option_counts[context.node] += 1
        if self._option_counts[context.node] == MAX_OPTIONS + 1:
            self._flush_text()
            more = f"StaticText '(more than {MAX_OPTIONS} options; the rest are not shown)'"
            self._result.lines.append(TreeLine(depth=min(context.depth, MAX_DEPTH), text=more))
        return self._option_counts[context.node] > MAX_OPTIONS

    def _is_interactive(self, node: int, role: str, properties: Mapping[str, Any]) -> bool:
        if role == "RootWebArea" or properties.get("disabled") is True:
            return False
        box = self._layout.box[node]
        if role == "option" and box is None:
            return False  # users select an option of a closed list, and do not click it
        if role in INTERACTIVE_ROLES or properties.get("editable"):
            return True
        if self._layout.tag[node] == "LABEL" and self._find_labeled_control(node) is not None:
            return False  # a label and its control get only one mark
        if node in self._layout.clickable:
            # Frameworks handle all clicks on the outermost element of a page, which is not a control.
            covers = box is not None and box.area > self._half_viewport_area
            return self._layout.tag[node] not in ("HTML", "BODY") and not covers
        if properties.get("focusable") and role != "Iframe":
            return "tabindex" in self._layout.attributes(
                node
            )  # an element without tabindex is focusable only because it can be scrolled
        return False

    def _find_labeled_control(self, label: int) -> int | None:
        """Return the first visible form control inside a label, or None if there is none."""
        inner = [*self._layout.children[label]]
        for child in inner:  # the loop appends to this list
            if (
                self._layout.tag[child] in _CONTROLS
                and (box := self._layout.box[child]) is not None
                and box.area > 1
            ):
                return child
            if len(inner) < 100:
                inner += self._layout.children[child]
        return None

    def _flags(
        self,
        node: int,
        role: str,
        name: str,
        ax_node: Mapping[str, Any],
        properties: Mapping[str, Any],
        interactive: bool,
    ) -> tuple[str, ...]:
        quote = self._result.quoter.quote
        flags: list[str] = []
        shown = ax_value(ax_node.get("value"))
        if shown is not None and str(shown) != name:
            flags.append(f"value={quote(str(shown), MAX_TEXT, keep_newlines=True)}")
        if interactive and role in ("textbox", "searchbox", "combobox", "spinbutton"):
            hint = self._layout.attributes(node).get("placeholder", "")
            if hint and hint != name:
                flags.append(f"placeholder={quote(hint, MAX_NAME)}")
        described = str(ax_value(ax_node.get("description")) or "")
        if described and described != name:
            flags.append(f"description={quote(described, MAX_NAME)}")
        if role == "link" and not name and (url := properties.get("url")):
            flags.append(f"url={quote(str(url), MAX_NAME)}")
        flags += describe_states(
            role, "" if shown is None else str(shown), properties, lambda text: quote(text, MAX_NAME)
        )
        if properties.get("focused") and self._snapshot_options.flag_focused:
            flags.append("focused")
        if interactive and self._snapshot_options.flag_clickable:
            flags.append("clickable")
        return tuple(flags)

    def _add_text(self, node: int, context: _LineContext) -> None:
        if self._accessibility.is_complete:
            facts = self._accessibility.nodes.get(self._layout.backend_id[node])
            if facts is None or facts.get("ignored"):
                return
            text = str(ax_value(facts.get("name")) or "")
        else:
            text = self._layout.text[node]
        if not text.strip():
            if self._text_run:
                self._text_run.append(text)
            return
        if context.announced and collapse_spaces(text) in context.announced:
            return
        if not self._text_run:
            self._text_run_context = context
        self._text_run.append(text)
        self._text_run_in_view = self._text_run_in_view or self._layout.is_in_view(node)

    def _flush_text(self) -> None:
        if not self._text_run:
            return
        text, above = "".join(self._text_run), self._text_run_context
        self._text_run.clear()
        words = f"StaticText {self._result.quoter.quote(text, MAX_TEXT)}"
        self._result.lines.append(
            TreeLine(min(above.depth, MAX_DEPTH), words, in_view=self._text_run_in_view)
        )
        self._text_run_in_view = False


_CONTROLS = frozenset({"INPUT", "SELECT", "TEXTAREA", "BUTTON"})

GetBid = Callable[[int], str]


def render_lines(
    lines: list[TreeLine], get_bid: GetBid, extra_flags: Mapping[int, str], max_chars: int
) -> tuple[str, int]:
    """Return the lines as text of at most `max_chars` characters. Also return the number of lines in the
    text.

    `extra_flags` contains an additional flag for some of the nodes.
    """
    written: list[str] = []
    length = 0
    for line in lines:
        number = "" if line.node is None else f"[{get_bid(line.node)}] "
        flags = line.flags
        if line.node is not None and line.node in extra_flags:
            flags = (*flags, extra_flags[line.node])
        text = "\t" * line.depth + ", ".join((number + line.text, *flags))
        length += len(text) + 1
        if length > max_chars + 1:
            break
        written.append(text)
    return "\n".join(written), len(written)
