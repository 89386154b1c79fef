"""Views and edits files. An edit creates a file, replaces exact text, inserts text or undoes another edit,
and returns its diff.
"""

import hashlib
import re
from collections import deque
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from patchwright.runtime.actions import CreateFile, InsertText, ReplaceText, UndoEdit, ViewFile
from patchwright.runtime.diff import describe_place, format_diff
from patchwright.runtime.directory_listing import list_directory
from patchwright.runtime.documents.document_reader import READABLE_FORMATS, DocumentReader
from patchwright.runtime.observations import EditResult, TextResult
from patchwright.runtime.output_text import MAX_CHARS, clip
from patchwright.runtime.path_guard import PathGuard, ToolInputError, path_error
from patchwright.runtime.skills.lint import find_new_syntax_error

WINDOW_LINES = 600  # Number of lines that one view shows.
_FEW_LINES = 10  # If a view ends at most so many lines before the end of the file, it shows them, too.
MAX_FILE_BYTES = 5 << 20  # Maximum bytes of a file that can be viewed or edited.
MAX_UNDO_BYTES = 32 << 20  # Maximum bytes of earlier contents that are kept for undo.
_MAX_SEARCHED_LINES = 20_000  # Maximum number of lines that are searched for similar text.
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)  # Matches the line number that `_format_window` prints.
_MAX_OCCURRENCES = 1_000  # Maximum number of occurrences that are counted.


@dataclass(frozen=True, slots=True)
class TextFile:
    r"""The text of a file with "\n" line ends, and the details that are needed to restore the original bytes.

    Bytes that are not UTF-8 are represented by surrogates.
    """

    body: str
    crlf: bool = False
    bom: bool = False

    @classmethod
    def parse(cls, data: bytes) -> "TextFile":
        bom = data.startswith(b"\xef\xbb\xbf")
        body = data[3 if bom else 0 :].decode("utf-8", "surrogateescape")
        ends = body.count("\n")
        crlf = ends > 0 and body.count("\r\n") == ends  # Mixed line ends are not changed.
        return cls(body.replace("\r\n", "\n") if crlf else body, crlf, bom)

    def to_bytes(self) -> bytes:
        body = self.body.replace("\n", "\r\n") if self.crlf else self.body
        return (b"\xef\xbb\xbf" if self.bom else b"") + body.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class _Edit:
    path: Path
    before: bytes | None
    """Content of the file before the edit; None if the file did not exist."""
    after_digest: bytes
    """SHA-256 of the content after the edit."""


