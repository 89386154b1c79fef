"""Replaces Python sources with bytecode."""

import compileall
import shutil
from pathlib import Path


def compile_to_bytecode(library: Path) -> None:
    """Compile a library in place. This halves its size, and a sandbox starts without compiling it.

    Sources that cannot be compiled are kept.
    """
    compileall.compile_dir(library, quiet=2, legacy=True, workers=0)
    for source in library.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()
    for cache in [*library.rglob("__pycache__")]:
        shutil.rmtree(cache)
