"""Whether a piece of source parses: Python by this Python's own compiler, JavaScript by `node`, if it is there."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

PYTHON = (".py", ".pyi")
JAVASCRIPT = (".js", ".mjs", ".cjs")
_OF_MODULES = ("outside a module", "Unexpected token 'export'")
SECONDS = 10  # for one look by node
LARGEST = 2 << 20  # bytes of a script that node is shown


def new_syntax_error(path: Path, before: bytes | None, after: bytes) -> str | None:
    """The syntax error that an edit brought into a file, with its line; None when it brought none.

    `before` None: the file is new. A script that node did not understand before (JSX, Flow) is not judged.
    """
    error = syntax_error(path, after)
    if error is None or not before or path.suffix not in JAVASCRIPT:
        return error
    return None if syntax_error(path, before) else error


def syntax_error(path: Path, data: bytes) -> str | None:
    """What is wrong with the source, with its line; None when nothing is, or nobody can tell."""
    if path.suffix in PYTHON:
        return _python(data)
    if path.suffix in JAVASCRIPT and len(data) <= LARGEST and (node := shutil.which("node")):
        return _javascript(node, path.suffix, data)
    return None


def _python(data: bytes) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "<edit>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        source = f": {error.text.strip()[:200]}" if error.text else ""
        return _utf8(f"{error.msg}, line {error.lineno}{source}")
    except (ValueError, RecursionError, MemoryError) as error:
        return f"Python cannot parse the file: {error}"
    return None


def _javascript(node: str, suffix: str, data: bytes) -> str | None:
    # `.js` may be either kind of module, as a package.json decides; only what is wrong as both is wrong.
    error = None
    for kind in (".cjs", ".mjs") if suffix == ".js" else (suffix,):
        if (found := _checked(node, kind, data)) is None:
            return None
        # As a script, a module's first fault is that it is one.
        if error is None or any(sign in error for sign in _OF_MODULES):
            error = found
    # Where a value should be, `<` is JSX, which node does not know.
    return None if error and "Unexpected token '<'" in error else error


def _checked(node: str, kind: str, data: bytes) -> str | None:
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, f"edit{kind}")
        script.write_bytes(data)
        try:
            ran = subprocess.run(
                [node, "--check", str(script)],
                cwd=place,
                env={"PATH": os.defpath, "HOME": place},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    said = ran.stderr.decode("utf-8", "replace")
    message = re.search(r"^(?:\w*Error): .*$", said, re.MULTILINE)
    line = re.search(rf"edit\{kind}:(\d+)\n(.*)$", said, re.MULTILINE)
    if ran.returncode == 0 or message is None or line is None:
        return None
    return f"{message[0][:200]}, line {line[1]}: {line[2].strip()[:200]}"


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
