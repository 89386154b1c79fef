"""The accessibility tree of a page as text: `[bid] role 'name', flag`, one node a line, indented by tabs."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.observations import Look
from runtime.page.layout import Layout
from runtime.page.roles import DROPPED, INLINE, INTERACTIVE, SILENT, properties, states, value
from runtime.page.text import Words, folded

LONGEST_NAME = 300  # characters
LONGEST_TEXT = 2_000
DEEPEST = 24  # tabs; what lies deeper is told at this depth
MOST_OPTIONS = 100  # of one list


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the tree, before it is numbered."""

    depth: int
    words: str
    flags: tuple[str, ...] = ()
    node: int | None = None
    """None: a text, which has no bid."""
    is_interactive: bool = False
    in_view: bool = True


@dataclass
class Reading:
    """Lines of a page with what is known about all of them."""

    lines: list[Line] = field(default_factory=list)
    focused: int | None = None
    """The innermost focused element."""
    words: Words = field(default_factory=Words)


@dataclass(frozen=True)
class Facts:
    """What Chromium's accessibility tree says: AXNodes by `backendNodeId`."""

    nodes: Mapping[int, Mapping[str, Any]]
    is_whole: bool
    """Whether every node of the page was asked about; else its texts are those of the layout."""
    unread: int = 0
    """Frames that did not answer."""


@dataclass(slots=True)
class _Above:
    """What a line inherits: how deep it stands, and the name that the lines around it already said."""

    depth: int = 0
    said: str = ""
    node: int = -1
    """The element of the line above; -1: none yet."""


