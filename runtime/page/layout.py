"""What a page is made of and where it lies: a DevTools snapshot of all its frames, in coordinates of the viewport."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SNAPSHOT: dict[str, Any] = {"computedStyles": ["cursor", "position", "overflow-x"]}
"""Parameters of `DOMSnapshot.captureSnapshot`: three styles, without which nothing is known about clicks and clips.

`includeDOMRects` would double its time, and `bounds` are there without it.
"""

MOST_FRAMES = 40  # documents that are read; a page of a thousand frames shows no more than these anyway


class Box(NamedTuple):
    """A rectangle in CSS pixels; nothing of it is there when `right <= left` or `bottom <= top`."""

    left: float
    top: float
    right: float
    bottom: float

    def within(self, other: "Box") -> "Box":
        """The part of it that lies in the other."""
        return Box(
            max(self.left, other.left),
            max(self.top, other.top),
            min(self.right, other.right),
            min(self.bottom, other.bottom),
        )

    @property
    def is_seen(self) -> bool:
        """Whether anything of it is there."""
        return self.right > self.left and self.bottom > self.top

    @property
    def area(self) -> float:
        """In square pixels."""
        return max(0.0, self.right - self.left) * max(0.0, self.bottom - self.top)


EVERYWHERE = Box(float("-inf"), float("-inf"), float("inf"), float("inf"))


class Place(NamedTuple):
    """Where a document's own coordinates lie in the viewport: `x * scale + left`, seen through `window`."""

    left: float
    top: float
    scale: float
    window: Box


@dataclass(slots=True)
class Layout:
    """All nodes of all frames in the order of the flat tree (shadow roots, slots); a node is its index.

    Source: chromedevtools.github.io/devtools-protocol/tot/DOMSnapshot
    """

    backend: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    """-1 for the page's own document; the document of a frame lies in its frame element."""
    tag: list[str] = field(default_factory=list)
    """As in the DOM: `DIV`, `#text`, `#document`, `::before`."""
    text: list[str] = field(default_factory=list)
    """Rendered text of a text node, else empty."""
    box: list[Box | None] = field(default_factory=list)
    """The part of it that the viewport shows, maybe nothing. None: it is not rendered."""
    area: list[float] = field(default_factory=list)
    """Of the whole of it, in the viewport or not; 0 if it is not rendered."""
    children: list[list[int]] = field(default_factory=list)
    pointed: set[int] = field(default_factory=set)
    """Nodes that listen to clicks, or turn the cursor into a hand."""
    frames: dict[str, int] = field(default_factory=dict)
    """DevTools id of each frame that was read, and its document."""
    index: dict[int, int] = field(default_factory=dict)
    """Node of each `backendNodeId`."""
    _attributes: list[Sequence[int]] = field(default_factory=list)
    _strings: Sequence[str] = ()

    def attributes(self, node: int) -> dict[str, str]:
        """Attributes of an element, names in lower case."""
        pairs = self._attributes[node]
        names = iter(pairs)
        return {
            self._strings[name].lower(): self._strings[value]
            for name, value in zip(names, names, strict=True)
        }

    def has_attributes(self, node: int) -> bool:
        """Whether an attribute stands there that may give an element a role, a name or a focus."""
        return any(
            name == "role" or name.startswith("aria-") or name in ("tabindex", "contenteditable", "title")
            for name in self.attributes(node)
        )

    def ancestors(self, node: int) -> Iterator[int]:
        """The node itself, what it lies in, and so on to the page's document."""
        while node >= 0:
            yield node
            node = self.parent[node]

    def is_in_view(self, node: int) -> bool:
        """Whether the viewport shows something of it; what is not rendered follows what it lies in."""
        for above in self.ancestors(node):
            if (box := self.box[above]) is not None:
                return box.is_seen
        return False


def owners(snapshot: Mapping[str, Any]) -> dict[int, int]:
    """The `backendNodeId` of the frame element of each document but the first, outer documents first."""
    documents = snapshot["documents"]
    found: dict[int, int] = {}
    waiting = [0]
    while waiting and len(found) < MOST_FRAMES:
        nodes = documents[waiting.pop(0)]["nodes"]
        frames = nodes["contentDocumentIndex"]
        for element, document in zip(frames["index"], frames["value"], strict=True):
            if 0 < document < len(documents) and document not in found:
                found[document] = nodes["backendNodeId"][element]
                waiting.append(document)
    return dict(list(found.items())[:MOST_FRAMES])


