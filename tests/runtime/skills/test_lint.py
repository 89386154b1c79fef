"""Syntax errors that an edit adds to JavaScript; the editors' own tests cover Python."""

import shutil
from pathlib import Path

import pytest

from patchwright.runtime.actions import CreateFile, ReplaceText
from patchwright.runtime.execution.editor import Editor
from patchwright.runtime.path_guard import PathGuard
from patchwright.runtime.skills.lint import find_new_syntax_error, find_syntax_error

node = pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")


def error(name: str, source: str, before: str | None = None) -> str | None:
    return find_new_syntax_error(Path(name), before.encode() if before else None, source.encode())


@node
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.js", "const x = require('x');\nconsole.log(x;\n"),
        ("a.js", "import x from 'x';\nconsole.log(x;\n"),
        ("a.mjs", "export const x = 1;\nconsole.log(x;\n"),
        ("a.cjs", "exports.x = 1;\nconsole.log(x;\n"),
    ],
)
def test_broken_javascript_is_reported_with_its_line(name: str, source: str) -> None:
    assert error(name, source) == "SyntaxError: missing ) after argument list, line 2: console.log(x;"


@node
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.js", "const x = require('x');\nwith (x) { y }\nreturn;\n"),
        ("a.js", "import x from 'x';\nexport default await x;\n"),
        ("a.js", "export const App = () => <p>Hi</p>;\n"),
        ("a.js", "process.exit(1); while (true) {}\n"),
        ("a.ts", "const x: number = ;\n"),
        ("a.jsx", "const x = <p>;\n"),
    ],
)
def test_valid_or_unsupported_scripts_yield_no_error(name: str, source: str) -> None:
    assert error(name, source) is None


@node
def test_a_script_that_node_could_not_parse_is_not_checked() -> None:
    flow = "// @flow\nfunction f(x: number) { return x; }\n"
    assert find_syntax_error(Path("a.js"), flow.encode()) is not None
    assert error("a.js", flow.replace("return x", "return x + 1"), before=flow) is None


def test_without_node_javascript_is_not_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert error("a.js", "console.log(x;") is None


@node
def test_the_file_tools_warn_of_broken_javascript(tmp_path: Path) -> None:
    editor = Editor(PathGuard(tmp_path, tmp_path))
    assert editor.create(CreateFile(path="a.js", content="f(1);\n")).warning is None
    edited = editor.replace(ReplaceText(path="a.js", old="f(1)", new="f(1"))
    assert edited.warning == "SyntaxError: missing ) after argument list, line 1: f(1;"
