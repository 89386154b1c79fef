"""Bytecode in the place of sources."""

import compileall
import shutil
from pathlib import Path


def compile_to_bytecode(library: Path) -> None:
    """Half the size, and no compiling when a sandbox starts. What cannot be compiled stays as it is."""
    compileall.compile_dir(library, quiet=2, legacy=True, workers=0)
    for source in library.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()
    for cache in [*library.rglob("__pycache__")]:
        shutil.rmtree(cache)
