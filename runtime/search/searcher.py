"""The program that searches a work tree: a JSON request as its argument, text on standard output.

Started by `search.py` beside it. Pattern and files may be hostile: a matching that does not end is interrupted at the
time limit, with what was found until then; whatever is wrong with the request is one line on standard error.
"""

import json
import re
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from runtime.search import found_lines, symbols
from runtime.search.found_lines import COUNTED, Line, printable
from runtime.search.source_files import LARGEST, Files, chosen, content, is_large
from runtime.search.symbols import Source

SECONDS = 20  # of one search
CPU_SECONDS = 40
MEMORY = 2 << 30  # bytes of address space
NEAREST = 40  # definitions of names like the one that was asked for
MALFORMED = 2  # exit status for a request that nothing can be found with


class TimeIsUp(BaseException):
    """Raised wherever the search is, by the clock."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.loads(sys.argv[1])
    # `re` looks for signals while it matches, so this ends also what would go on for years.
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    try:
        files = chosen(Path(request["root"]), request["top"], request["glob"])
    except re.error as error:
        _refuse(f"the path is no glob that can be read ({error})")
    except TimeIsUp:
        _refuse("the files could not be listed in time: name a directory as path")
    search = Search(files)
    match request["what"]:
        case "text":
            text = search.text(
                request["query"], literal=request["literal"], ignore_case=request["ignore_case"]
            )
        case "definitions":
            text = search.definitions(request["query"])
        case "references":
            text = search.references(request["query"])
        case _:
            text = search.outline()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def _time_is_up(number: int, frame: FrameType | None) -> NoReturn:
    raise TimeIsUp


def _refuse(message: str) -> NoReturn:
    print(" ".join(message.split())[:500], file=sys.stderr)
    sys.exit(MALFORMED)


@dataclass
class Search:
    """One search through some files; it keeps what it has seen when the time is up."""

    files: Files
    at: str = ""
    """The file that it is in."""
    late: bool = False
    searched: int = 0

    def text(self, query: str, *, literal: bool, ignore_case: bool) -> str:
        """Lines that hold the query; where there are none, those of the nearest other reading of it."""
        flags = re.IGNORECASE if ignore_case else 0
        plain = re.escape(query)
        try:
            asked = re.compile(plain if literal else query, flags)
        except (re.error, OverflowError, RecursionError) as error:
            found = self._lines(re.compile(plain, flags))
            why = f"not a regular expression ({error}), so it was taken as plain text"
            return self._told(found, "line", why)
        found = self._lines(asked)
        readings = [] if literal or plain == query else [("as plain text", re.compile(plain, flags))]
        if not ignore_case:
            readings.append(("with upper and lower case alike", re.compile(asked.pattern, re.IGNORECASE)))
        for how, other in readings:
            if found or self.late:
                break
            if nearest := self._lines(other):
                return self._told(
                    nearest, "line", f"no line matches it as it is; above is what it finds {how}"
                )
        return self._told(found, "line")

    def definitions(self, query: str) -> str:
        _, name = symbols.parts(query)
        found, _ = self._defining(symbols.whole(name), query)
        if found or self.late:
            return self._told(found, "definition", self._patterns(found))
        loosely = re.compile(re.escape(name.encode("utf-8", "replace")), re.IGNORECASE)
        _, others = self._defining(loosely, query)
        nearest = [line for _, line in sorted(others, key=lambda other: other[0])[:NEAREST]]
        near = f"nothing is named exactly {printable(query)}; above are names like it" if nearest else ""
        return self._told(nearest, "definition", near, self._patterns(nearest))

    def references(self, query: str) -> str:
        owner, name = symbols.parts(query)
        found: list[Line] = []
        try:
            for source in self._sources(symbols.whole(name)):
                found += symbols.references(source, name)
                if len(found) > COUNTED:
                    break
        except TimeIsUp:
            self.late = True
        by_name = f"found by the name {printable(name)} alone, whatever it belongs to" if owner else ""
        return self._told(found, "line", by_name, self._patterns(found))

    def outline(self) -> str:
        (path,) = self.files.names
        data = content(self.files.root / path)
        if data is None:
            _refuse(f"{printable(path)} is not a text file of at most {LARGEST:,} bytes")
        source = Source.of(path, data)
        try:
            text = symbols.outline(source)
        except TimeIsUp:
            _refuse(f"{printable(path)} takes too long to read: use view_file")
        lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        known = (
            source.language
            or "no grammar for it here: found by a pattern, which misses what is written unusually"
        )
        head = f"[{found_lines.name(path)}, {lines:,} lines; {known}]"
        if len(text) > found_lines.CHARACTERS:
            text = text[: found_lines.CHARACTERS].rpartition("\n")[0] + "\n[there is more: use view_file]"
        return f"{head}\n{text or '[it defines nothing]'}"

    def _defining(self, contains: re.Pattern[bytes], query: str) -> tuple[list[Line], list[tuple[int, Line]]]:
        """The definitions of a name and those of names like it, in files that contain something."""
        exact: list[Line] = []
        others: list[tuple[int, Line]] = []
        try:
            for source in self._sources(contains):
                found, near = symbols.definitions(source, query)
                exact += found
                others += near
        except TimeIsUp:
            self.late = True
        return exact, others

    def _sources(self, contains: re.Pattern[bytes]) -> Iterator[Source]:
        return (Source.of(path, data) for path, data in self._contents() if contains.search(data))

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        self.searched = 0
        for path, real in self.files:
            self.at = path
            if (data := content(real)) is not None:
                self.searched += 1
                yield path, data

    def _lines(self, pattern: re.Pattern[str]) -> list[Line]:
        found: list[Line] = []
        # What is literal is looked for in the whole file first, which is much faster than line by line.
        literal = re.compile(pattern.pattern.encode("utf-8", "replace"), pattern.flags & re.IGNORECASE)
        whole = literal if _is_plain(pattern.pattern) else None
        try:
            for path, data in self._contents():
                if whole is not None and not whole.search(data):
                    continue
                for number, line in enumerate(
                    data.removesuffix(b"\n").decode("utf-8", "replace").split("\n"), start=1
                ):
                    if match := pattern.search(line):
                        text = printable(line.rstrip("\r"), around=match.start())
                        found.append(Line(path, number, text))
                        if len(found) == COUNTED:
                            return found
        except TimeIsUp:
            self.late = True
        return found

    def _told(self, found: list[Line], what: str, *notes: str) -> str:
        signal.setitimer(signal.ITIMER_REAL, 0)
        large = [path for path, real in self.files if is_large(real)] if not self.late else []
        skipped = (
            f"not searched, over {LARGEST:,} bytes: {', '.join(map(found_lines.name, large[:5]))}"
            if large
            else ""
        )
        late = f"stopped at the time limit, in {found_lines.name(self.at)}: name a path, or a simpler pattern"
        nothing = f"no {what} found in {self.searched:,} text files" if not found else ""
        return found_lines.told(
            found, what, nothing, *notes, late if self.late else "", self.files.note, skipped
        )

    def _patterns(self, found: list[Line]) -> str:
        """That some of it was not parsed."""
        unparsed = sorted(
            {f".{line.path.rpartition('.')[2]}" for line in found if not Source.of(line.path, b"").language}
        )
        if not unparsed:
            return ""
        return f"no grammar here for {', '.join(unparsed[:8])}: these are found by a pattern, not parsed"


def _is_plain(pattern: str) -> bool:
    """Whether a pattern is only text that was escaped."""
    return pattern.isascii() and re.escape(re.sub(r"\\(.)", r"\1", pattern)) == pattern
