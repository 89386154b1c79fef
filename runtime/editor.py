"""View, create, replace, insert, undo: edits by exact text, each answered with its diff."""

import hashlib
import re
from collections import deque
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from runtime.actions import CreateFile, InsertText, ReplaceText, UndoEdit, ViewFile
from runtime.diff import unified
from runtime.documents.documents import READABLE, Documents
from runtime.listing import listing
from runtime.observations import Edited, Viewed
from runtime.skills.lint import new_syntax_error
from runtime.text import LIMIT, clip
from runtime.tree import Tree, Unfit, missing

WINDOW = 400  # lines
LARGEST = 5 << 20  # bytes of a file that can be viewed or edited
REMEMBERED = 32 << 20  # bytes of former contents kept for undo
_SEARCHED = 20_000  # lines looked through for something similar
_COUNTED = 1_000  # places of a text that is to be replaced, at most


@dataclass(frozen=True, slots=True)
class Text:
    """A text file with "\\n" line ends, and what is needed to write it back as it was.

    Bytes that are not UTF-8 are kept as surrogates.
    """

    body: str
    crlf: bool = False
    bom: bool = False

    @classmethod
    def parse(cls, data: bytes) -> "Text":
        bom = data.startswith(b"\xef\xbb\xbf")
        body = data[3 if bom else 0 :].decode("utf-8", "surrogateescape")
        ends = body.count("\n")
        crlf = ends > 0 and body.count("\r\n") == ends  # a mixture is left as it is
        return cls(body.replace("\r\n", "\n") if crlf else body, crlf, bom)

    def bytes(self) -> bytes:
        body = self.body.replace("\n", "\r\n") if self.crlf else self.body
        return (b"\xef\xbb\xbf" if self.bom else b"") + body.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class _Step:
    path: Path
    before: bytes | None
    """None: the file did not exist."""
    after: bytes
    """SHA-256 of what the edit left."""


class Editor:
    """Edits the files of one work tree. Methods block; they raise Unfit with what to do instead."""

    def __init__(self, tree: Tree, documents: Documents | None = None) -> None:
        self._tree = tree
        self._documents = documents or Documents()
        self._steps: deque[_Step] = deque()

    def view(self, action: ViewFile) -> Viewed:
        real = self._tree.find(action.path)
        if real.is_dir():
            return Viewed(text=listing(real, self._tree.name(real)))
        document = self._documents.text(self._tree.file(action.path), action.path)
        lines = _lines(Text.parse(self._load(action.path)).body if document is None else document)
        if not lines:
            return Viewed(text="[the file is empty]")
        if action.start > len(lines):
            raise Unfit("not_found", f"{action.path} has {len(lines)} lines, none from {action.start} on")
        end = min(action.end or len(lines), action.start + WINDOW - 1, len(lines))
        if end < action.start:
            raise Unfit("malformed", f"end ({action.end}) is before start ({action.start})")
        return Viewed(text=_window(lines, action.start, end, action.path))

    def create(self, action: CreateFile) -> Edited:
        real = self._tree.find(action.path)
        if real.is_dir():
            raise Unfit("exists", f"{action.path} is a directory: name a file")
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            real.touch(exist_ok=False)
        except FileExistsError:
            raise Unfit(
                "exists",
                f"{action.path} exists: change it with replace_text, or remove it first with run_shell",
            ) from None
        except OSError as error:
            raise missing(action.path, error) from error
        return self._store(real, None, Text(action.content))

    def replace(self, action: ReplaceText) -> Edited:
        if action.old == action.new:
            raise Unfit("malformed", "old and new are the same: nothing would change")
        before = self._load(action.path)
        text = Text.parse(before)
        old, new = action.old, action.new
        if text.crlf:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        found = _occurrences(text.body, old)
        if not found and "\r\n" in text.body:  # a file with mixed line ends
            old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
            found = _occurrences(text.body, old)
        if not found:
            raise Unfit("not_found", _nearest(text.body, old, action.path))
        if len(found) > 1:
            at = ", ".join(str(text.body.count("\n", 0, start) + 1) for start in found[:20])
            least = "at least " if len(found) == _COUNTED else ""
            raise Unfit(
                "ambiguous",
                f"old occurs {least}{len(found):,} times in {action.path}, at lines {at}: "
                "include more of the lines around the one you mean",
            )
        body = text.body[: found[0]] + new + text.body[found[0] + len(old) :]
        return self._store(self._tree.file(action.path), before, Text(body, text.crlf, text.bom))

    def insert(self, action: InsertText) -> Edited:
        before = self._load(action.path)
        text = Text.parse(before)
        lines = text.body.split("\n")
        count = len(_lines(text.body))
        if action.line > count:
            raise Unfit("not_found", f"{action.path} has {count} lines: insert after one of 0 to {count}")
        added = action.text.replace("\r\n", "\n") if text.crlf else action.text
        above, below = "\n".join(lines[: action.line]), "\n".join(lines[action.line :])
        if action.line:
            above += "\n"
        body = above + (added if added.endswith("\n") else added + "\n") + below
        return self._store(self._tree.file(action.path), before, Text(body, text.crlf, text.bom))

    def undo(self, action: UndoEdit) -> Edited:
        real = self._tree.find(action.path)
        step = next((step for step in reversed(self._steps) if step.path == real), None)
        if step is None:
            raise Unfit("not_found", f"no edit of {action.path} is left to undo")
        try:
            now = real.read_bytes()
        except OSError as error:
            raise missing(action.path, error) from error
        if hashlib.sha256(now).digest() != step.after:
            raise Unfit(
                "refused",
                f"{action.path} was changed by something else since its last edit: use git or replace_text",
            )
        self._steps.remove(step)
        if step.before is None:
            real.unlink()
        else:
            real.write_bytes(step.before)
        return self._edited(real, now, step.before or b"")

    def _load(self, path: str) -> bytes:
        real = self._tree.file(path)
        try:
            if (size := real.stat().st_size) > LARGEST:
                raise Unfit(
                    "too_large",
                    f"{path} has {size:,} bytes: read parts of it with grep -n, sed -n or head in run_shell",
                )
            data = real.read_bytes()
        except OSError as error:
            raise missing(path, error) from error
        if b"\0" in data:
            raise Unfit(
                "binary",
                f"{path} is a binary file: look at it with file, xxd or strings in run_shell "
                f"(view_file shows {READABLE})",
            )
        return data

    def _store(self, real: Path, before: bytes | None, text: Text) -> Edited:
        try:
            data = text.bytes()
            real.write_bytes(data)  # in place: mode, owner and hard links stay
        except OSError as error:
            if before is None:
                real.unlink(missing_ok=True)
            else:
                real.write_bytes(before)
            raise Unfit(
                "io", f"{self._tree.name(real)} cannot be written: {error.strerror or error}"
            ) from error
        self._steps.append(_Step(real, before, hashlib.sha256(data).digest()))
        while sum(len(step.before or b"") for step in self._steps) > REMEMBERED:
            self._steps.popleft()
        return self._edited(real, before or b"", data)

    def _edited(self, real: Path, before: bytes, after: bytes) -> Edited:
        name = self._tree.name(real)
        diff = unified(_shown(Text.parse(before).body), _shown(Text.parse(after).body), name)
        return Edited(path=name, diff=clip(diff), warning=new_syntax_error(real, before or None, after))


