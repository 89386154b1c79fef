"""Creates unified diffs in the format of difflib. Faster than difflib for long files with few changes."""

from collections.abc import Iterator
from difflib import SequenceMatcher

CONTEXT_LINES = 3  # Number of unchanged lines around a change.
# Maximum lines of a changed part for difflib, whose time is quadratic. A longer part is shown as completely
# removed and added.
_MAX_DIFFLIB_LINES = 2000

_Opcode = tuple[str, int, int, int, int]


def format_diff(old: str, new: str, name: str) -> str:
    """Return a diff in the format of `diff -u`, or "" if the texts are equal."""
    before, after = _split_lines(old), _split_lines(new)
    if before == after:
        return ""
    groups = _TrimmedMatcher(before, after).get_grouped_opcodes(CONTEXT_LINES)
    hunks = [line for group in groups for line in _format_hunk(group, before, after)]
    return "".join([f"--- a/{name}\n", f"+++ b/{name}\n", *hunks])


def describe_place(old: str, new: str) -> str:
    """Return which lines of the new text have changed, such as `lines 3-5 of 40`."""
    before, after = old.split("\n"), new.split("\n")
    for lines in (before, after):
        if not lines[-1]:
            lines.pop()
    start, same_at_end = _common_ends(before, after)
    end = len(after) - same_at_end
    if not after:
        return "now empty"
    if before == after:
        return "the line break at its end"
    place = f"line {end}" if end == start + 1 else f"lines {start + 1}-{end}"
    if end == start:
        place = f"removed after line {start}"
    return f"{place} of {len(after)}"


def _split_lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()
    return lines if last == "\n" else [*lines, last + "\\ No newline at end of file\n"]


class _TrimmedMatcher(SequenceMatcher[str]):
    """Compares only the lines between the common beginning and the common end."""

    def __init__(self, before: list[str], after: list[str]) -> None:
        super().__init__(None, autojunk=False)
        self._lines = before, after

    def get_opcodes(self) -> list[_Opcode]:  # type: ignore[override]  # The standard library returns literals.
        before, after = self._lines
        start, end = _common_ends(before, after)
        i, j = len(before) - end, len(after) - end
        if i + j - 2 * start > _MAX_DIFFLIB_LINES:
            middle: list[_Opcode] = [("replace", start, i, start, j)]
        else:
            self.set_seqs(before[start:i], after[start:j])
            middle = [
                (tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in super().get_opcodes()
            ]
        return [("equal", 0, start, 0, start), *middle, ("equal", i, len(before), j, len(after))]


def _common_ends(left: list[str], right: list[str]) -> tuple[int, int]:
    """Return the number of common lines at the beginning, and of other common lines at the end."""
    start = _common_prefix_length(left, right)
    return start, _common_prefix_length(left[start:][::-1], right[start:][::-1])


def _common_prefix_length(left: list[str], right: list[str]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))


def _format_hunk(group: list[_Opcode], before: list[str], after: list[str]) -> Iterator[str]:
    a, b, c, d = group[0][1], group[-1][2], group[0][3], group[-1][4]
    yield f"@@ -{_format_range(a, b)} +{_format_range(c, d)} @@\n"
    for tag, i, j, k, m in group:
        if tag == "equal":
            yield from (" " + line for line in before[i:j])
        else:
            yield from ("-" + line for line in before[i:j])
            yield from ("+" + line for line in after[k:m])


def _format_range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + 1 if length else start},{length}"
