"""Finds the elements that a click would reach. Asks Chromium which element is at a point."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from patchwright.runtime.page.devtools import DevToolsError, SendCommand, gather_answers
from patchwright.runtime.page.layout import Box, PageLayout

# maximum number of elements in a viewport that are tested; if there are more, the others get no marks
MAX_TESTED = 300

CENTER = ((0.5, 0.5),)
OFF_CENTER = ((0.2, 0.3), (0.8, 0.3), (0.2, 0.7), (0.8, 0.7))
"""Further points of an element, which are tested if a click on its center would not reach the element.
Examples of such elements are a link that spans two lines, and a card with a button in its center.
"""


async def find_reachable_nodes(
    send: SendCommand, layout: PageLayout, nodes: Sequence[int], scroll_offset: tuple[float, float]
) -> set[int]:
    """Return the nodes that a click can reach. Tests the center of each node first, and then the points in
    OFF_CENTER.

    `scroll_offset` is how far the page is scrolled.
    """
    found = await _test_points(send, layout, nodes, CENTER, scroll_offset)
    rest = [node for node in nodes if node not in found]
    return found | await _test_points(send, layout, rest, OFF_CENTER, scroll_offset)


async def _test_points(
    send: SendCommand,
    layout: PageLayout,
    nodes: Iterable[int],
    points: Iterable[tuple[float, float]],
    scroll_offset: tuple[float, float],
) -> set[int]:
    queries = [
        (node, _page_point(box, point, scroll_offset))
        for node in nodes
        if (box := layout.box[node]) is not None and box.right - box.left >= 1 and box.bottom - box.top >= 1
        for point in points
    ]
    answers = await gather_answers(send("DOM.getNodeForLocation", at) for _, at in queries)
    return {
        node
        for (node, _), answer in zip(queries, answers, strict=True)
        if not isinstance(answer, DevToolsError) and _is_hit(layout, node, answer)
    }


def _page_point(box: Box, point: tuple[float, float], scroll_offset: tuple[float, float]) -> dict[str, int]:
    # `getNodeForLocation` takes points of the page's document, in whole pixels.
    return {
        "x": int(box.left + (box.right - box.left) * point[0] + scroll_offset[0]),
        "y": int(box.top + (box.bottom - box.top) * point[1] + scroll_offset[1]),
    }


def _is_hit(layout: PageLayout, node: int, answer: Mapping[str, Any]) -> bool:
    if (hit := layout.node_by_backend_id.get(answer.get("backendNodeId", -1))) is None:
        return False  # the element was created after the layout snapshot
    above = list(layout.ancestors(hit))
    if node in above:
        return True
    # A box with a custom style may cover the check box that it replaces. Both are in one label, which passes
    # the click on to the check box.
    labels = {one for one in above if layout.tag[one] == "LABEL"}
    return bool(labels) and not labels.isdisjoint(layout.ancestors(node))
