"""Documents as text."""

from __future__ import annotations

import os
import re
import tempfile

from . import host
from .mistakes import Mistake, existing, told

AT_ONCE = 20_000  # characters that are printed; the answer of a cell would lose its middle over 30,000


@told
def parse_pdf(file_path: str) -> None:
    """Print the text of a PDF, page by page.

    Of a long one the beginning is printed, and the name of a file that holds all of it.
    (A skill because: this Python need not have a library that reads it.)
    """
    _print("pdf", file_path)


@told
def parse_docx(file_path: str) -> None:
    """Print the text of a Word document (.docx): headings, paragraphs, lists and tables as Markdown.

    A long one as parse_pdf has it.
    (A skill because: this Python need not have a library that reads it.)
    """
    _print("docx", file_path)


@told
def parse_latex(file_path: str) -> None:
    """Print the text of a LaTeX file without its markup.

    A long one as parse_pdf has it.
    (A skill because: this Python need not have a library that reads it.)
    """
    _print("latex", file_path)


@told
def parse_pptx(file_path: str) -> None:
    """Print the text of the slides of a presentation (.pptx) in their order, with the speaker's notes.

    A long one as parse_pdf has it.
    (A skill because: this Python need not have a library that reads it.)
    """
    _print("pptx", file_path)


def _print(kind: str, file_path: str) -> None:
    path = existing(file_path, "file_path")
    try:
        text = host.convert("text", kind, str(path))
    except RuntimeError as reason:
        raise Mistake(str(reason)) from None
    if len(text) <= AT_ONCE:
        print(text)
        return
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)[:40]
    handle, whole = tempfile.mkstemp(prefix=f"{stem}-", suffix=".md", dir=host.scratch())
    with os.fdopen(handle, "w", encoding="utf-8") as kept:
        kept.write(text)
    end = text.rfind("\n", 0, AT_ONCE) + 1 or AT_ONCE
    print(text[:end])
    print(f"[the first {end:,} of {len(text):,} characters; all of it: open_file({whole!r})]")
