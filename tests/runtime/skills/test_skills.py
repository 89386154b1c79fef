"""The skills of editor and search, called as in a cell: their output, and the files on disk."""

import ast
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import patchwright.runtime.skills as skills
from patchwright.runtime.skills.window_editor import _state

PACKAGE = Path(skills.__file__).parent

SIGNATURES = {
    "open_file": "(path: 'str', line_number: 'int | None' = None) -> 'None'",
    "goto_line": "(line_number: 'int') -> 'None'",
    "scroll_down": "() -> 'None'",
    "scroll_up": "() -> 'None'",
    "create_file": "(filename: 'str') -> 'None'",
    "edit_file": "(start: 'int', end: 'int', content: 'str') -> 'None'",
    "search_dir": "(search_term: 'str', dir_path: 'str' = './') -> 'None'",
    "search_file": "(search_term: 'str', file_path: 'str | None' = None) -> 'None'",
    "find_file": "(file_name: 'str', dir_path: 'str' = './') -> 'None'",
    "parse_pdf": "(file_path: 'str') -> 'None'",
    "parse_docx": "(file_path: 'str') -> 'None'",
    "parse_latex": "(file_path: 'str') -> 'None'",
    "parse_pptx": "(file_path: 'str') -> 'None'",
    "parse_audio": "(file_path: 'str', model: 'str' = 'whisper-1') -> 'None'",
    "parse_image": "(file_path: 'str', task: 'str' = 'Describe this image in detail.') -> 'None'",
    "parse_video": "(file_path: 'str', task: 'str' = 'Describe this video in detail.', "
    "frame_interval: 'int' = 30) -> 'None'",
}


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and a session without an open file."""
    monkeypatch.chdir(tmp_path)
    _state.path = None
    (tmp_path / "long.py").write_text("".join(f"x{n} = {n}\n" for n in range(1, 251)))
    return tmp_path


class Printed:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self) -> str:
        return self._capsys.readouterr().out


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return Printed(capsys)


def window(text: str) -> tuple[int, int]:
    """Return the first and last printed line number."""
    numbers = [int(line.partition("|")[0]) for line in text.splitlines() if "|" in line]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    return numbers[0], numbers[-1]


def test_there_are_sixteen_skills_with_their_documented_arguments() -> None:
    assert {name: str(inspect.signature(getattr(skills, name))) for name in skills.__all__} == SIGNATURES


def test_each_skill_names_the_condition_of_the_contribution_guide_that_it_meets() -> None:
    conditions = ("(Hard to write in code: ", "(Calls another model: ")
    guide = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    assert all(condition in guide for condition in conditions)
    docstrings = {name: inspect.getdoc(getattr(skills, name)) or "" for name in skills.__all__}
    assert all(sum(text.count(each) for each in conditions) == 1 for text in docstrings.values())
    calling = {name for name, text in docstrings.items() if conditions[1] in text}
    assert calling == {"parse_audio", "parse_image", "parse_video"}


def test_the_skills_need_nothing_but_an_old_python() -> None:
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").partition(".")[0] in sys.stdlib_module_names


def test_the_skills_load_by_the_name_of_the_session(tree: Path) -> None:
    """Loads the module `agentskills` from that directory alone, with the oldest available Python."""
    pythons = (shutil.which(f"python3.{minor}") for minor in (9, 10))
    for python in (*filter(None, pythons), sys.executable):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            break
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("agentskills", {str(PACKAGE / "__init__.py")!r})
module = sys.modules["agentskills"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from agentskills import *
import agentskills.host
open_file("long.py", 200)
goto_line(0)
parse_image("long.py")
"""
    ran = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert window(ran.stdout) == (150, 249)
    assert ran.stdout.endswith(
        "[goto_line: long.py has no line 0: use a line from 1 to 250]\n"
        "[parse_image: no model is available in this session]\n"
    )


