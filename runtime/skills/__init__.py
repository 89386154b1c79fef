"""Skills: sixteen functions that are in the IPython session from its start, under the name `agentskills`.

They run on the repository's own Python, 3.9 or newer, so this package needs nothing but the standard library and
imports nothing of ours by its full name. A skill prints; for a mistake of its caller it prints what to do instead.
"""

from .editor import create_file, edit_file, goto_line, open_file, scroll_down, scroll_up
from .reading import parse_docx, parse_latex, parse_pdf, parse_pptx
from .search import find_file, search_dir, search_file
from .senses import parse_audio, parse_image, parse_video

__all__ = [  # noqa: RUF022 - in the order in which they are told
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
