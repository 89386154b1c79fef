"""The search program. Its argument is a JSON request. It prints the results.

`code_search.py` starts it. Both the pattern and the files may be hostile. At the time limit, the search is
interrupted, even in the middle of a match, and the results so far are printed. If the request is invalid, the program
prints one line on standard error.
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

from patchwright.runtime.search import search_results, symbols
from patchwright.runtime.search.search_results import MAX_COUNTED_LINES, SearchHit, printable_line
from patchwright.runtime.search.source_files import (
    MAX_FILE_BYTES,
    SelectedFiles,
    is_too_large,
    read_source,
    select_files,
)
from patchwright.runtime.search.symbols import SourceFile

SEARCH_TIMEOUT = 20  # Seconds of one search.
CPU_SECONDS = 40
MEMORY_BYTES = 2 << 30  # bytes of address space
MAX_SIMILAR = 40  # Maximum number of definitions with similar names that are listed.
MALFORMED_EXIT_CODE = 2  # exit status for an invalid request


class SearchTimeout(BaseException):
    """The time limit was reached. A signal handler raises this exception, so it can occur at any point of the
    search.
    """


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.loads(sys.argv[1])
    # This also stops a pattern that would take years, because `re` checks for signals while it matches.
    signal.signal(signal.SIGALRM, _raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    try:
        files = select_files(Path(request["root"]), request["top"], request["glob"])
    except re.error as error:
        _exit_malformed(f"the path is not a valid glob ({error})")
    except SearchTimeout:
        _exit_malformed("the files could not be listed in time: name a directory as path")
    search = Search(files)
    match request["what"]:
        case "text":
            text = search.search_text(
                request["query"], literal=request["literal"], ignore_case=request["ignore_case"]
            )
        case "definitions":
            text = search.find_definitions(request["query"])
        case "references":
            text = search.find_references(request["query"])
        case _:
            text = search.render_outline()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def _raise_timeout(number: int, frame: FrameType | None) -> NoReturn:
    raise SearchTimeout


def _exit_malformed(message: str) -> NoReturn:
    print(" ".join(message.split())[:500], file=sys.stderr)
    sys.exit(MALFORMED_EXIT_CODE)


@dataclass
class Search:
    """One search through the selected files. When the time is up, the results that were found so far are
    kept.
    """

    files: SelectedFiles
    current_file: str = ""
    """The file that is being searched."""
    timed_out: bool = False
    searched_files: int = 0

    def search_text(self, query: str, *, literal: bool, ignore_case: bool) -> str:
        """Search for lines that match the query. If there are none, search again, with a less strict
        interpretation of the query.
        """
        flags = re.IGNORECASE if ignore_case else 0
        plain = re.escape(query)
        try:
            pattern = re.compile(plain if literal else query, flags)
        except (re.error, OverflowError, RecursionError) as error:
            hits = self._find_lines(re.compile(plain, flags))
            note = f"query is not a valid regular expression ({error}), so it was searched as plain text"
            return self._render(hits, "line", note)
        hits = self._find_lines(pattern)
        readings = [] if literal or plain == query else [("as plain text", re.compile(plain, flags))]
        if not ignore_case:
            readings.append(
                ("if upper and lower case are ignored", re.compile(pattern.pattern, re.IGNORECASE))
            )
        for reading, lenient in readings:
            if hits or self.timed_out:
                break
            if nearest := self._find_lines(lenient):
                return self._render(
                    nearest, "line", f"no line matches the query exactly; the lines above match it {reading}"
                )
        return self._render(hits, "line")

    def find_definitions(self, query: str) -> str:
        _, name = symbols.split_query(query)
        hits, _ = self._collect_definitions(symbols.whole_word_pattern(name), query)
        if hits or self.timed_out:
            return self._render(hits, "definition", self._unparsed_note(hits))
        similar_pattern = re.compile(re.escape(name.encode("utf-8", "replace")), re.IGNORECASE)
        _, others = self._collect_definitions(similar_pattern, query)
        similar_hits = [line for _, line in sorted(others, key=lambda other: other[0])[:MAX_SIMILAR]]
        note = (
            f"no definition is named exactly {printable_line(query)}; the definitions above have similar names"
            if similar_hits
            else ""
        )
        return self._render(similar_hits, "definition", note, self._unparsed_note(similar_hits))

    def find_references(self, query: str) -> str:
        owner, name = symbols.split_query(query)
        hits: list[SearchHit] = []
        try:
            for source in self._sources(symbols.whole_word_pattern(name)):
                hits += symbols.find_references(source, name)
                if len(hits) > MAX_COUNTED_LINES:
                    break
        except SearchTimeout:
            self.timed_out = True
        note = f"the search was for {printable_line(name)} in any class or module" if owner else ""
        return self._render(hits, "line", note, self._unparsed_note(hits))

    def render_outline(self) -> str:
        (path,) = self.files.names
        data = read_source(self.files.root / path)
        if data is None:
            _exit_malformed(f"{printable_line(path)} is not a text file of at most {MAX_FILE_BYTES:,} bytes")
        source = SourceFile.from_data(path, data)
        try:
            text = symbols.render_outline(source)
        except SearchTimeout:
            _exit_malformed(f"parsing {printable_line(path)} takes too long: use view_file")
        lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        grammar = source.language or "no parser for this language, so unusual definitions may be missing"
        head = f"[{search_results.display_path(path)}, {lines:,} lines; {grammar}]"
        if len(text) > search_results.MAX_CHARS:
            text = (
                text[: search_results.MAX_CHARS].rpartition("\n")[0]
                + "\n[the outline is too long and was cut: use view_file]"
            )
        return f"{head}\n{text or '[no definitions]'}"

    def _collect_definitions(
        self, contains: re.Pattern[bytes], query: str
    ) -> tuple[list[SearchHit], list[tuple[int, SearchHit]]]:
        """Return the definitions of a name, and those of similar names. Reads only files that match
        `contains`.
        """
        exact: list[SearchHit] = []
        others: list[tuple[int, SearchHit]] = []
        try:
            for source in self._sources(contains):
                hits, similar = symbols.find_definitions(source, query)
                exact += hits
                others += similar
        except SearchTimeout:
            self.timed_out = True
        return exact, others

    def _sources(self, contains: re.Pattern[bytes]) -> Iterator[SourceFile]:
        return (
            SourceFile.from_data(path, data) for path, data in self._read_files() if contains.search(data)
        )

    def _read_files(self) -> Iterator[tuple[str, bytes]]:
        self.searched_files = 0
        for path, real in self.files:
            self.current_file = path
            if (data := read_source(real)) is not None:
                self.searched_files += 1
                yield path, data

    def _find_lines(self, pattern: re.Pattern[str]) -> list[SearchHit]:
        hits: list[SearchHit] = []
        # The whole file is first searched for literal text, because this is much faster than searching each
        # line.
        literal = re.compile(pattern.pattern.encode("utf-8", "replace"), pattern.flags & re.IGNORECASE)
        file_pattern = literal if _is_plain(pattern.pattern) else None
        try:
            for path, data in self._read_files():
                if file_pattern is not None and not file_pattern.search(data):
                    continue
                for number, line in enumerate(
                    data.removesuffix(b"\n").decode("utf-8", "replace").split("\n"), start=1
                ):
                    if match := pattern.search(line):
                        text = printable_line(line.rstrip("\r"), around=match.start())
                        hits.append(SearchHit(path, number, text))
                        if len(hits) == MAX_COUNTED_LINES:
                            return hits
        except SearchTimeout:
            self.timed_out = True
        return hits

    def _render(self, hits: list[SearchHit], noun: str, *notes: str) -> str:
        signal.setitimer(signal.ITIMER_REAL, 0)
        large_files = [path for path, real in self.files if is_too_large(real)] if not self.timed_out else []
        names = ", ".join(map(search_results.display_path, large_files[:5]))
        skipped = f"files over {MAX_FILE_BYTES:,} bytes were not searched: {names}" if large_files else ""
        current = search_results.display_path(self.current_file)
        timeout_note = (
            f"stopped in {current} at the time limit: search one directory (path), or use a simpler pattern"
        )
        empty_note = f"no {noun} found in {self.searched_files:,} text files" if not hits else ""
        return search_results.render_results(
            hits, noun, empty_note, *notes, timeout_note if self.timed_out else "", self.files.note, skipped
        )

    def _unparsed_note(self, hits: list[SearchHit]) -> str:
        """Return a note about files that were not parsed."""
        suffixes = sorted(
            {
                f".{line.path.rpartition('.')[2]}"
                for line in hits
                if not SourceFile.from_data(line.path, b"").language
            }
        )
        if not suffixes:
            return ""
        return (
            f"there is no parser for {', '.join(suffixes[:8])} files, so some results may be wrong or missing"
        )


def _is_plain(pattern: str) -> bool:
    """True if the pattern is only literal text, which may contain escapes."""
    return pattern.isascii() and re.escape(re.sub(r"\\(.)", r"\1", pattern)) == pattern
