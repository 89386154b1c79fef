"""How branches are named: by a template of the operator's or of the repository's, below the operator's prefix."""

import re
import string
import unicodedata

PLACEHOLDERS = ("number", "slug", "run")
SLUG = 40  # characters of a title in a branch's name

# Source: git check-ref-format(1); `@` alone and a leading `-` git forbids for branches.
_WRONG = re.compile(r"\.\.|//|@\{|[\x00-\x20\x7f~^:?*\[\\]|^[-/]|^@$|[/.]$|(^|/)\.|\.lock(/|$)")


def is_branch_name(name: str) -> bool:
    """Whether git takes it as the name of a branch."""
    return 0 < len(name.encode(errors="replace")) <= 200 and _WRONG.search(name) is None


def checked(template: str) -> str:
    """The template itself. Raises ValueError when it could name no branch, or one for all issues."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        parts = [("", "", None, None)]
    fields = {name for _, name, *_ in parts if name is not None}
    if fields - set(PLACEHOLDERS) or any(form or convert for *_, form, convert in parts):
        raise ValueError("it may name {number}, {slug} and {run} and nothing else in braces")
    if not fields & {"number", "run"}:
        raise ValueError("it must name {number} or {run}: every issue needs a branch of its own")
    if not is_branch_name(named := template.format(**dict.fromkeys(PLACEHOLDERS, "1"))):
        raise ValueError(f"git takes no branch of the name {named}")
    return template


def branch_names(template: str, prefix: str, number: int, title: str, run: str) -> tuple[str, str]:
    """The branch that is wanted, and the one to take when that is somebody else's."""
    short = _plain(run)[-8:].strip("-") or "run"
    name = prefix + template.format(number=number, slug=slug(title), run=short)
    return name, f"{name}-{short}"


def slug(title: str) -> str:
    """A title as a part of a branch's name: `fix-the-sum`."""
    words = _plain(title).split("-")
    while len("-".join(words)) > SLUG and len(words) > 1:
        words.pop()
    return "-".join(words)[:SLUG].strip("-") or "change"


def _plain(text: str) -> str:
    known = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", known).strip("-")
