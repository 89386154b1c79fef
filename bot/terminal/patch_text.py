"""Describes the binary files of a patch, and prints the patch without them."""

import re

# Lines of text in a diff begin with one of " +-\\@", so they never look like these headers.
_NEW_BINARY_FILE = re.compile(
    r"^diff --git (.+)\nnew file mode \d+\nindex .+\nGIT binary patch$", re.MULTILINE
)
_BINARY_HUNK = re.compile(r"^GIT binary patch\n(?:(?!diff --git ).*\n?)*?(?=diff --git |\Z)", re.MULTILINE)


def new_binary_files(diff: str) -> list[str]:
    """Returns the paths of the binary files that the patch adds, in git's notation."""
    # The header repeats the path: "a/PATH b/PATH", or both parts in quotes.
    halves = (header[: len(header) // 2].strip('"') for header in _NEW_BINARY_FILE.findall(diff))
    return [half.removeprefix("a/") for half in halves]


def hide_binary_hunks(diff: str) -> str:
    """Replaces the encoded content of binary files with a note. The result cannot be applied."""
    return _BINARY_HUNK.sub("(binary patch not shown)\n", diff)
