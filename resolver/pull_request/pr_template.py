"""Fills in the repository's pull request template and keeps its headings."""

import re

from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.rendering.filters import neutralize
from patchwright.resolver.tool_actions.control_actions import Finish

# Source: docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests
TEMPLATE_PATHS = re.compile(r"(?:\.github/|docs/)?pull_request_template(?:\.md|\.txt)?", re.IGNORECASE)
MAX_LENGTH = 20_000  # characters of a template
HEADING = re.compile(r"^(?:#{1,6}\s+|\*\*)(?P<title>[^\n]*?)(?:\*\*)?:?\s*$", re.MULTILINE)
HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)

HEADING_FIELDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\b(?:{words})", re.IGNORECASE), field)
    for words, field in (
        ("test|check|verif|how has this been|qa\\b", "testing"),
        ("why|motivation|context|cause|problem|background|root", "cause"),
        ("what|descri|summar|change|solution|fix|proposed|overview|implement", "change"),
    )
)
"""Each pair contains a pattern for headings, and the field of the agent's report that is inserted below a matching
heading. The first pattern that matches a heading is used.
"""


async def load_pr_template(workspace: Workspace) -> str:
    """Returns the template at the base commit, or an empty string if there is none. If a directory contains
    several templates, none of them is used.
    """
    paths = [entry.path for entry in await workspace.find_entries(TEMPLATE_PATHS)]
    # GitHub prefers a template in .github to one in the root, and one in the root to one in docs.
    paths.sort(key=lambda path: (not path.lower().startswith(".github/"), path.count("/"), path))
    return (await workspace.read(paths[0]) or "")[:MAX_LENGTH] if paths else ""


def fill_pr_template(template: str, finish: Finish | None) -> str:
    """Inserts the parts of the agent's report under the matching headings of the template. Removes the
    template's HTML comments.

    Sections that already contain text stay unchanged. Checkboxes also stay unchanged, because people must
    tick them.
    """
    template = HTML_COMMENT.sub("", template.replace("\r\n", "\n")).strip()
    if finish is None or not template:
        return template
    headings = list(HEADING.finditer(template))
    starts = [*(heading.start() for heading in headings), len(template)]
    parts, filled = [template[: starts[0]]], set[str]()
    for heading, end in zip(headings, starts[1:], strict=True):
        section = template[heading.end() : end]
        field = next((field for pattern, field in HEADING_FIELDS if pattern.search(heading["title"])), None)
        if field is not None and field not in filled and not section.strip():
            filled.add(field)
            section = f"\n\n{neutralize(getattr(finish, field))}\n\n"
        parts += [heading[0], section]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()
