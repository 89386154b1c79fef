"""Which elements a click would reach: asked of Chromium's own hit test, so that what covers what is never guessed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runtime.page.devtools import NoAnswer, Send, every
from runtime.page.layout import Box, Layout

MOST_TESTED = 300  # elements; a viewport with more is not marked whole

CENTRE = ((0.5, 0.5),)
ELSEWHERE = ((0.2, 0.3), (0.8, 0.3), (0.2, 0.7), (0.8, 0.7))
"""Where else an element may be open: a link over two lines, a card with a button in its middle."""


async def open_to_clicks(
    send: Send, layout: Layout, nodes: Sequence[int], scrolled: tuple[float, float]
) -> set[int]:
    """Those of the nodes that a click at a point of theirs would reach; `scrolled` is the offset of the page."""
    found = await _reached(send, layout, nodes, CENTRE, scrolled)
    rest = [node for node in nodes if node not in found]
    return found | await _reached(send, layout, rest, ELSEWHERE, scrolled)


async def _reached(
    send: Send,
    layout: Layout,
    nodes: Iterable[int],
    points: Iterable[tuple[float, float]],
    scrolled: tuple[float, float],
) -> set[int]:
    asked = [
        (node, _at(box, point, scrolled))
        for node in nodes
        if (box := layout.box[node]) is not None and box.right - box.left >= 1 and box.bottom - box.top >= 1
        for point in points
    ]
    answers = await every(send("DOM.getNodeForLocation", at) for _, at in asked)
    return {
        node
        for (node, _), answer in zip(asked, answers, strict=True)
        if not isinstance(answer, NoAnswer) and _answers_for(layout, node, answer)
    }


def _at(box: Box, point: tuple[float, float], scrolled: tuple[float, float]) -> dict[str, int]:
    # `getNodeForLocation` takes points of the page's document, in whole pixels.
    return {
        "x": int(box.left + (box.right - box.left) * point[0] + scrolled[0]),
        "y": int(box.top + (box.bottom - box.top) * point[1] + scrolled[1]),
    }


def _answers_for(layout: Layout, node: int, answer: Mapping[str, Any]) -> bool:
    if (hit := layout.index.get(answer.get("backendNodeId", -1))) is None:
        return False  # it came after the snapshot
    above = list(layout.ancestors(hit))
    if node in above:
        return True
    # The box that is drawn in place of a check box lies over it; both stand in the label that passes the click on.
    labels = {one for one in above if layout.tag[one] == "LABEL"}
    return bool(labels) and not labels.isdisjoint(layout.ancestors(node))
