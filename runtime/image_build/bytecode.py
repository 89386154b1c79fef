"""Replaces Python sources with bytecode."""

import compileall
import shutil
from pathlib import Path


def compile_to_bytecode(library: Path) -> None:
    """Compile the Python files of a library, and replace each file by its bytecode. This halves the size of the
    library, and sandboxes do not have to compile it.

    Files that cannot be compiled are kept.
    """
    compileall.compile_dir(library, quiet=2, legacy=True, workers=0)
    for source in library.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()
    for cache in [*library.rglob("__pycache__")]:
        shutil.rmtree(cache)
