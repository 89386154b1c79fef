"""Checks the syntax of source files: Python with this interpreter's compiler, JavaScript with `node` if
installed.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

PYTHON_SUFFIXES = (".py", ".pyi")
JAVASCRIPT_SUFFIXES = (".js", ".mjs", ".cjs")
_MODULE_ERRORS = ("outside a module", "Unexpected token 'export'")
NODE_TIMEOUT = 10  # seconds for one run of node
MAX_SCRIPT_BYTES = 2 << 20  # bytes of a script that node checks


def find_new_syntax_error(path: Path, before: bytes | None, after: bytes) -> str | None:
    """Return the syntax error that a file has after an edit, and the line of the error. Return None if the file
    has no error. Also return None for a script that node could not parse before the edit, because the script may
    be JSX or Flow.

    `before` is the content before the edit; None for a new file.
    """
    error = find_syntax_error(path, after)
    if error is None or not before or path.suffix not in JAVASCRIPT_SUFFIXES:
        return error
    return None if find_syntax_error(path, before) else error


def find_syntax_error(path: Path, data: bytes) -> str | None:
    """Return the first syntax error of a file, with its line. Return None if the file has no error, or if its type
    cannot be checked.
    """
    if path.suffix in PYTHON_SUFFIXES:
        return _check_python(data)
    if (
        path.suffix in JAVASCRIPT_SUFFIXES
        and len(data) <= MAX_SCRIPT_BYTES
        and (node := shutil.which("node"))
    ):
        return _check_javascript(node, path.suffix, data)
    return None


def _check_python(data: bytes) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "<edit>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        source = f": {error.text.strip()[:200]}" if error.text else ""
        return _replace_surrogates(f"{error.msg}, line {error.lineno}{source}")
    except (ValueError, RecursionError, MemoryError) as error:
        return f"Python cannot parse the file: {error}"
    return None


def _check_javascript(node: str, suffix: str, data: bytes) -> str | None:
    # A package.json decides whether a `.js` file is CommonJS or an ES module. So the file has an error only if
    # it is invalid as both.
    error = None
    for script_suffix in (".cjs", ".mjs") if suffix == ".js" else (suffix,):
        if (kind_error := _run_node(node, script_suffix, data)) is None:
            return None
        # If the file is an ES module, its error as CommonJS only says that. Use its error as a module instead.
        if error is None or any(message in error for message in _MODULE_ERRORS):
            error = kind_error
    # A `<` where a value should be is JSX, which node cannot parse.
    return None if error and "Unexpected token '<'" in error else error


def _run_node(node: str, kind: str, data: bytes) -> str | None:
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, f"edit{kind}")
        script.write_bytes(data)
        try:
            completed = subprocess.run(
                [node, "--check", str(script)],
                cwd=directory,
                env={"PATH": os.defpath, "HOME": directory},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=NODE_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    stderr = completed.stderr.decode("utf-8", "replace")
    message = re.search(r"^(?:\w*Error): .*$", stderr, re.MULTILINE)
    line = re.search(rf"edit\{kind}:(\d+)\n(.*)$", stderr, re.MULTILINE)
    if completed.returncode == 0 or message is None or line is None:
        return None
    return f"{message[0][:200]}, line {line[1]}: {line[2].strip()[:200]}"


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
