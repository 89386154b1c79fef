from pathlib import Path

import pytest

from patchwright.runtime.actions import CreateFile, InsertText, ReplaceText, UndoEdit, ViewFile
from patchwright.runtime.execution.editor import Editor
from patchwright.runtime.path_guard import PathGuard, ToolInputError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def editor(root: Path) -> Editor:
    return Editor(PathGuard(root, root.parent / "scratch"))


def test_a_window_is_limited_in_characters(editor: Editor, root: Path) -> None:
    (root / "wide.txt").write_text(("x" * 9_990 + "\n") * 10)
    text = editor.view(ViewFile(path="wide.txt", start=2)).text
    assert len(text) < 31_000
    assert text.endswith("[lines 2-4 of 10; the next are 5-10]")


def test_one_enormous_line_is_shown_in_part_with_a_way_to_the_rest(editor: Editor, root: Path) -> None:
    (root / "min.js").write_text("y" * 100_000 + "\nend\n")
    text = editor.view(ViewFile(path="min.js")).text
    assert "[the first 30,000 of 100,000 characters of this line; to see more of it, use " in text
    assert "use sed -n 1p min.js | cut -c30001-60000]\n" in text
    assert text.endswith("[lines 1-1 of 2; the next are 2-2]")


def test_lines_are_counted_as_grep_counts_them(editor: Editor, root: Path) -> None:
    (root / "odd.txt").write_text("a\x0cb\u2028c\nd")
    assert editor.view(ViewFile(path="odd.txt", numbers=True)).text.startswith("1\ta\x0cb\u2028c\n2\td\n")


def test_lines_have_numbers_only_on_request(editor: Editor, root: Path) -> None:
    (root / "tabs").write_text("\ta\nb\n")
    shown, numbered = (editor.view(ViewFile(path="tabs", numbers=numbers)).text for numbers in (False, True))
    assert shown == "\ta\nb\n[lines 1-2 of 2: the end of the file]"
    assert numbered == "1\t\ta\n2\tb\n[lines 1-2 of 2: the end of the file]"


def test_an_empty_file_and_an_empty_range_are_reported(editor: Editor, root: Path) -> None:
    (root / "empty").touch()
    assert editor.view(ViewFile(path="empty")).text == "[the file is empty]"
    (root / "two").write_text("1\n2\n")
    with pytest.raises(ToolInputError, match="has only 2 lines, so start cannot be 3"):
        editor.view(ViewFile(path="two", start=3))
    with pytest.raises(ToolInputError, match="before start"):
        editor.view(ViewFile(path="two", start=2, end=1))


def test_a_directory_shows_two_levels_and_counts_the_omitted_entries(editor: Editor, root: Path) -> None:
    for path in (".git/config", "src/pkg/deep.py", "src/top.py", "node_modules/x/y.js"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "link").symlink_to("/etc")
    assert editor.view(ViewFile(path=".")).text == (
        "./\n  .git/ (not listed)\n  link -> /etc\n  node_modules/ (not listed)\n  src/\n    pkg/\n    top.py"
    )
    for n in range(1000):
        (root / "src" / f"m{n}").touch()
    assert editor.view(ViewFile(path=".")).text.endswith(
        "more entries not shown: name a directory below, or use find]"
    )


def test_a_redirected_progress_bar_is_folded(editor: Editor, root: Path) -> None:
    (root / "log").write_bytes(b"start\n" + b"".join(b"\r%d%%" % n for n in range(101)) + b"\nend\n")
    text = editor.view(ViewFile(path="log")).text
    assert text.splitlines()[:3] == [
        "start",
        "100% [101 earlier states of this line not shown]",
        "end",
    ]


def test_line_numbers_in_the_text_to_replace_are_pointed_out(editor: Editor, root: Path) -> None:
    (root / "f.py").write_text("if x:\n    return 1\n")
    view = editor.view(ViewFile(path="f.py", numbers=True)).text.rpartition("[")[0]
    with pytest.raises(ToolInputError, match="because it contains the line numbers that view_file shows"):
        editor.replace(ReplaceText(path="f.py", old=view, new="x"))


def test_a_match_with_other_whitespace_is_pointed_out(editor: Editor, root: Path) -> None:
    (root / "f.py").write_text("if x:\n        return   1\n")
    with pytest.raises(
        ToolInputError, match="line 1 has this text with different whitespace:\nif x:\n        return   1"
    ):
        editor.replace(ReplaceText(path="f.py", old="if x:\n    return 1", new=""))


