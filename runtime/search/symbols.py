"""Names that code defines and uses: by tree-sitter where there is a grammar, else by a pattern, and it says which."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from runtime.search import grammars
from runtime.search.found_lines import Line, printable
from runtime.search.grammars import Defined

SIGNATURE = 160  # characters of a definition's first line
LONGEST = 200  # characters of what something belongs to, the last ones
USES = 5_000  # of one name that are looked at in one file
DEEPEST = 20  # levels of an outline that are told apart

# A definition at the beginning of a line, in most languages: words that may stand before it, the word that makes it
# one, its name. Control words and calls do not fit; a definition with an unusual form is missed.
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
    inside: str
    """What it belongs to, from the outermost: `Outer.Inner`; empty: nothing."""
    first: int
    last: int | None
    """None: found by a pattern, which does not know the end."""
    depth: int
    text: str
    """Its first line, without indentation."""
    at: int
    """Where its name begins, in bytes."""

    @property
    def full(self) -> str:
        return f"{self.inside}.{self.name}" if self.inside else self.name


@dataclass(frozen=True, slots=True)
class Source:
    """One file's content and what defines something in it."""

    path: str
    data: bytes
    language: str | None
    """None: there is no grammar for it here."""

    @classmethod
    def of(cls, path: str, data: bytes) -> "Source":
        return cls(path, data, grammars.language_of(path))

    def symbols(self) -> list[Symbol]:
        """What it defines, in order."""
        lines = self.data.split(b"\n")
        if self.language is None:
            return [_symbol(each, lines, "", 0, ended=False) for each in _by_pattern(self.data)]
        found, outer = [], list[Symbol]()
        for each in grammars.parsed(self.data, self.language).definitions():
            while outer and (outer[-1].last or 0) < each.last:
                outer.pop()
            inside = ".".join(filter(None, [outer[-1].full if outer else "", each.owner]))[-LONGEST:]
            symbol = _symbol(each, lines, inside, min(len(outer), DEEPEST), ended=True)
            found.append(symbol)
            if each.last > each.first:
                outer.append(symbol)
        return found

    def references(self, name: str) -> Iterator[tuple[int, int]]:
        """Line and place in bytes of each use of a name: in code alone where there is a grammar, else anywhere."""
        parsed = grammars.parsed(self.data, self.language) if self.language else None
        line, last = 1, 0
        for match in islice(whole(name).finditer(self.data), USES):
            line, last = line + self.data.count(b"\n", last, match.start()), match.start()
            if parsed is None or parsed.is_name(*match.span()):
                yield line, match.start()


def whole(name: str) -> re.Pattern[bytes]:
    """A name, not part of a longer one."""
    return re.compile(rb"(?<![\w$])" + re.escape(name.encode("utf-8", "replace")) + rb"(?![\w$])")


def parts(query: str) -> tuple[str, str]:
    """What a name is asked to belong to, and the name: `Class.method`, `Class::method`, `Class#method`."""
    owner, _, name = re.sub(r"::|#|->", ".", query.strip().removesuffix("()")).rpartition(".")
    return owner, name


def definitions(source: Source, query: str) -> tuple[list[Line], list[tuple[int, Line]]]:
    """The definitions of a name in a file, and those whose names contain it, each with how far off it is."""
    owner, name = parts(query)
    exact: list[Line] = []
    others: list[tuple[int, Line]] = []
    for symbol in source.symbols():
        if symbol.name == name and _belongs(symbol, owner):
            exact.append(_definition(source.path, symbol))
        elif name.lower() in symbol.name.lower():
            others.append((len(symbol.name) - len(name), _definition(source.path, symbol)))
    return exact, others


def references(source: Source, name: str) -> list[Line]:
    """The lines of a file that use a name, each with what it stands in."""
    uses: dict[int, int] = {}
    for number, at in source.references(name):
        uses.setdefault(number, at)
    if not uses:
        return []
    symbols, lines = source.symbols(), source.data.split(b"\n")
    return [
        Line(
            source.path,
            number,
            printable(lines[number - 1].decode("utf-8", "replace").strip()),
            note=_where(symbols, number, at),
        )
        for number, at in uses.items()
    ]


def outline(source: Source) -> str:
    """What one file defines, each with its lines, indented by what it belongs to; of one line the outermost."""
    by_line = {symbol.first: symbol for symbol in reversed(source.symbols())}
    return "\n".join(
        f"{first}{f'-{symbol.last}' if symbol.last not in (None, first) else ''}: "
        f"{'  ' * symbol.depth}{symbol.text}"
        for first, symbol in sorted(by_line.items())
    )


def _belongs(symbol: Symbol, owner: str) -> bool:
    return not owner or f".{symbol.inside}".endswith(f".{owner}") or symbol.last is None


def _definition(path: str, symbol: Symbol) -> Line:
    return Line(path, symbol.first, symbol.text, symbol.last, f"in {symbol.inside}" if symbol.inside else "")


def _where(symbols: list[Symbol], line: int, at: int) -> str:
    """The innermost definition around a line."""
    around = ""
    for symbol in symbols:
        if symbol.at == at:
            return "its definition"
        if symbol.last is not None and symbol.first <= line <= symbol.last and symbol.last > symbol.first:
            around = symbol.full
    return f"in {around}" if around else ""


def _symbol(defined: Defined, lines: list[bytes], inside: str, depth: int, *, ended: bool) -> Symbol:
    text = lines[defined.first - 1].decode("utf-8", "replace").strip()
    return Symbol(
        name=defined.name,
        inside=inside,
        first=defined.first,
        last=defined.last if ended else None,
        depth=depth,
        text=printable(text, SIGNATURE),
        at=defined.at,
    )


def _by_pattern(data: bytes) -> Iterator[Defined]:
    line, last = 1, 0
    for match in _DEFINITION.finditer(data):
        at = match.start(match.lastindex or 0)
        line, last = line + data.count(b"\n", last, at), at
        name = match[match.lastindex or 0].decode("utf-8", "replace")
        yield Defined(name=name, owner="", first=line, last=line, at=at)