class Editor:
    """Edits the files of one work tree. Its methods block. They raise ToolInputError, whose message says what
    to do instead.
    """

    def __init__(self, paths: PathGuard, documents: DocumentReader | None = None) -> None:
        self._paths = paths
        self._documents = documents or DocumentReader()
        self._edits: deque[_Edit] = deque()

    def view(self, action: ViewFile) -> TextResult:
        real = self._paths.resolve(action.path)
        if real.is_dir():
            return TextResult(text=list_directory(real, self._paths.display_path(real)))
        document = self._documents.to_markdown(self._paths.resolve_file(action.path), action.path)
        lines = _split_lines(TextFile.parse(self._load(action.path)).body if document is None else document)
        if not lines:
            return TextResult(text="[the file is empty]")
        if action.start > len(lines):
            raise ToolInputError(
                "not_found", f"{action.path} has only {len(lines)} lines, so start cannot be {action.start}"
            )
        end = min(action.end or len(lines), action.start + WINDOW_LINES - 1, len(lines))
        if end < action.start:
            raise ToolInputError("malformed", f"end ({action.end}) is before start ({action.start})")
        if len(lines) - end <= _FEW_LINES:
            end = len(lines)
        return TextResult(text=_format_window(lines, action, end))

    def create(self, action: CreateFile) -> EditResult:
        real = self._paths.resolve(action.path)
        if real.is_dir():
            raise ToolInputError("exists", f"{action.path} is a directory: give the path of a file")
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            real.touch(exist_ok=False)
        except FileExistsError:
            raise ToolInputError(
                "exists",
                f"{action.path} already exists: change it with replace_text, or remove it first with run_shell",
            ) from None
        except OSError as error:
            raise path_error(action.path, error) from error
        return self._store(real, None, TextFile(action.content))

    def replace(self, action: ReplaceText) -> EditResult:
        if action.old == action.new:
            raise ToolInputError("malformed", "old and new are the same, so nothing would change")
        before = self._load(action.path)
        text = TextFile.parse(before)
        old, new = action.old, action.new
        if text.crlf:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        offsets = _find_occurrences(text.body, old)
        if not offsets and "\r\n" in text.body:  # The file has mixed line ends.
            old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
            offsets = _find_occurrences(text.body, old)
        if not offsets:
            raise ToolInputError("not_found", _explain_not_found(text.body, old, action.path))
        if len(offsets) > 1:
            line_numbers = ", ".join(str(text.body.count("\n", 0, start) + 1) for start in offsets[:20])
            at_least = "at least " if len(offsets) == _MAX_OCCURRENCES else ""
            raise ToolInputError(
                "ambiguous",
                f"old occurs {at_least}{len(offsets):,} times in {action.path}, at lines {line_numbers}: "
                "add surrounding lines to old, so that it occurs only once",
            )
        body = text.body[: offsets[0]] + new + text.body[offsets[0] + len(old) :]
        return self._store(self._paths.resolve_file(action.path), before, TextFile(body, text.crlf, text.bom))

    def insert(self, action: InsertText) -> EditResult:
        before = self._load(action.path)
        text = TextFile.parse(before)
        lines = text.body.split("\n")
        count = len(_split_lines(text.body))
        if action.line > count:
            raise ToolInputError(
                "not_found", f"{action.path} has {count} lines, so line must be from 0 to {count}"
            )
        text_to_insert = action.text.replace("\r\n", "\n") if text.crlf else action.text
        above, below = "\n".join(lines[: action.line]), "\n".join(lines[action.line :])
        if action.line:
            above += "\n"
        body = above + (text_to_insert if text_to_insert.endswith("\n") else text_to_insert + "\n") + below
        return self._store(self._paths.resolve_file(action.path), before, TextFile(body, text.crlf, text.bom))

    def undo(self, action: UndoEdit) -> EditResult:
        real = self._paths.resolve(action.path)
        edit = next((edit for edit in reversed(self._edits) if edit.path == real), None)
        if edit is None:
            raise ToolInputError(
                "not_found",
                f"there is no edit of {action.path} to undo: undo_edit undoes only edits by create_file, "
                "replace_text and insert_text. After the run continues in a new sandbox, older edits cannot be undone. "
                "To see all changes, use git diff",
            )
        try:
            current = real.read_bytes()
        except OSError as error:
            raise path_error(action.path, error) from error
        if hashlib.sha256(current).digest() != edit.after_digest:
            raise ToolInputError(
                "refused",
                f"{action.path} was changed after its last edit, for example by a command: use git or replace_text",
            )
        self._edits.remove(edit)
        if edit.before is None:
            real.unlink()
        else:
            real.write_bytes(edit.before)
        return self._edit_result(real, current, edit.before or b"")

    def _load(self, path: str) -> bytes:
        real = self._paths.resolve_file(path)
        try:
            if (size := real.stat().st_size) > MAX_FILE_BYTES:
                raise ToolInputError(
                    "too_large",
                    f"{path} is too large ({size:,} bytes): read parts of it with grep -n, sed -n or head in run_shell",
                )
            data = real.read_bytes()
        except OSError as error:
            raise path_error(path, error) from error
        if b"\0" in data:
            raise ToolInputError(
                "binary",
                f"{path} is a binary file: look at it with file, xxd or strings in run_shell "
                f"(view_file shows {READABLE_FORMATS})",
            )
        return data

    def _store(self, real: Path, before: bytes | None, text: TextFile) -> EditResult:
        try:
            data = text.to_bytes()
            # The file is written in place, so that its mode, owner and hard links do not change.
            real.write_bytes(data)
        except OSError as error:
            if before is None:
                real.unlink(missing_ok=True)
            else:
                real.write_bytes(before)
            raise ToolInputError(
                "io", f"{self._paths.display_path(real)} cannot be written: {error.strerror or error}"
            ) from error
        self._edits.append(_Edit(real, before, hashlib.sha256(data).digest()))
        while sum(len(edit.before or b"") for edit in self._edits) > MAX_UNDO_BYTES:
            self._edits.popleft()
        return self._edit_result(real, before or b"", data)

    def _edit_result(self, real: Path, before: bytes, after: bytes) -> EditResult:
        name = self._paths.display_path(real)
        old, new = (_to_valid_text(TextFile.parse(data).body) for data in (before, after))
        return EditResult(
            path=name,
            diff=clip(format_diff(old, new, name)),
            place=describe_place(old, new),
            warning=find_new_syntax_error(real, before or None, after),
        )


