from difflib import unified_diff

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchwright.runtime.diff import format_diff, format_excerpt

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


@settings(max_examples=200, deadline=None)
@given(LINES, LINES)
def test_a_diff_turns_the_old_text_into_the_new_one(old: list[str], new: list[str]) -> None:
    before, after = [line + "\n" for line in old], [line + "\n" for line in new]
    diff = format_diff("".join(before), "".join(after), "f")
    assert patched(before, diff) == after


def test_a_simple_diff_equals_that_of_difflib() -> None:
    old = [f"{n}\n" for n in range(40)]
    new = [*old[:5], "five\n", *old[6:20], *old[22:], "end\n"]
    theirs = "".join(unified_diff(old, new, "a/f", "b/f"))
    assert format_diff("".join(old), "".join(new), "f") == theirs


@pytest.mark.parametrize(
    ("old", "new", "excerpt", "place"),
    [
        ("1\n2\n3\n4\n5\n6\n", "1\n2\n3\nx\n5\n6\n", "2 3 x 5 6", "line 4 of 6"),
        ("1\n2\n", "1\n2\n3\n4\n", "1 2 3 4", "lines 3-4 of 4"),
        ("1\n2\n3\n4\n5\n6\n", "1\n2\n3\n6\n", "2 3 6", "removed after line 3 of 4"),
        ("a\nb\n", "a\n1\n2\n3\n4\n5\n6\n7\nb\n", "a 1 ... 7 b", "lines 2-8 of 9"),
        ("", "1\n2\n", "", "lines 1-2 of 2"),
        ("1\n", "", "", "now empty"),
        ("1", "1\n", "", "the line break at its end"),
    ],
)
def test_an_excerpt_shows_the_new_lines_with_two_lines_of_context(
    old: str, new: str, excerpt: str, place: str
) -> None:
    shown, where = format_excerpt(old, new)
    assert (" ".join(line.split("\t")[-1].strip() for line in shown.splitlines()), where) == (excerpt, place)


def test_the_lines_of_an_excerpt_have_their_numbers() -> None:
    assert format_excerpt("a\nb\n", "a\nc\n")[0] == "1\ta\n2\tc\n"


def test_no_change_has_no_diff() -> None:
    assert format_diff("a\nb", "a\nb", "f") == ""


@pytest.mark.parametrize(
    ("old", "new", "body"),
    [
        ("a", "a\n", "-a\n\\ No newline at end of file\n+a\n"),
        ("", "a\n", "+a\n"),
        ("a\n", "", "-a\n"),
    ],
)
def test_a_missing_newline_is_shown(old: str, new: str, body: str) -> None:
    assert format_diff(old, new, "f").split("@@\n")[1] == body


def test_a_long_rewritten_stretch_is_quick() -> None:
    old, new = "".join(f"{n}\n" for n in range(30_000)), "".join(f"{n} \n" for n in range(30_000))
    assert format_diff(old, new, "f").count("\n") == 60_003


def patched(lines: list[str], diff: str) -> list[str]:
    """Apply a diff as `patch` does."""
    result, at = [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        if line.startswith("@@"):
            start, _, length = line.split()[1][1:].partition(",")
            here = int(start) - (length != "0")
            result += lines[at:here]
            at = here
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert lines[at] == line[1:]
            result += [line[1:]] if line[0] == " " else []
            at += 1
    return result + lines[at:]