def _lines(body: str) -> list[str]:
    """Lines as grep and sed count them."""
    lines = body.split("\n")
    return lines if lines[-1] else lines[:-1]


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _window(lines: list[str], start: int, end: int, path: str) -> str:
    shown: list[str] = []
    room = LIMIT
    for number in range(start, end + 1):
        line = f"{number:6}\t{_shown(lines[number - 1].rstrip(chr(13)))}\n"
        if (room := room - len(line)) < 0:
            end = number - 1
            break
        shown.append(line)
    if not shown:
        line = _shown(lines[start - 1])
        shown.append(
            f"{start:6}\t{line[:LIMIT]}\n[the first {LIMIT:,} of {len(line):,} characters of this line; "
        )
        shown.append(f"see more of it with sed -n {start}p {path} | cut -c{LIMIT + 1}-{2 * LIMIT}]\n")
        end = start
    if end < len(lines):
        shown.append(
            f"[lines {start}-{end} of {len(lines)}; the next are {end + 1}-{min(end + WINDOW, len(lines))}]"
        )
    else:
        shown.append(f"[lines {start}-{end} of {len(lines)}: the end of the file]")
    return "".join(shown)


def _occurrences(body: str, part: str) -> list[int]:
    """Where a text occurs, overlapping ones too: "aa" is twice in "aaa"."""
    found: list[int] = []
    at = body.find(part)
    while at >= 0 and len(found) < _COUNTED:
        found.append(at)
        at = body.find(part, at + 1)
    return found


def _nearest(body: str, old: str, path: str) -> str:
    """Why `old` was not found, as far as can be seen."""
    flat = r"\s+".join(re.escape(word) for word in old.split()[:400])
    if old[0].isspace():
        flat = rf"(?<!\S){flat}"  # else a word that goes on would be shown as if it were the one asked for
    if old[-1].isspace():
        flat = rf"{flat}(?!\S)"
    if old.strip() and (match := re.search(flat, body)):
        line = body.count("\n", 0, match.start()) + 1
        exact = clip(_shown(match[0]), 2000)
        return f"old is not in {path}, but with other whitespace it is at line {line}:\n{exact}"
    lines = _lines(body)[:_SEARCHED]
    wanted = max(old.split("\n"), key=lambda line: len(line.strip())).strip()
    by_text = {line.strip()[:500]: number for number, line in reversed(list(enumerate(lines, 1)))}
    close = get_close_matches(wanted[:500], by_text, n=3, cutoff=0.6)
    if not close:
        return f"old is not in {path}, nor anything similar: view the file and copy the text from there"
    shown = "\n".join(f"{by_text[text]:6}\t{_shown(lines[by_text[text] - 1])[:500]}" for text in close)
    return f"old is not in {path}; the lines most like it are:\n{shown}"