def test_a_file_opens_at_its_beginning(printed: Printed) -> None:
    skills.open_file("long.py")
    text = printed()
    assert window(text) == (1, 100)
    assert text.startswith("[long.py, 250 lines]\n[the beginning of the file]\n1|x1 = 1\n")
    assert text.endswith("100|x100 = 100\n[150 lines below]\n")


def test_a_file_opens_around_a_line(printed: Printed) -> None:
    skills.open_file("long.py", 250)
    text = printed()
    assert window(text) == (151, 250)
    assert "[150 lines above]" in text
    assert text.endswith("[the end of the file]\n")


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [
        ("nothing.py", None, "[open_file: nothing.py does not exist (looked in "),
        (".", None, "[open_file: . is a directory: give the path of a file in it]"),
        ("long.py", 251, "[open_file: long.py has no line 251: use a line from 1 to 250]"),
        ("long.py", "12", "[open_file: line_number must be an integer, not '12']"),
        ("", None, "[open_file: path must be the path of a file, not '']"),
        ("a\0b", None, "[open_file: path must be the path of a file, not 'a\\x00b']"),
        (7, None, "[open_file: path must be the path of a file, not 7]"),
        ("x" * 300, None, "[open_file: "),
        ("data.bin", None, "[open_file: data.bin is not a text file: look at it with file or xxd"),
        ("shot.png", None, "[open_file: shot.png is not a text file: parse_image("),
    ],
)
def test_a_page_that_cannot_be_opened_is_reported(
    path: str, line: int | None, text: str, tree: Path, printed: Printed
) -> None:
    (tree / "data.bin").write_bytes(b"\0\1")
    (tree / "shot.png").write_bytes(b"\x89PNG")
    skills.open_file(path, line)
    assert printed().startswith(text)
    skills.scroll_down()
    assert printed() == "[scroll_down: no file is open: call open_file(path) first]\n"


def test_goto_line_moves_the_window_and_rejects_invalid_lines(printed: Printed) -> None:
    skills.open_file("long.py")
    printed()
    skills.goto_line(130)
    assert window(printed()) == (80, 179)
    for wrong in (0, -3, 251):
        skills.goto_line(wrong)
        assert printed() == f"[goto_line: long.py has no line {wrong}: use a line from 1 to 250]\n"


def test_the_window_scrolls_by_a_hundred_lines_within_the_file(printed: Printed) -> None:
    skills.open_file("long.py")
    result = [window(printed())]
    for move in (
        skills.scroll_down,
        skills.scroll_down,
        skills.scroll_down,
        skills.scroll_up,
        skills.scroll_up,
    ):
        move()
        result.append(window(printed()))
    assert result == [(1, 100), (101, 200), (151, 250), (151, 250), (51, 150), (1, 100)]


@pytest.mark.parametrize("move", [skills.scroll_down, skills.scroll_up, lambda: skills.goto_line(1)])
def test_without_an_open_file_scrolling_is_an_error(move: object, printed: Printed) -> None:
    assert callable(move)
    move()
    assert printed().endswith(": no file is open: call open_file(path) first]\n")


def test_a_removed_file_is_reported(tree: Path, printed: Printed) -> None:
    skills.open_file("long.py")
    (tree / "long.py").unlink()
    printed()
    skills.scroll_down()
    assert "does not exist" in printed()


def test_a_new_file_is_created_and_open(tree: Path, printed: Printed) -> None:
    skills.create_file("pkg/new.py")
    assert printed() == "[pkg/new.py, 1 line]\n[the beginning of the file]\n1|\n[the end of the file]\n"
    skills.edit_file(1, 1, "a = 1\nb = 2\n")
    assert (tree / "pkg/new.py").read_text() == "a = 1\nb = 2\n"


def test_an_existing_file_is_not_overwritten(tree: Path, printed: Printed) -> None:
    before = (tree / "long.py").read_text()
    skills.create_file("long.py")
    assert printed().startswith(
        "[create_file: long.py exists: to change it, use open_file('long.py') and edit_file]"
    )
    assert (tree / "long.py").read_text() == before
    skills.create_file("long.py/inside.py")
    assert printed().startswith("[create_file: ")


