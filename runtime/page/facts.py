"""Accessibility facts about a page: all of them, or where that would be slow those of what the viewport shows."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from runtime.page.devtools import NoAnswer, Send, every
from runtime.page.layout import Layout
from runtime.page.tree import LONGEST_TEXT, MOST_OPTIONS, Facts

MOST_ASKED = 1_500  # elements of one viewport; each costs Chromium and us about 0.25 ms
MOST_TOGETHER = 60  # nodes of a subtree that is asked about at once
FEW = 400  # nodes; all facts about so few cost less than questions about each

_MUTE = frozenset(
    "DIV SPAN HTML BODY HEAD SCRIPT STYLE TBODY P B I U S EM STRONG SMALL CODE PRE SUB SUP BR FONT CENTER SLOT".split()
)
"""Elements that say nothing unless an attribute gives them a role."""

# What finds the focus through shadow roots and frames; where a page lies about it, only a flag is wrong.
_FOCUS = (
    "(() => { let e = document.activeElement; for (let i = 0; i < 20 && e; i++) { const inner = e.shadowRoot ?"
    " e.shadowRoot.activeElement : e.contentDocument ? e.contentDocument.activeElement : null;"
    " if (!inner) break; e = inner; } return e; })()"
)


def told_length(layout: Layout) -> int:
    """About how many characters the whole tree would have, from the layout alone."""
    length = 0
    for tag, text, box in zip(layout.tag, layout.text, layout.box, strict=True):
        if text:
            length += min(len(text), LONGEST_TEXT) + 14 if text.strip() else 0
        elif box is not None and tag not in _MUTE:
            length += 16
    return length


async def all_facts(send: Send, layout: Layout) -> Facts:
    """The facts of all frames. Raises NoAnswer when the page itself does not give them."""
    answers = await every(send("Accessibility.getFullAXTree", {"frameId": frame}) for frame in layout.frames)
    if answers and isinstance(first := answers[0], NoAnswer):
        raise first
    return Facts(
        _by_backend(answers), is_whole=True, unread=sum(isinstance(answer, NoAnswer) for answer in answers)
    )


async def facts_in_view(send: Send, layout: Layout) -> Facts:
    """The facts of what the viewport shows and of what has the focus; other nodes have none."""
    wanted = _in_view(layout)[:MOST_ASKED]
    # Never after `Accessibility.enable`: Chromium 156 hangs in it once a frame whose tree was asked for is removed;
    # and it keeps its tree for a moment anyway.
    focused, answers = await asyncio.gather(
        _focused(send), every(send(*question) for question in _questions(layout, wanted))
    )
    nodes = _by_backend(answers)
    if focused not in nodes and (node := layout.index.get(focused or 0)) is not None:
        nodes |= _by_backend(await every(send(*question) for question in _questions(layout, [node])))
    return Facts(nodes, is_whole=False)


def _by_backend(answers: Iterable[Mapping[str, Any] | NoAnswer]) -> dict[int, Mapping[str, Any]]:
    nodes: dict[int, Mapping[str, Any]] = {}
    for answer in answers:
        if not isinstance(answer, NoAnswer):
            for node in answer["nodes"]:
                if (backend := node.get("backendDOMNodeId")) is not None:
                    nodes.setdefault(backend, node)
    return nodes


def _in_view(layout: Layout) -> list[int]:
    found: list[int] = []
    for node, (tag, box) in enumerate(zip(layout.tag, layout.box, strict=True)):
        if tag == "#document":
            found.append(node)
        elif box is None or not box.is_seen or tag == "#text":
            continue
        elif tag not in _MUTE or node in layout.pointed or layout.has_attributes(node):
            found.append(node)
            if tag == "SELECT":
                found += _options(layout, node)
    return found


def _questions(layout: Layout, wanted: Iterable[int]) -> list[tuple[str, dict[str, Any]]]:
    """One question for each small subtree with much in it, such as a row of a table, and for each other node."""
    sizes = _sizes(layout)
    held = dict.fromkeys(wanted)
    within: dict[int, int] = {}  # the largest small subtree that a node lies in
    for node in held:
        for above in layout.ancestors(node):
            if sizes[above] > MOST_TOGETHER:
                break
            within[node] = above
    together = Counter(within.values())
    tops = dict.fromkeys(top for top, count in together.items() if count > 2)
    alone = [node for node in held if within.get(node) not in tops]
    return [
        *(("Accessibility.queryAXTree", {"backendNodeId": layout.backend[node]}) for node in tops),
        *(
            (
                "Accessibility.getPartialAXTree",
                {"backendNodeId": layout.backend[node], "fetchRelatives": False},
            )
            for node in alone
        ),
    ]


def _sizes(layout: Layout) -> list[int]:
    sizes = [1] * len(layout.tag)
    for node in range(len(sizes) - 1, 0, -1):
        if layout.tag[node] == "#document":
            sizes[node] = MOST_TOGETHER + 1  # an answer ends at the border of a frame
        if (above := layout.parent[node]) >= 0:
            sizes[above] += sizes[node]
    return sizes


def _options(layout: Layout, select: int) -> list[int]:
    inner = [child for group in layout.children[select] for child in (group, *layout.children[group])]
    return [node for node in inner if layout.tag[node] in ("OPTION", "OPTGROUP")][: MOST_OPTIONS + 1]


async def _focused(send: Send) -> int | None:
    asked = {"expression": _FOCUS, "throwOnSideEffect": True, "timeout": 500}
    try:
        answer = await send("Runtime.evaluate", asked)
        if (thing := answer["result"].get("objectId")) is None:
            return None
        described = await send("DOM.describeNode", {"objectId": thing})
        await send("Runtime.releaseObject", {"objectId": thing})
    except NoAnswer:
        return None
    node = described["node"].get("backendNodeId")
    return node if isinstance(node, int) else None
