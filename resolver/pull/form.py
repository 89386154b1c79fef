"""The repository's own pull request template: its headings kept, and filled where we have something to say."""

import re

from resolver.actions import Finish
from resolver.words.wording import quiet
from resolver.workspace import Workspace

# Source: docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests
PLACES = re.compile(r"(?:\.github/|docs/)?pull_request_template(?:\.md|\.txt)?", re.IGNORECASE)
MOST = 20_000  # characters of a template
HEADING = re.compile(r"^(?:#{1,6}\s+|\*\*)(?P<title>[^\n]*?)(?:\*\*)?:?\s*$", re.MULTILINE)
HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)

ABOUT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\b(?:{words})", re.IGNORECASE), field)
    for words, field in (
        ("test|check|verif|how has this been|qa\\b", "checked"),
        ("why|motivation|context|cause|problem|background|root", "cause"),
        ("what|descri|summar|change|solution|fix|proposed|overview|implement", "change"),
    )
)
"""Words in a heading, and what of the agent's account belongs under it; the first that matches counts."""


async def pull_form(workspace: Workspace) -> str:
    """The template at base; empty when there is none. One of several in a directory is nobody's default."""
    found = [one.path for one in await workspace.find(PLACES)]
    # As GitHub has it: .github goes before the root, and that before docs.
    found.sort(key=lambda path: (not path.lower().startswith(".github/"), path.count("/"), path))
    return (await workspace.read(found[0]) or "")[:MOST] if found else ""


def filled(form: str, account: Finish | None) -> str:
    """The template without its hidden hints, with the agent's words where a heading asks for them.

    A section that has words of its own is left as it is, and so is every box: they are for people to tick.
    """
    form = HIDDEN.sub("", form.replace("\r\n", "\n")).strip()
    if account is None or not form:
        return form
    headings = list(HEADING.finditer(form))
    begins = [*(heading.start() for heading in headings), len(form)]
    parts, told = [form[: begins[0]]], set[str]()
    for heading, end in zip(headings, begins[1:], strict=True):
        section = form[heading.end() : end]
        field = next((field for words, field in ABOUT if words.search(heading["title"])), None)
        if field is not None and field not in told and not section.strip():
            told.add(field)
            section = f"\n\n{quiet(getattr(account, field))}\n\n"
        parts += [heading[0], section]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()