def _split_lines(body: str) -> list[str]:
    """Split the text into lines in the same way as grep and sed count them."""
    lines = body.split("\n")
    return lines if lines[-1] else lines[:-1]


def _to_valid_text(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _format_window(lines: list[str], action: ViewFile, end: int) -> str:
    shown: list[str] = []
    start, path, budget = action.start, action.path, MAX_CHARS
    for number in range(start, end + 1):
        label = f"{number}\t" if action.numbers else ""
        line = f"{label}{_fold_progress(_to_valid_text(lines[number - 1].rstrip(chr(13))))}\n"
        if (budget := budget - len(line)) < 0:
            end = number - 1
            break
        shown.append(line)
    if not shown:
        line = _to_valid_text(lines[start - 1])
        shown.append(
            f"{line[:MAX_CHARS]}\n[the first {MAX_CHARS:,} of {len(line):,} characters of this line; "
        )
        shown.append(
            f"to see more of it, use sed -n {start}p {path} | cut -c{MAX_CHARS + 1}-{2 * MAX_CHARS}]\n"
        )
        end = start
    if end < len(lines):
        shown.append(
            f"[lines {start}-{end} of {len(lines)}; the next are {end + 1}-{min(end + WINDOW_LINES, len(lines))}]"
        )
    else:
        shown.append(f"[lines {start}-{end} of {len(lines)}: the end of the file]")
    return "".join(shown)


def _fold_progress(line: str) -> str:
    """Return the last state of a line that a progress bar has overwritten many times."""
    states = line.count("\r")
    return (
        f"{line.rpartition(chr(13))[2]} [{states} earlier states of this line not shown]"
        if states > 2
        else line
    )


def _find_occurrences(body: str, part: str) -> list[int]:
    """Find all occurrences, including those that overlap: "aa" occurs twice in "aaa"."""
    offsets: list[int] = []
    offset = body.find(part)
    while offset >= 0 and len(offsets) < _MAX_OCCURRENCES:
        offsets.append(offset)
        offset = body.find(part, offset + 1)
    return offsets


def _explain_not_found(body: str, old: str, path: str) -> str:
    """Explain why `old` was not found, and show the most similar text."""
    without_numbers = _LINE_NUMBER.sub("", old)
    if without_numbers != old and without_numbers.strip() and without_numbers in body:
        return (
            f"`old` was not found in {path}, because it contains the line numbers that view_file shows: "
            "leave them out"
        )
    pattern = r"\s+".join(re.escape(word) for word in old.split()[:400])
    if old[0].isspace():
        # Without this, a longer word that begins or ends with the text would match, too.
        pattern = rf"(?<!\S){pattern}"
    if old[-1].isspace():
        pattern = rf"{pattern}(?!\S)"
    if old.strip() and (match := re.search(pattern, body)):
        line = body.count("\n", 0, match.start()) + 1
        exact = clip(_to_valid_text(match[0]), 2000)
        return f"`old` was not found in {path}, but line {line} has this text with different whitespace:\n{exact}"
    lines = _split_lines(body)[:_MAX_SEARCHED_LINES]
    wanted = max(old.split("\n"), key=lambda line: len(line.strip())).strip()
    by_text = {line.strip()[:500]: number for number, line in reversed(list(enumerate(lines, 1)))}
    close = get_close_matches(wanted[:500], by_text, n=3, cutoff=0.6)
    if not close:
        return f"`old` was not found in {path}, and no line is similar: view the file and copy the text from there"
    shown = "\n".join(f"{by_text[text]}\t{_to_valid_text(lines[by_text[text] - 1])[:500]}" for text in close)
    return f"`old` was not found in {path}. These lines are similar to `old`:\n{shown}"
