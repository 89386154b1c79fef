"""Shows one open file in a window of 100 lines, and edits it by line numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .lint import find_new_syntax_error, find_syntax_error
from .skill_errors import (
    MAX_FILE_BYTES,
    SkillError,
    display_path,
    pluralize,
    print_errors,
    printable_line,
    require_file,
    require_integer,
    require_path,
)

WINDOW_LINES = 100  # lines
CONTEXT_LINES = 3  # lines shown above and below the error of a rejected edit
_SKILL_BY_SUFFIX = {
    ".pdf": "parse_pdf",
    ".docx": "parse_docx",
    ".pptx": "parse_pptx",
    ".png": "parse_image",
    ".jpg": "parse_image",
    ".jpeg": "parse_image",
    ".gif": "parse_image",
    ".webp": "parse_image",
    ".mp3": "parse_audio",
    ".wav": "parse_audio",
    ".m4a": "parse_audio",
    ".mp4": "parse_video",
    ".webm": "parse_video",
    ".mov": "parse_video",
}


@dataclass
class _EditorState:
    """The open file of this session and the first line of the window."""

    path: Path | None = None
    start: int = 1


_state = _EditorState()


@print_errors
def open_file(path: str, line_number: int | None = None) -> None:
    """Open a text file and print a window of 100 numbered lines. If line_number is given, the window is around it.

    The file stays open for goto_line, scroll_down, scroll_up, edit_file and search_file.

    (Hard to write in code: ad-hoc code prints whole files, or loses its place in them.)
    """
    real = require_file(path)
    lines = _split_lines(_read_text(real))
    line = _require_line(1 if line_number is None else line_number, lines, real)
    _state.path = real
    _print_window(lines, line - WINDOW_LINES // 2)


@print_errors
def goto_line(line_number: int) -> None:
    """Move the window so that this line of the open file is in its middle.

    (Hard to write in code: ad-hoc code does not know the position in the open file.)
    """
    real, lines = _read_current()
    _print_window(lines, _require_line(line_number, lines, real) - WINDOW_LINES // 2)


@print_errors
def scroll_down() -> None:
    """Move the window down by 100 lines.

    (Hard to write in code: ad-hoc code does not know the position in the open file.)
    """
    _, lines = _read_current()
    _print_window(lines, _state.start + WINDOW_LINES)


@print_errors
def scroll_up() -> None:
    """Move the window up by 100 lines.

    (Hard to write in code: ad-hoc code does not know the position in the open file.)
    """
    _, lines = _read_current()
    _print_window(lines, _state.start - WINDOW_LINES)


@print_errors
def create_file(filename: str) -> None:
    """Create a new file with one empty line, and open it. Fails if the file exists.

    Fill it with edit_file(1, 1, content).

    (Hard to write in code: `open(..., "w")` empties an existing file.)
    """
    real = require_path(filename, "filename")
    real.parent.mkdir(parents=True, exist_ok=True)
    try:
        with real.open("x", encoding="utf-8") as file:
            file.write("\n")
    except FileExistsError:
        raise SkillError(
            f"{filename} exists: to change it, use open_file({str(filename)!r}) and edit_file"
        ) from None
    _state.path = real
    _print_window([""], 1)


@print_errors
def edit_file(start: int, end: int, content: str) -> None:
    """Replace lines start to end (inclusive) of the open file with content, and print the new window.

    Use the line numbers of the last printed window. Empty content deletes the lines. An edit that would add a
    syntax error to Python or JavaScript is rejected, and the error is printed with
    its line.

    (Hard to write in code: replacing exact lines is easy to get wrong in code, and the syntax is checked.)
    """
    real, lines = _read_current()
    start, end = require_integer("start", start), require_integer("end", end)
    if not isinstance(content, str):
        raise SkillError(f"content must be text, not {content!r:.100}")
    if not 1 <= start <= end <= len(lines):
        raise SkillError(
            f"{display_path(real)} has no lines {start} to {end}: use 1 <= start <= end <= {len(lines)}. "
            "Nothing was changed"
        )
    before = real.read_bytes()
    after, line_count = _replace_lines(before, start, end, content)
    error = find_new_syntax_error(real, before, after)
    if error and find_syntax_error(real, before) is None:
        print(f"[the edit was rejected because it would add a syntax error to {display_path(real)}: {error}]")
        print(
            "[correct the content and call edit_file again with the same lines. The file after the rejected edit:]"
        )
        _print_lines(_split_lines(after), start - CONTEXT_LINES, start + line_count - 1 + CONTEXT_LINES)
        return
    real.write_bytes(after)  # in place, which preserves mode and links
    print(f"[{display_path(real)}: lines {start}-{end} became {pluralize(line_count, 'line')}]")
    if error:
        print(f"[the file had a syntax error before this edit and still has one: {error}]")
    _print_window(_split_lines(after), start + line_count // 2 - WINDOW_LINES // 2)


def current_file() -> Path | None:
    """Return the path of the open file, or None if no file is open."""
    return _state.path


def _read_current() -> tuple[Path, list[str]]:
    """Return the path of the open file and its lines, read from disk."""
    if _state.path is None:
        raise SkillError("no file is open: call open_file(path) first")
    real = require_file(_state.path)
    return real, _split_lines(_read_text(real))


def _read_text(real: Path) -> bytes:
    size = real.stat().st_size
    if size > MAX_FILE_BYTES:
        raise SkillError(f"{display_path(real)} has {size:,} bytes: read parts of it with your own code")
    data = real.read_bytes()
    if b"\0" in data or real.suffix.lower() in _SKILL_BY_SUFFIX:
        reader = _SKILL_BY_SUFFIX.get(real.suffix.lower())
        hint = f"{reader}({str(real)!r}) reads it" if reader else "look at it with file or xxd in a shell"
        raise SkillError(f"{display_path(real)} is not a text file: {hint}")
    return data


def _split_lines(data: bytes) -> list[str]:
    """Return the lines without their line ends. A line ends where `grep -n` ends it: only at a newline."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line[:-1] if line.endswith("\r") else line for line in lines] or [""]


