"""Describes the binary files of a patch, and prints the patch without them."""

import re

# Lines of text in a diff begin with one of " +-\\@", so they never look like these headers.
_NEW_BINARY_FILE = re.compile(
    r"^diff --git (.+)\nnew file mode \d+\nindex .+\nGIT binary patch$", re.MULTILINE
)
_BINARY_HUNK = re.compile(r"^GIT binary patch\n(?:(?!diff --git ).*\n?)*?(?=diff --git |\Z)", re.MULTILINE)


def new_binary_files(diff: str) -> list[str]:
    r"""Returns the paths of the binary files that the patch adds. Bytes that are not UTF-8 are shown as
    `\xNN`.
    """
    # The header repeats the path: "a/PATH b/PATH", or both parts in quotes.
    halves = (header[: len(header) // 2] for header in _NEW_BINARY_FILE.findall(diff))
    return [_unquote(half).removeprefix("a/") for half in halves]


def _unquote(path: str) -> str:
    """Decodes a path that git has quoted like a string in C. Other paths are returned unchanged."""
    if not path.startswith('"'):
        return path
    escaped = path[1:-1].encode("utf-8", "surrogateescape")
    return escaped.decode("unicode_escape").encode("latin-1").decode("utf-8", "backslashreplace")


def hide_binary_hunks(diff: str) -> str:
    """Replaces the encoded content of binary files with a note. The result cannot be applied."""
    return _BINARY_HUNK.sub("(binary patch not shown)\n", diff)