def test_similar_text_with_a_longer_last_word_does_not_match(editor: Editor, root: Path) -> None:
    (root / "f.py").write_text("        outcome = found.value\n")
    with pytest.raises(
        ToolInputError,
        match=r"(?s)These lines are similar to `old`:\n1\t        outcome = found\.value$",
    ):
        editor.replace(ReplaceText(path="f.py", old="    outcome = found.val\n", new=""))
    with pytest.raises(ToolInputError, match="These lines are similar to `old`"):
        editor.replace(ReplaceText(path="f.py", old=" come  = found.value", new=""))


def test_overlapping_occurrences_are_ambiguous(editor: Editor, root: Path) -> None:
    (root / "f").write_text("aaa")
    with pytest.raises(ToolInputError, match="occurs 2 times"):
        editor.replace(ReplaceText(path="f", old="aa", new="b"))


def test_mixed_line_ends_are_left_unchanged(editor: Editor, root: Path) -> None:
    (root / "mixed").write_bytes(b"a\r\nb\r\nc\nd\n")
    editor.replace(ReplaceText(path="mixed", old="a\nb", new="a\nB"))
    editor.replace(ReplaceText(path="mixed", old="c\nd", new="C\nD"))
    assert (root / "mixed").read_bytes() == b"a\r\nB\r\nC\nD\n"


def test_text_is_inserted_after_the_given_line(editor: Editor, root: Path) -> None:
    (root / "f").write_text("1\n2")
    editor.insert(InsertText(path="f", line=1, text="one and a half"))
    editor.insert(InsertText(path="f", line=3, text="3\n"))
    assert (root / "f").read_text() == "1\none and a half\n2\n3\n"
    with pytest.raises(ToolInputError, match="has 4 lines, so line must be from 0 to 4"):
        editor.insert(InsertText(path="f", line=5, text="x"))


def test_undo_reverts_edits_one_by_one_to_the_creation(editor: Editor, root: Path) -> None:
    editor.create(CreateFile(path="f", content="1\n"))
    editor.replace(ReplaceText(path="f", old="1", new="2"))
    editor.undo(UndoEdit(path="f"))
    assert (root / "f").read_text() == "1\n"
    editor.undo(UndoEdit(path="f"))
    assert not (root / "f").exists()
    with pytest.raises(ToolInputError, match="there is no edit of f to undo"):
        editor.undo(UndoEdit(path="f"))


def test_undo_does_not_overwrite_other_changes(editor: Editor, root: Path) -> None:
    editor.create(CreateFile(path="f", content="1\n"))
    (root / "f").write_text("by git\n")
    with pytest.raises(ToolInputError, match="f was changed after its last edit"):
        editor.undo(UndoEdit(path="f"))
    assert (root / "f").read_text() == "by git\n"


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "loop/x"])
def test_an_invalid_path_is_rejected(editor: Editor, root: Path, path: str) -> None:
    (root / "loop").symlink_to("loop")
    with pytest.raises(ToolInputError):
        editor.view(ViewFile(path=path))


def test_a_write_does_not_follow_a_link_to_the_outside(editor: Editor, root: Path) -> None:
    (root / "out").symlink_to(root.parent / "planted")
    with pytest.raises(ToolInputError, match="outside of the work tree"):
        editor.create(CreateFile(path="out", content="x"))
    assert not (root.parent / "planted").exists()


@pytest.mark.parametrize("source", ["(" * 5000, "x = " + "-" * 100_000 + "1", "\x00".join("ab"), "x = 1 +"])
def test_source_that_breaks_a_parser_is_a_warning(editor: Editor, source: str) -> None:
    assert editor.create(CreateFile(path="f.py", content=source)).warning


def test_of_a_file_of_5_000_lines_only_the_lines_meant_are_changed(editor: Editor, root: Path) -> None:
    lines = [f"line {number} of many" for number in range(1, 5_001)]
    (root / "long.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(ToolInputError, match="occurs at least 1,000 times"):
        editor.replace(ReplaceText(path="long.txt", old=" of many", new=" of few"))
    assert (root / "long.txt").read_text().splitlines() == lines
    editor.replace(ReplaceText(path="long.txt", old="line 3210 of many", new="the line meant"))
    editor.insert(InsertText(path="long.txt", line=4_000, text="one more\n"))
    lines[3_209] = "the line meant"
    lines.insert(4_000, "one more")
    assert (root / "long.txt").read_text().splitlines() == lines
