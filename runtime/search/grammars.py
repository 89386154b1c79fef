"""Finds the tree-sitter grammar for a file, and the places in the file where names are defined.

No other module of the search program imports tree-sitter. Without the feature `symbols`, no grammar is available.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

MAX_DEPTH = 400
"""Maximum nesting depth at which definitions are found. People do not write code that is nested deeper, and
the time of a query grows with the square of the depth.
"""
LANGUAGE_BY_SUFFIX = {
    **dict.fromkeys(("py", "pyi"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), "javascript"),
    **dict.fromkeys(("ts", "mts", "cts"), "typescript"),
    "tsx": "tsx",
    "go": "go",
    "rs": "rust",
    "java": "java",
    "c": "c",
    **dict.fromkeys(("h", "hh", "hpp", "hxx", "cc", "cpp", "cxx", "ino"), "cpp"),
    **dict.fromkeys(("rb", "rake", "gemspec"), "ruby"),
    "php": "php",
    **dict.fromkeys(("sh", "bash"), "bash"),
}
"""The language for each file suffix. A `.h` file may contain C or C++; the C++ grammar can parse both."""
QUERIES = Path(__file__).with_name("queries")
_QUERY_PARTS = {
    "javascript": ("ecmascript", "javascript"),
    **dict.fromkeys(("typescript", "tsx"), ("ecmascript", "typescript")),
    "cpp": ("c", "cpp"),
}
"""The files with the query of a language, if there are several."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition; line numbers start at 1."""

    name: str
    owner: str
    """The class or type in the first line of a method's definition: `Class` in `Class::method`, or the type of
    a Go receiver. Empty for all other definitions.
    """
    first_line: int
    last_line: int
    name_offset: int
    """Byte offset of the name in the file."""


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A file parsed with its grammar."""

    _root: "Node"
    _query: "Query"

    def definitions(self) -> list[Definition]:
        """Return the definitions in order. If two patterns find the same name at the same position, only the
        first result is kept.
        """
        from tree_sitter import QueryCursor

        found: dict[tuple[int, str], Definition] = {}
        cursor = QueryCursor(self._query)
        cursor.set_max_start_depth(MAX_DEPTH)
        for _, captures in cursor.matches(self._root):
            node, name = captures["symbol"][0], captures["name"][0]
            owner = captures.get("owner")
            defined = Definition(
                name=_node_text(name),
                owner=_node_text(owner[0]) if owner else "",
                first_line=node.start_point[0] + 1,
                last_line=max(node.start_point[0] + 1, node.end_point[0] + (node.end_point[1] > 0)),
                name_offset=name.start_byte,
            )
            found.setdefault((name.start_byte, defined.name), defined)
        return sorted(found.values(), key=lambda each: (each.first_line, -each.last_line, each.name_offset))

    def is_identifier(self, start: int, end: int) -> bool:
        """Return True if these bytes are an identifier in code. Return False in a comment or a string."""
        node = self._root.descendant_for_byte_range(start, end)
        if node is None or (node.start_byte, node.end_byte) != (start, end):
            return False
        return not any(word in node.type for word in ("comment", "string", "heredoc", "text"))


def detect_language(name: str) -> str | None:
    """Return the language of a file, found by the file's name. Return None if no grammar for it is installed."""
    language = LANGUAGE_BY_SUFFIX.get(name.rpartition(".")[2].lower()) if "." in name else None
    return language if language and _is_installed(language) else None


def parse_file(data: bytes, language: str) -> ParsedFile:
    """Parse a file. The file may contain syntax errors."""
    parser, query = _load_grammar(language)
    return ParsedFile(parser.parse(data).root_node, query)


@cache
def _is_installed(language: str) -> bool:
    return find_spec("tree_sitter") is not None and find_spec(_module_name(language)) is not None


def _module_name(language: str) -> str:
    return f"tree_sitter_{'typescript' if language == 'tsx' else language}"


@cache
def _load_grammar(language: str) -> "tuple[Parser, Query]":
    from tree_sitter import Language, Parser, Query

    module = import_module(_module_name(language))
    names = {"typescript": "language_typescript", "tsx": "language_tsx", "php": "language_php"}
    factory: Callable[[], object] = getattr(module, names.get(language, "language"))
    grammar = Language(factory())
    parts = [(QUERIES / f"{part}.scm").read_text() for part in _QUERY_PARTS.get(language, (language,))]
    return Parser(grammar), Query(grammar, "\n".join(parts))


def _node_text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")
