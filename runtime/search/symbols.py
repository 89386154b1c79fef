"""Finds definitions and references in code. If there is a grammar for a file, uses tree-sitter; otherwise
uses a pattern.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from patchwright.runtime.search import grammars
from patchwright.runtime.search.grammars import Definition
from patchwright.runtime.search.search_results import SearchHit, printable_line

MAX_SIGNATURE_CHARS = 160  # characters of a definition's first line
# Maximum characters of the names of enclosing definitions. If they are longer, their beginning is cut off.
MAX_SCOPE_CHARS = 200
MAX_USES = 5_000  # Maximum number of uses of one name that are examined in one file.
MAX_OUTLINE_DEPTH = 20  # Maximum number of indentation levels in an outline.

# Matches a definition at the beginning of a line, in most languages: modifiers, the keyword, the name. Does
# not match control words or calls. A definition in an unusual form is not found.
_DEFINITION = re.compile(
    rb"^[ \t]*(?:(?:export|default|public|private|protected|internal|static|abstract|final|sealed|async|open|override"
    rb"|virtual|partial|data|inline|extern|unsafe|const|pub(?:\([a-z]+\))?|local|suspend|declare|case)[ \t]+)*"
    rb"(?:class|interface|struct|enum|union|trait|impl|module|namespace|package|object|protocol|extension|record|actor"
    rb"|def|func|function|fn|fun|sub|macro_rules!|macro|type|typedef|typealias)[ \t]+"
    rb"(?:\([^)\n]*\)[ \t]*)?(?:self\.)?([^\W\d][\w$]*)"
    rb"|^(?:(?:export[ \t]+)?(?:const|let|var|val)[ \t]+)?([^\W\d][\w$]*)[ \t]*(?::[^=\n]+)?=[^=]"
    rb"|^[ \t]*#[ \t]*define[ \t]+([^\W\d]\w*)"
    rb"|^([^\W\d][\w-]*)[ \t]*\(\)[ \t]*\{",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition in a file."""

    name: str
    scope: str
    """Names of the enclosing definitions, starting with the outermost one, as in `Outer.Inner`. Empty for a
    definition at the top level.
    """
    first_line: int
    last_line: int | None
    """Last line of the definition. None if a pattern found the definition, because only a grammar
    finds the end.
    """
    depth: int
    text: str
    """First line of the definition, without indentation."""
    name_offset: int
    """Byte offset of the name."""

    @property
    def qualified_name(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The content of one file and its language."""

    path: str
    data: bytes
    language: str | None
    """Language of the file. None if no grammar for it is installed."""

    @classmethod
    def from_data(cls, path: str, data: bytes) -> "SourceFile":
        return cls(path, data, grammars.detect_language(path))

    def find_symbols(self) -> list[Symbol]:
        """Return the definitions in the file, in order."""
        lines = self.data.split(b"\n")
        if self.language is None:
            return [
                _to_symbol(definition, lines, "", 0, is_end_known=False)
                for definition in _find_by_pattern(self.data)
            ]
        symbols, enclosing = [], list[Symbol]()
        for definition in grammars.parse_file(self.data, self.language).definitions():
            while enclosing and (enclosing[-1].last_line or 0) < definition.last_line:
                enclosing.pop()
            scope = ".".join(
                filter(None, [enclosing[-1].qualified_name if enclosing else "", definition.owner])
            )[-MAX_SCOPE_CHARS:]
            symbol = _to_symbol(
                definition, lines, scope, min(len(enclosing), MAX_OUTLINE_DEPTH), is_end_known=True
            )
            symbols.append(symbol)
            if definition.last_line > definition.first_line:
                enclosing.append(symbol)
        return symbols

    def find_references(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield the line and the byte offset of each use of a name. If there is a grammar, leaves out uses in
        comments and strings.
        """
        parsed = grammars.parse_file(self.data, self.language) if self.language else None
        line, last = 1, 0
        for match in islice(whole_word_pattern(name).finditer(self.data), MAX_USES):
            line, last = line + self.data.count(b"\n", last, match.start()), match.start()
            if parsed is None or parsed.is_identifier(*match.span()):
                yield line, match.start()


def whole_word_pattern(name: str) -> re.Pattern[bytes]:
    """Return a pattern that matches the name only as a whole word."""
    return re.compile(rb"(?<![\w$])" + re.escape(name.encode("utf-8", "replace")) + rb"(?![\w$])")


def split_query(query: str) -> tuple[str, str]:
    """Split a query into owner and name: `Class.method`, `Class::method`, `Class#method`."""
    owner, _, name = re.sub(r"::|#|->", ".", query.strip().removesuffix("()")).rpartition(".")
    return owner, name


def find_definitions(source: SourceFile, query: str) -> tuple[list[SearchHit], list[tuple[int, SearchHit]]]:
    """Return two lists: the definitions that match the query, and definitions with similar names.

    A similar name contains the name from the query. Each entry of the second list begins with the number of
    additional characters in the similar name.
    """
    owner, name = split_query(query)
    exact: list[SearchHit] = []
    others: list[tuple[int, SearchHit]] = []
    for symbol in source.find_symbols():
        if symbol.name == name and _is_in_scope(symbol, owner):
            exact.append(_definition_hit(source.path, symbol))
        elif name.lower() in symbol.name.lower():
            others.append((len(symbol.name) - len(name), _definition_hit(source.path, symbol)))
    return exact, others


def find_references(source: SourceFile, name: str) -> list[SearchHit]:
    """Return the lines of a file that use a name. Each line comes with the definition that encloses it."""
    uses: dict[int, int] = {}
    for number, offset in source.find_references(name):
        uses.setdefault(number, offset)
    if not uses:
        return []
    symbols, lines = source.find_symbols(), source.data.split(b"\n")
    return [
        SearchHit(
            source.path,
            number,
            printable_line(lines[number - 1].decode("utf-8", "replace").strip()),
            note=_describe_location(symbols, number, offset),
        )
        for number, offset in uses.items()
    ]


def render_outline(source: SourceFile) -> str:
    """Return the definitions of a file with their lines, indented by their nesting. If several definitions
    start on the same line, lists only the outermost one.
    """
    by_line = {symbol.first_line: symbol for symbol in reversed(source.find_symbols())}
    return "\n".join(
        f"{first}{f'-{symbol.last_line}' if symbol.last_line not in (None, first) else ''}: "
        f"{'  ' * symbol.depth}{symbol.text}"
        for first, symbol in sorted(by_line.items())
    )


def _is_in_scope(symbol: Symbol, owner: str) -> bool:
    return not owner or f".{symbol.scope}".endswith(f".{owner}") or symbol.last_line is None


def _definition_hit(path: str, symbol: Symbol) -> SearchHit:
    return SearchHit(
        path, symbol.first_line, symbol.text, symbol.last_line, f"in {symbol.scope}" if symbol.scope else ""
    )


def _describe_location(symbols: list[Symbol], line: int, offset: int) -> str:
    """Describe the innermost definition that encloses a line."""
    enclosing = ""
    for symbol in symbols:
        if symbol.name_offset == offset:
            return "its definition"
        if (
            symbol.last_line is not None
            and symbol.first_line <= line <= symbol.last_line
            and symbol.last_line > symbol.first_line
        ):
            enclosing = symbol.qualified_name
    return f"in {enclosing}" if enclosing else ""


def _to_symbol(
    defined: Definition, lines: list[bytes], scope: str, depth: int, *, is_end_known: bool
) -> Symbol:
    text = lines[defined.first_line - 1].decode("utf-8", "replace").strip()
    return Symbol(
        name=defined.name,
        scope=scope,
        first_line=defined.first_line,
        last_line=defined.last_line if is_end_known else None,
        depth=depth,
        text=printable_line(text, MAX_SIGNATURE_CHARS),
        name_offset=defined.name_offset,
    )


def _find_by_pattern(data: bytes) -> Iterator[Definition]:
    line, last = 1, 0
    for match in _DEFINITION.finditer(data):
        offset = match.start(match.lastindex or 0)
        line, last = line + data.count(b"\n", last, offset), offset
        name = match[match.lastindex or 0].decode("utf-8", "replace")
        yield Definition(name=name, owner="", first_line=line, last_line=line, name_offset=offset)
