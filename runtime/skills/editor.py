"""One open file and a window of 100 lines on it, moved and edited by line numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .lint import new_syntax_error, syntax_error
from .mistakes import LARGEST, Mistake, absolute, count, existing, printable, shown, told, whole

WINDOW = 100  # lines
AROUND = 3  # lines of a refused edit that are shown above and below its fault
_READERS = {
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
class _Opened:
    """What is open in this session."""

    path: Path | None = None
    start: int = 1


_opened = _Opened()


@told
def open_file(path: str, line_number: int | None = None) -> None:
    """Open a text file and print a window of 100 numbered lines, around line_number if it is given.

    The file stays open for goto_line, scroll_down, scroll_up, edit_file and search_file.
    (A skill because: code you would write prints whole files, or loses its place in them.)
    """
    real = existing(path)
    lines = _lines(_read(real))
    line = _within(1 if line_number is None else line_number, lines, real)
    _opened.path = real
    _show(lines, line - WINDOW // 2)


@told
def goto_line(line_number: int) -> None:
    """Move the window to where this line of the open file is in its middle.

    (A skill because: it needs the place in the open file, which code of one cell does not have.)
    """
    real, lines = _current()
    _show(lines, _within(line_number, lines, real) - WINDOW // 2)


@told
def scroll_down() -> None:
    """Move the window down by 100 lines.

    (A skill because: it needs the place in the open file, which code of one cell does not have.)
    """
    _, lines = _current()
    _show(lines, _opened.start + WINDOW)


@told
def scroll_up() -> None:
    """Move the window up by 100 lines.

    (A skill because: it needs the place in the open file, which code of one cell does not have.)
    """
    _, lines = _current()
    _show(lines, _opened.start - WINDOW)


@told
def create_file(filename: str) -> None:
    """Create a new file that holds one empty line, and open it. Refused when the file exists.

    Fill it with edit_file(1, 1, content).
    (A skill because: `open(..., "w")` empties a file that is there.)
    """
    real = absolute(filename, "filename")
    real.parent.mkdir(parents=True, exist_ok=True)
    try:
        with real.open("x", encoding="utf-8") as new:
            new.write("\n")
    except FileExistsError:
        raise Mistake(f"{filename} exists: open_file({str(filename)!r}) and edit_file change it") from None
    _opened.path = real
    _show([""], 1)


@told
def edit_file(start: int, end: int, content: str) -> None:
    """Replace the lines start to end (both included) of the open file by content, and print the new window.

    Count them on the window that was printed last; empty content deletes them. An edit that would bring a syntax
    error into Python or JavaScript is not made: the error is printed with its line.
    (A skill because: replacing lines exactly is easy to get wrong in code, and the syntax is checked.)
    """
    real, lines = _current()
    start, end = whole("start", start), whole("end", end)
    if not isinstance(content, str):
        raise Mistake(f"content must be text, not {content!r:.100}")
    if not 1 <= start <= end <= len(lines):
        raise Mistake(
            f"there are no lines {start} to {end} in {shown(real)}: it must be 1 <= start <= end <= {len(lines)}. "
            "Nothing was changed"
        )
    before = real.read_bytes()
    after, added = _replaced(before, start, end, content)
    error = new_syntax_error(real, before, after)
    if error and syntax_error(real, before) is None:
        print(f"[the edit was not made, it would bring a syntax error into {shown(real)}: {error}]")
        print("[what it would have made; correct the content and call edit_file again with the same lines:]")
        _print(_lines(after), start - AROUND, start + added - 1 + AROUND)
        return
    real.write_bytes(after)  # in place: mode and links stay
    print(f"[{shown(real)}: lines {start}-{end} became {count(added, 'line')}]")
    if error:
        print(f"[it had a syntax error before, and has one now: {error}]")
    _show(_lines(after), start + added // 2 - WINDOW // 2)


def opened() -> Path | None:
    """The open file."""
    return _opened.path


def _current() -> tuple[Path, list[str]]:
    """The open file and its lines, as they are on disk now."""
    if _opened.path is None:
        raise Mistake("no file is open: call open_file(path) first")
    real = existing(_opened.path)
    return real, _lines(_read(real))


def _read(real: Path) -> bytes:
    size = real.stat().st_size
    if size > LARGEST:
        raise Mistake(f"{shown(real)} has {size:,} bytes: read parts of it with your own code")
    data = real.read_bytes()
    if b"\0" in data or real.suffix.lower() in _READERS:
        reader = _READERS.get(real.suffix.lower())
        how = f"{reader}({str(real)!r}) reads it" if reader else "look at it with file or xxd in a shell"
        raise Mistake(f"{shown(real)} is not a text file: {how}")
    return data


def _lines(data: bytes) -> list[str]:
    """Lines as grep counts them, without their ends."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line[:-1] if line.endswith("\r") else line for line in lines] or [""]


def _replaced(before: bytes, start: int, end: int, content: str) -> tuple[bytes, int]:
    """The file with the lines replaced, its line ends kept; and how many lines stand there now."""
    body = before.decode("utf-8", "surrogateescape")
    lines = _with_ends(body)
    ending = "\r\n" if "\r\n" in body else "\n"
    new = content.replace("\r\n", "\n").split("\n") if content else []
    if new and not new[-1]:
        new.pop()  # content that ends its last line
    made = [line + ending for line in new]
    if made and end >= len(lines) and body and not body.endswith("\n"):
        made[-1] = made[-1][: -len(ending)]  # the file ended without one
    whole_text = "".join(lines[: start - 1] + made + lines[end:])
    return whole_text.encode("utf-8", "surrogateescape"), len(new)


def _with_ends(body: str) -> list[str]:
    lines = [line + "\n" for line in body.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _within(line: object, lines: list[str], real: Path) -> int:
    number = whole("line_number", line)
    if not 1 <= number <= len(lines):
        raise Mistake(f"{shown(real)} has no line {number}: it has the lines 1 to {len(lines)}")
    return number


def _show(lines: list[str], start: int) -> None:
    """Print the window that begins at this line, moved so that it lies inside the file; it is remembered."""
    assert _opened.path is not None
    _opened.start = start = max(1, min(start, len(lines) - WINDOW + 1))
    end = min(start + WINDOW - 1, len(lines))
    print(f"[{shown(_opened.path)}, {count(len(lines), 'line')}]")
    print(f"[{count(start - 1, 'line')} above]" if start > 1 else "[the beginning of the file]")
    _print(lines, start, end)
    print(f"[{count(len(lines) - end, 'line')} below]" if end < len(lines) else "[the end of the file]")


def _print(lines: list[str], start: int, end: int) -> None:
    for number in range(max(1, start), min(end, len(lines)) + 1):
        print(f"{number}|{printable(lines[number - 1])}")