def _replace_lines(before: bytes, start: int, end: int, content: str) -> tuple[bytes, int]:
    """Replace lines of a file and keep its line ends. Return the new bytes and the number of new lines."""
    body = before.decode("utf-8", "surrogateescape")
    lines = _split_keeping_ends(body)
    ending = "\r\n" if "\r\n" in body else "\n"
    new_lines = content.replace("\r\n", "\n").split("\n") if content else []
    if new_lines and not new_lines[-1]:
        new_lines.pop()  # the content ends with a line end
    replacement = [line + ending for line in new_lines]
    if replacement and end >= len(lines) and body and not body.endswith("\n"):
        replacement[-1] = replacement[-1][: -len(ending)]  # the file had no line end at its end
    text = "".join(lines[: start - 1] + replacement + lines[end:])
    return text.encode("utf-8", "surrogateescape"), len(new_lines)


def _split_keeping_ends(body: str) -> list[str]:
    lines = [line + "\n" for line in body.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _require_line(line: object, lines: list[str], real: Path) -> int:
    number = require_integer("line_number", line)
    if not 1 <= number <= len(lines):
        raise SkillError(f"{display_path(real)} has no line {number}: use a line from 1 to {len(lines)}")
    return number


def _print_window(lines: list[str], start: int) -> None:
    """Print the window that begins at line `start`, and store its position. Near the end of the file, the window
    begins earlier, so that it does not extend past the last line.
    """
    assert _state.path is not None
    _state.start = start = max(1, min(start, len(lines) - WINDOW_LINES + 1))
    end = min(start + WINDOW_LINES - 1, len(lines))
    print(f"[{display_path(_state.path)}, {pluralize(len(lines), 'line')}]")
    print(f"[{pluralize(start - 1, 'line')} above]" if start > 1 else "[the beginning of the file]")
    _print_lines(lines, start, end)
    print(f"[{pluralize(len(lines) - end, 'line')} below]" if end < len(lines) else "[the end of the file]")


def _print_lines(lines: list[str], start: int, end: int) -> None:
    for number in range(max(1, start), min(end, len(lines)) + 1):
        print(f"{number}|{printable_line(lines[number - 1])}")
