"""Creates permalinks to lines of code: for code references in a comment, and for the conditions of a verdict."""

import re
from urllib.parse import quote

from patchwright.resolver.domain import Verdict
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
    if not (tree := _tree_url(started, started.base_sha)):
        return text
    return "".join(
        _link(text[span.start : span.end], tree) if span.kind == "code" else text[span.start : span.end]
        for span in parse_spans(text)
    )


def link_conditions(verdict: Verdict, started: RunStarted, commit: str) -> Verdict:
    """Adds links to the conditions of a verdict. `commit` is the pushed commit with the patch. Lines that the
    patch removes are linked in the base version.
    """
    trees = {"base": _tree_url(started, started.base_sha), "patch": _tree_url(started, commit)}
    conditions = []
    for condition in verdict.conditions:
        if condition.path and (tree := trees[condition.version]):
            url = f"{tree}/{quote(condition.path)}"
            if condition.lines:
                first, last = condition.lines
                url += f"#L{first}-L{last}" if last > first else f"#L{first}"
            condition = condition.model_copy(update={"url": url})
        conditions.append(condition)
    return verdict.model_copy(update={"conditions": tuple(conditions)})


def _tree_url(started: RunStarted, commit: str) -> str:
    """Returns the URL of a commit's files. Returns an empty text for a local repository, which has no URL."""
    if not started.source.startswith(("https://", "http://")):
        return ""
    return f"{started.source.removesuffix('.git')}/blob/{commit}"


def _link(code: str, tree: str) -> str:
    match = _CODE_REFERENCE.fullmatch(code)
    if match is None or ".." in match["path"].split("/"):
        return code
    last = f"-L{match['last']}" if match["last"] else ""
    return f"[{code}]({tree}/{match['path']}#L{match['first']}{last})"
