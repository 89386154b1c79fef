"""Turns code references in a comment into permalinks."""

import re

from patchwright.resolver.events import RunStarted
from patchwright.resolver.text.markdown import parse_spans

_CODE_REFERENCE = re.compile(
    r"`(?P<path>[\w.+-][\w./+-]*):(?P<first>[1-9]\d{0,6})(?:-(?P<last>[1-9]\d{0,6}))?`"
)


def add_permalinks(text: str, started: RunStarted) -> str:
    """Turns each inline code span of the form `path:line` or `path:line-line` into a link to these lines at
    the run's commit.

    References to a local repository are not linked, because it has no URL. The function does not check
    whether the lines exist.
    """
    if not started.source.startswith(("https://", "http://")):
        return text
    tree = f"{started.source.removesuffix('.git')}/blob/{started.base_sha}"
    return "".join(
        _link(text[span.start : span.end], tree) if span.kind == "code" else text[span.start : span.end]
        for span in parse_spans(text)
    )


def _link(code: str, tree: str) -> str:
    match = _CODE_REFERENCE.fullmatch(code)
    if match is None or ".." in match["path"].split("/"):
        return code
    last = f"-L{match['last']}" if match["last"] else ""
    return f"[{code}]({tree}/{match['path']}#L{match['first']}{last})"
