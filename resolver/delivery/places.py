"""Places in the code that a comment names, as links to the lines that they name."""

import re

from resolver.events import Started
from resolver.words.spans import spans_of

_PLACE = re.compile(r"`(?P<path>[\w.+-][\w./+-]*):(?P<first>[1-9]\d{0,6})(?:-(?P<last>[1-9]\d{0,6}))?`")


def linked(text: str, started: Started) -> str:
    """The text, where each code span that is `path:line` or `path:line-line` leads to it at the run's commit.

    Where the repository was taken from a disk, there is nowhere to lead. Whether there is such a line is not looked up.
    """
    if not started.source.startswith(("https://", "http://")):
        return text
    tree = f"{started.source.removesuffix('.git')}/blob/{started.base}"
    return "".join(
        _link(text[span.start : span.end], tree) if span.kind == "code" else text[span.start : span.end]
        for span in spans_of(text)
    )


def _link(code: str, tree: str) -> str:
    found = _PLACE.fullmatch(code)
    if found is None or ".." in found["path"].split("/"):
        return code
    last = f"-L{found['last']}" if found["last"] else ""
    return f"[{code}]({tree}/{found['path']}#L{found['first']}{last})"