def lay_out(
    snapshot: Mapping[str, Any], viewport: Mapping[str, Any], contents: Mapping[int, Sequence[float]]
) -> Layout:
    """The snapshot as one tree.

    `viewport` is `cssLayoutViewport` of the layout metrics; `contents` the content quads of frame elements by document
    (four points, in viewport coordinates); a frame without one is not rendered.
    """
    layout = Layout(_strings=snapshot["strings"])
    width, height = float(viewport["clientWidth"]), float(viewport["clientHeight"])
    screen = Box(0.0, 0.0, width, height)
    read = owners(snapshot)
    elements: dict[int, int] = {}  # frame element by backendNodeId
    wanted = {backend: document for document, backend in read.items()}
    for document in (0, *read):
        content = snapshot["documents"][document]
        above = -1 if not document else elements.get(read[document], -1)
        if document and above < 0:
            continue
        place = (
            _place(content, screen, contents.get(document)) if document else _within(content, screen, screen)
        )
        if document and place is not None and (box := layout.box[above]) is not None:
            place = place._replace(window=place.window.within(box))
        _add(layout, content, above, place, wanted, elements)
    return layout


def _place(document: Mapping[str, Any], screen: Box, quad: Sequence[float] | None) -> Place | None:
    if quad is None or len(quad) != 8:
        return None
    across, down = quad[0::2], quad[1::2]
    return _within(document, Box(min(across), min(down), max(across), max(down)), screen)


def _within(document: Mapping[str, Any], window: Box, screen: Box) -> Place:
    scale = _scale(document, window.right - window.left)
    left, top = float(document.get("scrollOffsetX") or 0), float(document.get("scrollOffsetY") or 0)
    return Place(window.left - left * scale, window.top - top * scale, scale, window.within(screen))


def _scale(document: Mapping[str, Any], width: float) -> float:
    # The bounds of a document are those of its viewport: in device pixels where Chromium counts in those.
    bounds = document["layout"]["bounds"]
    own = float(bounds[0][2]) if bounds else 0.0
    return width / own if own > 0 and width > 0 else 1.0


def _add(
    layout: Layout,
    document: Mapping[str, Any],
    above: int,
    place: Place | None,
    wanted: Mapping[int, int],
    elements: dict[int, int],
) -> None:
    strings, nodes, rendered = layout._strings, document["nodes"], document["layout"]
    base = len(layout.backend)
    layout.frames[strings[document["frameId"]]] = base
    rows: dict[int, int] = {}
    for place_in_list, node in enumerate(rendered["nodeIndex"]):
        rows.setdefault(node, place_in_list)
    clicked = set(nodes["isClickable"]["index"])
    window = EVERYWHERE if place is None else place.window
    clips: list[
        tuple[Box, Box]
    ] = []  # of each node: for its children, and for those with an absolute position
    hands: list[bool] = []
    attributes = nodes["attributes"]
    for node, (parent, name, backend) in enumerate(
        zip(nodes["parentIndex"], nodes["nodeName"], nodes["backendNodeId"], strict=True)
    ):
        outer, positioned = clips[parent] if 0 <= parent < node else (window, window)
        area = 0.0
        tag, box, hand, text = strings[name], None, 0 <= parent < node and hands[parent], ""
        if place is not None and (row := rows.get(node)) is not None:
            cursor, position, overflow = _styles(strings, rendered["styles"][row])
            x, y, wide, high = rendered["bounds"][row]
            left, top = x * place.scale + place.left, y * place.scale + place.top
            whole = Box(left, top, left + wide * place.scale, top + high * place.scale)
            clip = window if position == "fixed" else positioned if position == "absolute" else outer
            box, area = whole.within(clip), whole.area
            inner = clip
            if overflow not in ("", "visible") and tag not in ("HTML", "BODY"):
                inner = box
            outer, positioned = inner, inner if position not in ("", "static") else positioned
            if (at := rendered["text"][row]) >= 0 and tag == "#text":
                text = strings[at]
            if cursor == "pointer" and not hand:
                layout.pointed.add(base + node)
            hand = cursor == "pointer"
        if node in clicked:
            layout.pointed.add(base + node)
        clips.append((outer, positioned))
        hands.append(hand)
        mine = base + node
        up = base + parent if 0 <= parent < node else above
        layout.backend.append(backend)
        layout.parent.append(up)
        layout.tag.append(tag)
        layout.text.append(text)
        layout.box.append(box)
        layout.area.append(area)
        layout.children.append([])
        layout._attributes.append(attributes[node] if node < len(attributes) else ())
        layout.index[backend] = mine
        if up >= 0:
            layout.children[up].append(mine)
        if backend in wanted:
            elements[backend] = mine


def _styles(strings: Sequence[str], style: Sequence[int]) -> tuple[str, str, str]:
    if len(style) != 3:
        return "", "", ""  # text has none of its own
    cursor, position, overflow = style
    return strings[cursor], strings[position], strings[overflow]
