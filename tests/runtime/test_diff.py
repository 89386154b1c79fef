from difflib import unified_diff

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchwright.runtime.diff import describe_place, format_diff

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
    ("old", "new", "place"),
    [
        ("1\n2\n3\n4\n5\n6\n", "1\n2\n3\nx\n5\n6\n", "line 4 of 6"),
        ("1\n2\n", "1\n2\n3\n4\n", "lines 3-4 of 4"),
        ("1\n2\n3\n4\n5\n6\n", "1\n2\n3\n6\n", "removed after line 3 of 4"),
        ("", "1\n2\n", "lines 1-2 of 2"),
        ("1\n", "", "now empty"),
        ("1", "1\n", "the line break at its end"),
    ],
)
def test_the_place_of_a_change_is_named(old: str, new: str, place: str) -> None:
    assert describe_place(old, new) == place


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
