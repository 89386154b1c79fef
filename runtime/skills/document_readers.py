"""Prints documents as text."""

from __future__ import annotations

import os
import re
import tempfile

from . import host
from .skill_errors import SkillError, print_errors, require_file

# characters that are printed; a cell's result loses its middle if it has more than 30,000
MAX_PRINTED_CHARS = 20_000


@print_errors
def parse_pdf(file_path: str) -> None:
    """Print the text of a PDF, page by page.

    For a long document, prints the beginning and the name of a file with all of the text.

    (Hard to write in code: the Python of the repository may lack a library for this format.)
    """
    _print_document("pdf", file_path)


@print_errors
def parse_docx(file_path: str) -> None:
    """Print the text of a Word document (.docx): headings, paragraphs, lists and tables as Markdown.

    A long document is shortened as in parse_pdf.

    (Hard to write in code: the Python of the repository may lack a library for this format.)
    """
    _print_document("docx", file_path)


@print_errors
def parse_latex(file_path: str) -> None:
    """Print the text of a LaTeX file without its markup.

    A long document is shortened as in parse_pdf.

    (Hard to write in code: the Python of the repository may lack a library for this format.)
    """
    _print_document("latex", file_path)


@print_errors
def parse_pptx(file_path: str) -> None:
    """Print the text of the slides of a presentation (.pptx) in order, with the speaker's notes.

    A long document is shortened as in parse_pdf.

    (Hard to write in code: the Python of the repository may lack a library for this format.)
    """
    _print_document("pptx", file_path)


def _print_document(kind: str, file_path: str) -> None:
    path = require_file(file_path, "file_path")
    try:
        text = host.convert_document("text", kind, str(path))
    except RuntimeError as error:
        raise SkillError(str(error)) from None
    if len(text) <= MAX_PRINTED_CHARS:
        print(text)
        return
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)[:40]
    handle, full_path = tempfile.mkstemp(prefix=f"{stem}-", suffix=".md", dir=host.scratch_directory())
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    end = text.rfind("\n", 0, MAX_PRINTED_CHARS) + 1 or MAX_PRINTED_CHARS
    print(text[:end])
    print(f"[the first {end:,} of {len(text):,} characters; all of it: open_file({full_path!r})]")
