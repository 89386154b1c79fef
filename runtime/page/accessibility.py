"""Fetches the accessibility tree of a page. If the whole tree would take too long, fetches only its part in
the viewport.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from patchwright.runtime.page.devtools import DevToolsError, SendCommand, gather_answers
from patchwright.runtime.page.layout import PageLayout
from patchwright.runtime.page.tree_text import MAX_OPTIONS, MAX_TEXT, AccessibilityTree

MAX_QUERIED_NODES = 1_500  # maximum elements of one viewport that are queried; each costs about 0.25 ms
MAX_SUBTREE_NODES = 60  # maximum nodes of a subtree that one query fetches
# up to this many nodes of a page, fetching the whole tree takes less time than single queries
SMALL_PAGE_NODES = 400

_NEUTRAL_TAGS = frozenset(
    "DIV SPAN HTML BODY HEAD SCRIPT STYLE TBODY P B I U S EM STRONG SMALL CODE PRE SUB SUP BR FONT CENTER SLOT".split()
)
"""Elements without a meaning of their own. Only an attribute can give them a role."""

# Finds the focused element, even inside shadow roots and frames. A page can manipulate this script, but then
# only the flag `focused` is wrong.
_FIND_FOCUS_JS = (
    "(() => { let e = document.activeElement; for (let i = 0; i < 20 && e; i++) { const inner = e.shadowRoot ?"
    " e.shadowRoot.activeElement : e.contentDocument ? e.contentDocument.activeElement : null;"
    " if (!inner) break; e = inner; } return e; })()"
)


def estimate_tree_length(layout: PageLayout) -> int:
    """Estimate how many characters the text of the whole tree has. Uses only the layout."""
    length = 0
    for tag, text, box in zip(layout.tag, layout.text, layout.box, strict=True):
        if text:
            length += min(len(text), MAX_TEXT) + 14 if text.strip() else 0
        elif box is not None and tag not in _NEUTRAL_TAGS:
            length += 16
    return length


async def fetch_full_tree(send: SendCommand, layout: PageLayout) -> AccessibilityTree:
    """Fetch the trees of all frames. Raises DevToolsError if the main frame does not return its tree."""
    answers = await gather_answers(
        send("Accessibility.getFullAXTree", {"frameId": frame}) for frame in layout.frames
    )
    if answers and isinstance(first := answers[0], DevToolsError):
        raise first
    return AccessibilityTree(
        _index_by_backend_id(answers),
        is_complete=True,
        unread_frames=sum(isinstance(answer, DevToolsError) for answer in answers),
    )


async def fetch_tree_in_view(send: SendCommand, layout: PageLayout) -> AccessibilityTree:
    """Fetch the nodes in the viewport, and the focused node. The returned tree contains no other nodes."""
    wanted = _find_nodes_in_view(layout)[:MAX_QUERIED_NODES]
    # This does not call `Accessibility.enable`. After that call, Chromium 156 hangs if a frame whose tree was
    # queried is removed. Chromium caches the tree for a moment even without the call.
    focused, answers = await asyncio.gather(
        _find_focused_node(send),
        gather_answers(send(*question) for question in _build_queries(layout, wanted)),
    )
    nodes = _index_by_backend_id(answers)
    if focused not in nodes and (node := layout.node_by_backend_id.get(focused or 0)) is not None:
        nodes |= _index_by_backend_id(
            await gather_answers(send(*question) for question in _build_queries(layout, [node]))
        )
    return AccessibilityTree(nodes, is_complete=False)


def _index_by_backend_id(
    answers: Iterable[Mapping[str, Any] | DevToolsError],
) -> dict[int, Mapping[str, Any]]:
    nodes: dict[int, Mapping[str, Any]] = {}
    for answer in answers:
        if not isinstance(answer, DevToolsError):
            for node in answer["nodes"]:
                if (backend := node.get("backendDOMNodeId")) is not None:
                    nodes.setdefault(backend, node)
    return nodes


def _find_nodes_in_view(layout: PageLayout) -> list[int]:
    found: list[int] = []
    for node, (tag, box) in enumerate(zip(layout.tag, layout.box, strict=True)):
        if tag == "#document":
            found.append(node)
        elif box is None or not box.has_area or tag == "#text":
            continue
        elif tag not in _NEUTRAL_TAGS or node in layout.clickable or layout.has_semantic_attributes(node):
            found.append(node)
            if tag == "SELECT":
                found += _find_option_nodes(layout, node)
    return found


def _build_queries(layout: PageLayout, nodes: Iterable[int]) -> list[tuple[str, dict[str, Any]]]:
    """Group the nodes into queries. If a small subtree (such as a table row) contains many of the nodes, one
    query fetches it. Each other node has a query of its own.
    """
    sizes = _subtree_sizes(layout)
    held = dict.fromkeys(nodes)
    within: dict[int, int] = {}  # for each node, the largest small subtree that contains it
    for node in held:
        for above in layout.ancestors(node):
            if sizes[above] > MAX_SUBTREE_NODES:
                break
            within[node] = above
    together = Counter(within.values())
    tops = dict.fromkeys(top for top, count in together.items() if count > 2)
    alone = [node for node in held if within.get(node) not in tops]
    return [
        *(("Accessibility.queryAXTree", {"backendNodeId": layout.backend_id[node]}) for node in tops),
        *(
            (
                "Accessibility.getPartialAXTree",
                {"backendNodeId": layout.backend_id[node], "fetchRelatives": False},
            )
            for node in alone
        ),
    ]


def _subtree_sizes(layout: PageLayout) -> list[int]:
    sizes = [1] * len(layout.tag)
    for node in range(len(sizes) - 1, 0, -1):
        if layout.tag[node] == "#document":
            sizes[node] = MAX_SUBTREE_NODES + 1  # a query does not continue in another frame
        if (above := layout.parent[node]) >= 0:
            sizes[above] += sizes[node]
    return sizes


def _find_option_nodes(layout: PageLayout, select: int) -> list[int]:
    inner = [child for group in layout.children[select] for child in (group, *layout.children[group])]
    return [node for node in inner if layout.tag[node] in ("OPTION", "OPTGROUP")][: MAX_OPTIONS + 1]


async def _find_focused_node(send: SendCommand) -> int | None:
    params = {"expression": _FIND_FOCUS_JS, "throwOnSideEffect": True, "timeout": 500}
    try:
        response = await send("Runtime.evaluate", params)
        if (object_id := response["result"].get("objectId")) is None:
            return None
        described = await send("DOM.describeNode", {"objectId": object_id})
        await send("Runtime.releaseObject", {"objectId": object_id})
    except DevToolsError:
        return None
    node = described["node"].get("backendNodeId")
    return node if isinstance(node, int) else None