def test_lines_are_replaced_and_the_new_window_is_shown(tree: Path, printed: Printed) -> None:
    skills.open_file("long.py")
    printed()
    skills.edit_file(2, 3, "y = 0")
    text = printed()
    assert text.startswith("[long.py: lines 2-3 became 1 line]\n[long.py, 249 lines]\n")
    assert (tree / "long.py").read_text().startswith("x1 = 1\ny = 0\nx4 = 4\n")
    skills.edit_file(2, 2, "")
    assert (tree / "long.py").read_text().startswith("x1 = 1\nx4 = 4\n")


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 2), (1, 251), (251, 251), (-1, -1)])
def test_an_edit_outside_of_the_file_changes_nothing(
    start: int, end: int, tree: Path, printed: Printed
) -> None:
    before = (tree / "long.py").read_bytes()
    skills.open_file("long.py")
    printed()
    skills.edit_file(start, end, "y = 0")
    assert printed() == (
        f"[edit_file: long.py has no lines {start} to {end}: use 1 <= start <= end <= 250. "
        "Nothing was changed]\n"
    )
    assert (tree / "long.py").read_bytes() == before


def test_an_edit_without_an_open_file_or_with_no_text_is_refused(printed: Printed) -> None:
    skills.edit_file(1, 1, "x")
    assert printed() == "[edit_file: no file is open: call open_file(path) first]\n"
    skills.open_file("long.py")
    printed()
    skills.edit_file(1, 1, ["x"])
    assert printed() == "[edit_file: content must be text, not ['x']]\n"
    skills.edit_file("1", 1, "x")
    assert printed() == "[edit_file: start must be an integer, not '1']\n"


def test_an_edit_that_breaks_python_is_rejected_with_its_line(tree: Path, printed: Printed) -> None:
    before = (tree / "long.py").read_bytes()
    skills.open_file("long.py")
    printed()
    skills.edit_file(10, 10, "def broken(:\n    pass")
    text = printed()
    assert text.startswith(
        "[the edit was rejected because it would add a syntax error to long.py: invalid syntax, line 10: def broken(:]"
    )
    assert "10|def broken(:\n11|    pass\n" in text
    assert (tree / "long.py").read_bytes() == before


def test_a_file_with_a_syntax_error_can_be_fixed_in_steps(tree: Path, printed: Printed) -> None:
    (tree / "broken.py").write_text("def f(:\n    return (1\n")
    skills.open_file("broken.py")
    skills.edit_file(1, 1, "def f():")
    assert (
        "[the file had a syntax error before this edit and still has one: '(' was never closed, line 2: return (1]"
        in printed()
    )
    skills.edit_file(2, 2, "    return 1")
    assert "syntax" not in printed()


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_an_edit_that_breaks_javascript_is_rejected(tree: Path, printed: Printed) -> None:
    (tree / "app.js").write_text("import x from './x.js';\nconsole.log(x);\n")
    skills.open_file("app.js")
    printed()
    skills.edit_file(2, 2, "console.log(x;")
    assert "SyntaxError: missing ) after argument list, line 2: console.log(x;]" in printed()
    assert (tree / "app.js").read_text().endswith("console.log(x);\n")
    skills.edit_file(2, 2, "console.log(x + 1);")
    assert "became 1 line" in printed()


def test_line_ends_a_missing_last_one_and_odd_bytes_are_kept(tree: Path, printed: Printed) -> None:
    (tree / "dos.txt").write_bytes(b"one\r\ntwo\xff\r\nthree")
    skills.open_file("dos.txt")
    assert "2|two\ufffd\n" in printed()
    skills.edit_file(1, 1, "1\n1b")
    assert (tree / "dos.txt").read_bytes() == b"1\r\n1b\r\ntwo\xff\r\nthree"
    skills.edit_file(4, 4, "3\n")
    assert (tree / "dos.txt").read_bytes() == b"1\r\n1b\r\ntwo\xff\r\n3"


