"""Builds branch names from a prefix and a template. The operator sets the prefix, and the repository the template."""

import re
import string
import unicodedata

DEFAULT_TEMPLATE = "issue-{number}"
PLACEHOLDERS = ("number", "slug", "run")
MAX_SLUG_LENGTH = 40  # characters of the title in a branch name

# Source: git check-ref-format(1). Git also forbids branches named `@` and branches that start with `-`.
_INVALID_NAME = re.compile(r"\.\.|//|@\{|[\x00-\x20\x7f~^:?*\[\\]|^[-/]|^@$|[/.]$|(^|/)\.|\.lock(/|$)")


def is_branch_name(name: str) -> bool:
    """Returns True if git accepts the name for a branch."""
    return 0 < len(name.encode(errors="replace")) <= 200 and _INVALID_NAME.search(name) is None


def validate_template(template: str) -> str:
    """Checks a template for branch names, and returns it unchanged. Raises ValueError if it would produce
    invalid names, or the same name for all issues.
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        parts = [("", "", None, None)]
    fields = {name for _, name, *_ in parts if name is not None}
    if fields - set(PLACEHOLDERS) or any(spec or conversion for *_, spec, conversion in parts):
        raise ValueError("the only placeholders are {number}, {slug} and {run}")
    if not fields & {"number", "run"}:
        raise ValueError("the name must contain {number} or {run}, so that every issue gets its own branch")
    if not is_branch_name(name := template.format(**dict.fromkeys(PLACEHOLDERS, "1"))):
        raise ValueError(f"{name} is not a valid branch name")
    return template


def make_branch_names(template: str, prefix: str, number: int, title: str, run: str) -> tuple[str, str]:
    """Returns the preferred branch name and an alternative name. The alternative is used if the preferred
    branch contains other work.
    """
    short = _to_ascii_words(run)[-8:].strip("-") or "run"
    name = prefix + template.format(number=number, slug=slugify(title), run=short)
    return name, f"{name}-{short}"


def slugify(title: str) -> str:
    """Converts a title to a part of a branch name, such as `fix-the-sum`."""
    words = _to_ascii_words(title).split("-")
    while len("-".join(words)) > MAX_SLUG_LENGTH and len(words) > 1:
        words.pop()
    return "-".join(words)[:MAX_SLUG_LENGTH].strip("-") or "change"


def _to_ascii_words(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-")
