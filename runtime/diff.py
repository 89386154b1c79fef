"""Unified diff of two texts that differ in few places: as difflib's, but quick for long files."""

from collections.abc import Iterator
from difflib import SequenceMatcher

CONTEXT = 3  # lines
_CLOSE = 2000  # lines; difflib is quadratic, so a longer stretch is shown as removed and added whole

_Opcode = tuple[str, int, int, int, int]


def unified(old: str, new: str, name: str) -> str:
    """What `diff -u` would print; empty when nothing changed."""
    before, after = _lines(old), _lines(new)
    hunks = [line for group in _groups(before, after) for line in _hunk(group, before, after)]
    return "".join([f"--- a/{name}\n", f"+++ b/{name}\n", *hunks]) if hunks else ""


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()
    return lines if last == "\n" else [*lines, last + "\\ No newline at end of file\n"]


def _groups(before: list[str], after: list[str]) -> Iterator[list[_Opcode]]:
    start = _common(before, after)
    rest = min(len(before), len(after)) - start
    end = min(rest, _common(before[start:][::-1], after[start:][::-1]))
    i, j = len(before) - end, len(after) - end
    if start == i and start == j:
        return
    if i + j - 2 * start > _CLOSE:
        middle: list[_Opcode] = [("replace", start, i, start, j)]
    else:
        matcher = SequenceMatcher(None, before[start:i], after[start:j], autojunk=False)
        middle = [
            (tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in matcher.get_opcodes()
        ]
    codes: list[_Opcode] = [("equal", 0, start, 0, start), *middle, ("equal", i, len(before), j, len(after))]
    yield from _near(codes)


def _common(left: list[str], right: list[str]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


def _near(codes: list[_Opcode]) -> Iterator[list[_Opcode]]:
    """Changes with their context; two that are close share a hunk."""
    group: list[_Opcode] = []
    for at, (tag, a, b, c, d) in enumerate(codes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        if group and (b - a > 2 * CONTEXT or at == len(codes) - 1):
            yield [*group, (tag, a, min(b, a + CONTEXT), c, min(d, c + CONTEXT))]
            group = []
        elif group:
            group.append((tag, a, b, c, d))
        if not group:
            group = [(tag, max(a, b - CONTEXT), b, max(c, d - CONTEXT), d)] if at < len(codes) - 1 else []


def _hunk(group: list[_Opcode], before: list[str], after: list[str]) -> Iterator[str]:
    a, b, c, d = group[0][1], group[-1][2], group[0][3], group[-1][4]
    yield f"@@ -{_range(a, b)} +{_range(c, d)} @@\n"
    for tag, i, j, k, m in group:
        if tag == "equal":
            yield from (" " + line for line in before[i:j])
        else:
            yield from ("-" + line for line in before[i:j])
            yield from ("+" + line for line in after[k:m])


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + 1 if length else start},{length}"
