"""The layout of a page, from a DevTools snapshot of all its frames. All positions are in coordinates of the
viewport.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SNAPSHOT_PARAMS: dict[str, Any] = {"computedStyles": ["cursor", "position", "overflow-x"]}
"""Parameters of `DOMSnapshot.captureSnapshot`. The three styles show which elements are clickable and which
are clipped.

`includeDOMRects` is not set, because a snapshot with it takes twice the time and `bounds` does not need it.
"""

# maximum number of documents that are read; even a page of a thousand frames shows no more at once
MAX_FRAMES = 40


class Box(NamedTuple):
    """A rectangle in CSS pixels; empty if `right <= left` or `bottom <= top`."""

    left: float
    top: float
    right: float
    bottom: float

    def intersect(self, other: "Box") -> "Box":
        """Return the intersection of both rectangles."""
        return Box(
            max(self.left, other.left),
            max(self.top, other.top),
            min(self.right, other.right),
            min(self.bottom, other.bottom),
        )

    @property
    def has_area(self) -> bool:
        """True if the rectangle has an area above 0."""
        return self.right > self.left and self.bottom > self.top

    @property
    def area(self) -> float:
        """Area in square pixels."""
        return max(0.0, self.right - self.left) * max(0.0, self.bottom - self.top)


UNBOUNDED = Box(float("-inf"), float("-inf"), float("inf"), float("inf"))


class FrameTransform(NamedTuple):
    """Maps positions in a document to the viewport: `x * scale + left`, `y * scale + top`, clipped by
    `clip`.
    """

    left: float
    top: float
    scale: float
    clip: Box


@dataclass(slots=True)
class PageLayout:
    """All nodes of all frames, in the order of the flat tree (with shadow roots and slots). A node is
    identified by its index.

    Source: chromedevtools.github.io/devtools-protocol/tot/DOMSnapshot
    """

    backend_id: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    """Parent of each node; -1 for the document of the page itself. The parent of a frame's document is the
    frame element.
    """
    tag: list[str] = field(default_factory=list)
    """Name of each node as in the DOM: `DIV`, `#text`, `#document`, `::before`."""
    text: list[str] = field(default_factory=list)
    """Rendered text of a text node, otherwise empty."""
    box: list[Box | None] = field(default_factory=list)
    """The rectangle of each node, cut to the viewport; it may be empty. None if the node is not rendered."""
    children: list[list[int]] = field(default_factory=list)
    clickable: set[int] = field(default_factory=set)
    """Nodes that listen to clicks or show a pointer cursor."""
    value: dict[int, str] = field(default_factory=dict)
    """Current text of each input and textarea."""
    selected: set[int] = field(default_factory=set)
    """Checkboxes and radio buttons that are checked, and options that are selected."""
    frames: dict[str, int] = field(default_factory=dict)
    """Maps the DevTools id of each frame to the index of the frame's document. Contains only frames that were
    read.
    """
    node_by_backend_id: dict[int, int] = field(default_factory=dict)
    """Maps each `backendNodeId` to the index of the node."""
    _attributes: list[Sequence[int]] = field(default_factory=list)
    _source_text: list[int] = field(default_factory=list)
    _strings: Sequence[str] = ()

    def link_node(self, backend_id: int, parent: int) -> None:
        """Add the next node to the tree. `parent` is -1 for the document of the page."""
        node = len(self.backend_id)
        self.backend_id.append(backend_id)
        self.node_by_backend_id[backend_id] = node
        self.parent.append(parent)
        self.children.append([])
        if parent >= 0:
            self.children[parent].append(node)

    def attributes(self, node: int) -> dict[str, str]:
        """Return the attributes of an element, with lower-case names."""
        pairs = self._attributes[node]
        names = iter(pairs)
        return {
            self._strings[name].lower(): self._strings[value] if value >= 0 else ""
            for name, value in zip(names, names, strict=True)
        }

    def source_text(self, node: int) -> str:
        """Return the text of a text node as the document has it, even if the text is not rendered."""
        return self._strings[self._source_text[node]] if self._source_text[node] >= 0 else ""

    def has_semantic_attributes(self, node: int) -> bool:
        """True if an attribute may give the element a role, a name or focus."""
        return any(
            name == "role" or name.startswith("aria-") or name in ("tabindex", "contenteditable", "title")
            for name in self.attributes(node)
        )

    def ancestors(self, node: int) -> Iterator[int]:
        """Yield the node itself, and then its ancestors up to the document of the page."""
        while node >= 0:
            yield node
            node = self.parent[node]

    def is_in_view(self, node: int) -> bool:
        """True if a part of the node is in the viewport. If the node is not rendered, its closest rendered
        ancestor is checked instead.
        """
        for above in self.ancestors(node):
            if (box := self.box[above]) is not None:
                return box.has_area
        return False


def find_frame_owners(snapshot: Mapping[str, Any]) -> dict[int, int]:
    """Map each document to the `backendNodeId` of its frame element. A document comes before the documents
    that it contains.

    The first document is the page itself, which has no frame element.
    """
    documents = snapshot["documents"]
    found: dict[int, int] = {}
    waiting = [0]
    while waiting and len(found) < MAX_FRAMES:
        nodes = documents[waiting.pop(0)]["nodes"]
        frames = nodes["contentDocumentIndex"]
        for element, document in zip(frames["index"], frames["value"], strict=True):
            if 0 < document < len(documents) and document not in found:
                found[document] = nodes["backendNodeId"][element]
                waiting.append(document)
    return dict(list(found.items())[:MAX_FRAMES])


def build_layout(
    snapshot: Mapping[str, Any], viewport: Mapping[str, Any], content_quads: Mapping[int, Sequence[float]]
) -> PageLayout:
    """Build one tree of all frames from the snapshot.

    `viewport` is `cssLayoutViewport` of the layout metrics. `content_quads` contains the four corners of each
    frame's content in viewport coordinates, by document. A frame without corners is not rendered.
    """
    layout = PageLayout(_strings=snapshot["strings"])
    width, height = float(viewport["clientWidth"]), float(viewport["clientHeight"])
    screen = Box(0.0, 0.0, width, height)
    read = find_frame_owners(snapshot)
    for document in (0, *read):
        content = snapshot["documents"][document]
        owner = -1 if not document else layout.node_by_backend_id.get(read[document], -1)
        if document and owner < 0:
            continue
        transform = (
            _frame_transform(content, screen, content_quads.get(document))
            if document
            else _window_transform(content, screen, screen)
        )
        if document and transform is not None and (box := layout.box[owner]) is not None:
            transform = transform._replace(clip=transform.clip.intersect(box))
        _add_document(layout, content, owner, transform)
    return layout


def _frame_transform(
    document: Mapping[str, Any], screen: Box, quad: Sequence[float] | None
) -> FrameTransform | None:
    if quad is None or len(quad) != 8:
        return None
    across, down = quad[0::2], quad[1::2]
    return _window_transform(document, Box(min(across), min(down), max(across), max(down)), screen)


def _window_transform(document: Mapping[str, Any], window: Box, screen: Box) -> FrameTransform:
    scale = _scale(document, window.right - window.left)
    left, top = float(document.get("scrollOffsetX") or 0), float(document.get("scrollOffsetY") or 0)
    return FrameTransform(
        window.left - left * scale, window.top - top * scale, scale, window.intersect(screen)
    )


def _scale(document: Mapping[str, Any], width: float) -> float:
    # The first bounds of a document are those of its viewport. Chromium may return these bounds in device
    # pixels.
    bounds = document["layout"]["bounds"]
    own = float(bounds[0][2]) if bounds else 0.0
    return width / own if own > 0 and width > 0 else 1.0


class _Placement(NamedTuple):
    """Where a node is rendered, and what its descendants inherit from it."""

    clip: Box
    """Cuts the children of the node."""
    absolute_clip: Box
    """Cuts descendants with an absolute position."""
    has_pointer: bool = False
    """True if the node shows a pointer cursor."""
    box: Box | None = None


def _add_document(
    layout: PageLayout, document: Mapping[str, Any], frame_element: int, transform: FrameTransform | None
) -> None:
    strings, nodes, rendered = layout._strings, document["nodes"], document["layout"]
    first = len(layout.backend_id)
    layout.frames[strings[document["frameId"]]] = first
    rows: dict[int, int] = {}
    for row, node in enumerate(rendered["nodeIndex"]):
        rows.setdefault(node, row)
    window = UNBOUNDED if transform is None else transform.clip
    placements: list[_Placement] = []
    attributes = nodes["attributes"]
    for node, (parent, name, backend_id) in enumerate(
        zip(nodes["parentIndex"], nodes["nodeName"], nodes["backendNodeId"], strict=True)
    ):
        has_parent = 0 <= parent < node
        outer = placements[parent] if has_parent else _Placement(window, window)
        tag, text = strings[name], ""
        if transform is None or (row := rows.get(node, -1)) < 0:
            placement = _Placement(outer.clip, outer.absolute_clip, outer.has_pointer)
        else:
            styles = _read_styles(strings, rendered["styles"][row])
            placement = _place_node(tag, styles, rendered["bounds"][row], transform, outer)
            if tag == "#text" and (string := rendered["text"][row]) >= 0:
                text = strings[string]
            if placement.has_pointer and not outer.has_pointer:
                layout.clickable.add(first + node)
        placements.append(placement)
        layout.tag.append(tag)
        layout.text.append(text)
        layout.box.append(placement.box)
        layout._attributes.append(attributes[node] if node < len(attributes) else ())
        layout.link_node(backend_id, first + parent if has_parent else frame_element)
    layout.clickable.update(first + node for node in nodes["isClickable"]["index"])
    layout._source_text += nodes["nodeValue"]
    for key in ("inputValue", "textValue"):
        current = zip(nodes[key]["index"], nodes[key]["value"], strict=True)
        layout.value.update((first + node, strings[value]) for node, value in current if value >= 0)
    for key in ("inputChecked", "optionSelected"):
        layout.selected.update(first + node for node in nodes[key]["index"])


def _place_node(
    tag: str,
    styles: tuple[str, str, str],
    bounds: Sequence[float],
    transform: FrameTransform,
    outer: _Placement,
) -> _Placement:
    cursor, position, overflow = styles
    x, y, width, height = bounds
    left, top = x * transform.scale + transform.left, y * transform.scale + transform.top
    whole = Box(left, top, left + width * transform.scale, top + height * transform.scale)
    clip = {"fixed": transform.clip, "absolute": outer.absolute_clip}.get(position, outer.clip)
    box = whole.intersect(clip)
    if overflow not in ("", "visible") and tag not in ("HTML", "BODY"):
        clip = box
    absolute_clip = outer.absolute_clip if position in ("", "static") else clip
    return _Placement(clip, absolute_clip, cursor == "pointer", box)


def _read_styles(strings: Sequence[str], style: Sequence[int]) -> tuple[str, str, str]:
    if len(style) != 3:
        return "", "", ""  # text nodes have no styles of their own
    cursor, position, overflow = style
    return strings[cursor], strings[position], strings[overflow]
