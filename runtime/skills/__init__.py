"""Skills: sixteen functions that are predefined in the IPython session, in the package `agentskills`.

They run on the repository's own Python, 3.9 or newer. This package therefore needs only the standard library, and
its modules import each other only by relative names. A skill prints its result, or a message that says what to do
instead.
"""

from .document_readers import parse_docx, parse_latex, parse_pdf, parse_pptx
from .file_search import find_file, search_dir, search_file
from .multimodal import parse_audio, parse_image, parse_video
from .window_editor import create_file, edit_file, goto_line, open_file, scroll_down, scroll_up

__all__ = [  # noqa: RUF022 - in the order in which the prompt lists them
    "open_file",
    "goto_line",
    "scroll_down",
    "scroll_up",
    "create_file",
    "edit_file",
    "search_dir",
    "search_file",
    "find_file",
    "parse_pdf",
    "parse_docx",
    "parse_latex",
    "parse_pptx",
    "parse_audio",
    "parse_image",
    "parse_video",
]

NEED_DOCUMENTS = ("parse_pdf", "parse_docx", "parse_latex", "parse_pptx", "parse_video")
"""The skills that need the sandbox feature `documents`."""


def hide_document_skills(reason: str) -> None:
    """Remove the skills that need the feature `documents`. Importing one of them then fails with this reason."""

    def explain(name: str) -> object:
        if name in NEED_DOCUMENTS:
            raise ImportError(reason)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    globals()["__getattr__"] = explain
    for name in NEED_DOCUMENTS:
        __all__.remove(name)
        del globals()[name]