def test_an_endless_line_is_shown_in_part(tree: Path, printed: Printed) -> None:
    (tree / "min.js").write_text("x" * 5_000)
    skills.open_file("min.js")
    assert "x [... 4,000 more characters]\n" in printed()


def test_a_search_names_files_and_lines_and_skips_irrelevant_files(tree: Path, printed: Printed) -> None:
    for name in (".git/config", "node_modules/a.js", "src/a.py", "src/deep/b.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("first\n  needle here\n")
    (tree / "data.bin").write_bytes(b"PNG needle\n\0")
    skills.search_dir("needle")
    assert printed() == (
        "src/a.py:2: needle here\nsrc/deep/b.py:2: needle here\n['needle' in .: 2 hits in 2 files]\n"
    )
    skills.search_dir("needle", "src/deep")
    assert printed().endswith("['needle' in src/deep: 1 hit in 1 file]\n")


def test_too_many_hits_are_cut_with_a_hint(printed: Printed) -> None:
    skills.search_dir("x")
    text = printed()
    assert text.count("long.py:") == 100
    assert "the first 100 of 250 hits in 1 file; narrow your search" in text
    skills.search_file("x", "long.py")
    assert "the first 100 of 250 hits; narrow your search" in printed()


def test_a_search_stops_after_the_maximum_of_hits(tree: Path, printed: Printed) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tree / name).write_text("needle\n" * 6_000)
    skills.search_dir("needle")
    assert "the first 100 of 12,000 hits in 2 files, and there may be more; narrow your search" in printed()


def test_text_that_cannot_be_encoded_is_reported(tree: Path, printed: Printed) -> None:
    before = (tree / "long.py").read_bytes()
    skills.open_file("long.py")
    printed()
    skills.edit_file(1, 1, "x = '\ud800'")
    assert printed().startswith("[edit_file: the text cannot be encoded as UTF-8: ")
    assert (tree / "long.py").read_bytes() == before
    skills.search_dir("\ud800")
    skills.open_file("\ud800")
    assert printed().count("[") == 2


def test_a_search_without_a_hit_a_term_or_a_directory_says_so(printed: Printed) -> None:
    skills.search_dir("nowhere to be found")
    assert printed() == "[nothing found: 'nowhere to be found' in .]\n"
    skills.search_dir("")
    assert printed() == "[search_dir: search_term must be non-empty text, not '']\n"
    skills.search_dir("x", "absent")
    assert printed().startswith("[search_dir: absent is not a directory (looked in ")


def test_a_file_is_searched_by_name_or_because_it_is_open(tree: Path, printed: Printed) -> None:
    skills.search_file("x99 ")
    assert printed() == "[search_file: no file is open: set file_path, or call open_file(path) first]\n"
    skills.search_file("x99 ", "long.py")
    assert printed() == "99: x99 = 99\n['x99 ' in long.py: 1 hit]\n"
    skills.open_file("long.py")
    printed()
    skills.search_file("x98 ")
    assert printed() == "98: x98 = 98\n['x98 ' in long.py: 1 hit]\n"
    (tree / "data.bin").write_bytes(b"\0needle")
    skills.search_file("needle", "data.bin")
    assert printed() == "[search_file: data.bin is a binary file]\n"


def test_files_are_found_by_name_however_deep(tree: Path, printed: Printed) -> None:
    for name in ("a/conf.py", "a/b/conf.py", ".git/conf.py", "a/confer.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    skills.find_file("conf.py")
    assert printed() == "a/conf.py\na/b/conf.py\n[files named 'conf.py' in .: 2 hits]\n"
    skills.find_file("conf*", "a/b")
    assert printed() == "a/b/conf.py\n[files named 'conf*' in a/b: 1 hit]\n"
    skills.find_file("config.py", "a")
    assert printed() == (
        "[similar names: conf.py, confer.py]\n[nothing found: files named 'config.py' in a]\n"
    )
    skills.find_file("conf.py", "absent")
    assert printed().startswith("[find_file: absent is not a directory")