class Reader:
    """Reads a page once: from its layout and the accessibility facts about it.

    An element without facts is passed over, and its content is not.
    """

    def __init__(self, layout: Layout, facts: Facts, look: Look) -> None:
        self._layout = layout
        self._facts = facts
        self._look = look
        self._reading = Reading()
        self._options = Counter[int]()
        self._run: list[str] = []
        self._run_above = _Above()
        self._run_in_view = False
        self._half_screen = layout.box[0].area / 2 if layout.box and layout.box[0] else 0.0

    def read(self) -> Reading:
        """All lines, in the order of the page."""
        # A stack of our own: elements may be nested deeper than Python's.
        stack: list[tuple[int, _Above] | None] = [(0, _Above())]
        while stack:
            if (here := stack.pop()) is None:
                self._end_run()
                continue
            node, above = here
            if (inner := self._visit(node, above)) is None:
                continue
            if self._layout.tag[node] not in INLINE:
                self._end_run()
                stack.append(None)
            stack.extend((child, inner) for child in reversed(self._layout.children[node]))
        self._end_run()
        return self._reading

    def _visit(self, node: int, above: _Above) -> _Above | None:
        """What the node's content inherits; None where it is not to be read."""
        tag = self._layout.tag[node]
        if tag == "#text":
            self._text(node, above)
            return None
        if not self._facts.is_whole and self._hides(node):
            return None
        facts = self._facts.nodes.get(self._layout.backend[node])
        if tag == "LABEL" and (control := self._labelled(node)) is not None:
            # The control's line says its label.
            named = value(self._facts.nodes.get(self._layout.backend[control], {}).get("name"))
            above = replace(above, said=folded(f"{above.said} {named or ''}"))
        if facts is None or facts.get("ignored"):
            return above
        role = str(value(facts.get("role")) or "generic")
        if role in DROPPED:
            return above
        return self._element(node, role, facts, above)

    def _hides(self, node: int) -> bool:
        attributes = self._layout.attributes(node)
        return attributes.get("aria-hidden", "").lower() == "true" or "inert" in attributes

    def _element(self, node: int, role: str, facts: Mapping[str, Any], above: _Above) -> _Above | None:
        found = properties(facts)
        name = str(value(facts.get("name")) or "")
        if role == "option" and self._skips_option(above):
            return None
        interactive = self._is_interactive(node, role, found)
        focused = bool(found.get("focused"))
        if role in SILENT and not interactive and not focused and (not name or folded(name) in above.said):
            return above
        self._end_run()
        flags = self._flags(node, role, name, facts, found, interactive)
        root = role == "RootWebArea"
        if focused and not root:
            self._reading.focused = node
        if role == "Iframe" and not self._layout.children[node]:
            flags = (*flags, "not read")
        quote = self._reading.words.quote
        said = f"{role} {quote(name, LONGEST_NAME)}" if name or root else role
        self._reading.lines.append(
            Line(
                depth=min(above.depth, DEEPEST),
                words=said,
                flags=flags,
                node=None if root else node,
                is_interactive=interactive,
                in_view=root or self._layout.is_in_view(node),
            )
        )
        # A name that was cut did not say what follows.
        told = folded(name) if len(name) <= LONGEST_NAME and not root else ""
        if interactive and (shown := value(facts.get("value"))) is not None:
            told = f"{told} {folded(str(shown))}".strip()
        return _Above(depth=above.depth + 1, said=told, node=node)

    def _skips_option(self, above: _Above) -> bool:
        self._options[above.node] += 1
        if self._options[above.node] == MOST_OPTIONS + 1:
            self._end_run()
            more = f"StaticText '(more than {MOST_OPTIONS} options; the others are not shown)'"
            self._reading.lines.append(Line(depth=min(above.depth, DEEPEST), words=more))
        return self._options[above.node] > MOST_OPTIONS

    def _is_interactive(self, node: int, role: str, found: Mapping[str, Any]) -> bool:
        if role == "RootWebArea" or found.get("disabled") is True:
            return False
        box = self._layout.box[node]
        if role == "option" and box is None:
            return False  # of a closed list: it is selected, not clicked
        if role in INTERACTIVE or found.get("editable"):
            return True
        if self._layout.tag[node] == "LABEL" and self._labelled(node) is not None:
            return False  # one mark is enough for both
        if node in self._layout.pointed:
            # A framework listens on its outermost element for all that lies in it.
            covers = box is not None and box.area > self._half_screen
            return self._layout.tag[node] not in ("HTML", "BODY") and not covers
        if found.get("focusable") and role != "Iframe":
            return "tabindex" in self._layout.attributes(
                node
            )  # else a scroller, which Chromium lets keys reach
        return False

    def _labelled(self, label: int) -> int | None:
        """The rendered control in a label."""
        inner = [*self._layout.children[label]]
        for child in inner:  # it grows while it is walked
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
        facts: Mapping[str, Any],
        found: Mapping[str, Any],
        interactive: bool,
    ) -> tuple[str, ...]:
        quote = self._reading.words.quote
        flags: list[str] = []
        shown = value(facts.get("value"))
        if shown is not None and str(shown) != name:
            flags.append(f"value={quote(str(shown), LONGEST_TEXT, with_lines=True)}")
        if interactive and role in ("textbox", "searchbox", "combobox", "spinbutton"):
            hint = self._layout.attributes(node).get("placeholder", "")
            if hint and hint != name:
                flags.append(f"placeholder={quote(hint, LONGEST_NAME)}")
        described = str(value(facts.get("description")) or "")
        if described and described != name:
            flags.append(f"description={quote(described, LONGEST_NAME)}")
        if role == "link" and not name and (url := found.get("url")):
            flags.append(f"url={quote(str(url), LONGEST_NAME)}")
        flags += states(
            role, "" if shown is None else str(shown), found, lambda text: quote(text, LONGEST_NAME)
        )
        if found.get("focused") and self._look.flag_focused:
            flags.append("focused")
        if interactive and self._look.flag_clickable:
            flags.append("clickable")
        return tuple(flags)

    def _text(self, node: int, above: _Above) -> None:
        if self._facts.is_whole:
            facts = self._facts.nodes.get(self._layout.backend[node])
            if facts is None or facts.get("ignored"):
                return
            text = str(value(facts.get("name")) or "")
        else:
            text = self._layout.text[node]
        if not text.strip():
            if self._run:
                self._run.append(text)
            return
        if above.said and folded(text) in above.said:
            return
        if not self._run:
            self._run_above = above
        self._run.append(text)
        self._run_in_view = self._run_in_view or self._layout.is_in_view(node)

    def _end_run(self) -> None:
        if not self._run:
            return
        text, above = "".join(self._run), self._run_above
        self._run.clear()
        words = f"StaticText {self._reading.words.quote(text, LONGEST_TEXT)}"
        self._reading.lines.append(Line(min(above.depth, DEEPEST), words, in_view=self._run_in_view))
        self._run_in_view = False


_CONTROLS = frozenset({"INPUT", "SELECT", "TEXTAREA", "BUTTON"})

Bid = Callable[[int], str]


def write(lines: list[Line], bid: Bid, extra: Mapping[int, str], most: int) -> tuple[str, int]:
    """The lines as text of at most `most` characters, and how many of them that are.

    `extra` has one more flag for some nodes.
    """
    written: list[str] = []
    length = 0
    for line in lines:
        number = "" if line.node is None else f"[{bid(line.node)}] "
        flags = line.flags
        if line.node is not None and line.node in extra:
            flags = (*flags, extra[line.node])
        text = "\t" * line.depth + ", ".join((number + line.words, *flags))
        length += len(text) + 1
        if length > most + 1:
            break
        written.append(text)
    return "\n".join(written), len(written)
