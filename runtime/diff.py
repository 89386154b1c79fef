"""Creates unified diffs in the format of difflib. Faster than difflib for long files with few changes."""

from collections.abc import Iterator
from difflib import SequenceMatcher

CONTEXT_LINES = 3  # Number of unchanged lines around a change.
EXCERPT_CONTEXT = 2  # Number of unchanged lines around a change in an excerpt.
MAX_EXCERPT_LINES = 6  # Maximum number of changed lines that an excerpt shows completely.
MAX_EXCERPT_WIDTH = 300  # Maximum characters of a line in an excerpt.
# Maximum lines of a changed part for difflib, whose time is quadratic. A longer part is shown as completely
# removed and added.
_MAX_DIFFLIB_LINES = 2000

_Opcode = tuple[str, int, int, int, int]


def format_diff(old: str, new: str, name: str) -> str:
    """Return a diff in the format of `diff -u`, or "" if the texts are equal."""
    before, after = _split_lines(old), _split_lines(new)
    hunks = [line for group in _diff_groups(before, after) for line in _format_hunk(group, before, after)]
    return "".join([f"--- a/{name}\n", f"+++ b/{name}\n", *hunks]) if hunks else ""


def format_excerpt(old: str, new: str) -> tuple[str, str]:
    """Return the changed lines of a text as they are now, and where they are, such as `lines 3-5 of 40`.

    The excerpt has line numbers and two lines of context. Of many changed lines, only the first and the last are
    shown. It is empty if the whole text is new, because its author knows it.
    """
    before, after = old.split("\n"), new.split("\n")
    for lines in (before, after):
        if not lines[-1]:
            lines.pop()
    start = _common_prefix_length(before, after)
    rest = min(len(before), len(after)) - start
    end = len(after) - min(rest, _common_prefix_length(before[start:][::-1], after[start:][::-1]))
    if not after:
        return "", "now empty"
    if before == after:
        return "", "the line break at its end"
    place = f"line {end}" if end == start + 1 else f"lines {start + 1}-{end}"
    if end == start:
        place = f"removed after line {start}"
    place += f" of {len(after)}"
    if not before:
        return "", place
    shown = [*range(max(0, start - EXCERPT_CONTEXT), min(len(after), end + EXCERPT_CONTEXT))]
    omitted = range(start + 1, end - 1) if end - start > MAX_EXCERPT_LINES else range(0)
    rows = [
        f"{number + 1:6}\t{after[number][:MAX_EXCERPT_WIDTH]}\n" for number in shown if number not in omitted
    ]
    if omitted:
        rows.insert(start + 1 - shown[0], "   ...\n")
    return "".join(rows), place


def _split_lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()
    return lines if last == "\n" else [*lines, last + "\\ No newline at end of file\n"]


def _diff_groups(before: list[str], after: list[str]) -> Iterator[list[_Opcode]]:
    start = _common_prefix_length(before, after)
    rest = min(len(before), len(after)) - start
    end = min(rest, _common_prefix_length(before[start:][::-1], after[start:][::-1]))
    i, j = len(before) - end, len(after) - end
    if start == i and start == j:
        return
    if i + j - 2 * start > _MAX_DIFFLIB_LINES:
        middle: list[_Opcode] = [("replace", start, i, start, j)]
    else:
        matcher = SequenceMatcher(None, before[start:i], after[start:j], autojunk=False)
        middle = [
            (tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in matcher.get_opcodes()
        ]
    codes: list[_Opcode] = [("equal", 0, start, 0, start), *middle, ("equal", i, len(before), j, len(after))]
    yield from _group_hunks(codes)


def _common_prefix_length(left: list[str], right: list[str]) -> int:
    return next(
        (index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


def _group_hunks(opcodes: list[_Opcode]) -> Iterator[list[_Opcode]]:
    """Group the changes into hunks with their context lines. Changes that are close to each other are in the
    same hunk.
    """
    group: list[_Opcode] = []
    for index, (tag, a, b, c, d) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        if group and (b - a > 2 * CONTEXT_LINES or index == len(opcodes) - 1):
            yield [*group, (tag, a, min(b, a + CONTEXT_LINES), c, min(d, c + CONTEXT_LINES))]
            group = []
        elif group:
            group.append((tag, a, b, c, d))
        if not group:
            group = (
                [(tag, max(a, b - CONTEXT_LINES), b, max(c, d - CONTEXT_LINES), d)]
                if index < len(opcodes) - 1
                else []
            )


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
