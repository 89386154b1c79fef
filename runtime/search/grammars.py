"""What tree-sitter knows of languages: which grammar reads a file, and which of its nodes define a name.

The only file that imports tree-sitter for the searcher; where the plugin `symbols` is not there, it knows no language.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

DEEPEST = 400
"""Nodes within nodes down to which definitions are looked for: what is deeper was not written by a person, and a
search in it takes time that grows with the square of its depth."""
SUFFIXES = {
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
"""A file's suffix -> its language. A `.h` may be C or C++, and the grammar of C++ reads both."""

_JAVASCRIPT = """
(function_declaration name: (identifier) @name) @symbol
(generator_function_declaration name: (identifier) @name) @symbol
(method_definition name: (_) @name) @symbol
(variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression) (generator_function) (class)]) @symbol
(program (lexical_declaration (variable_declarator name: (identifier) @name) @symbol))
(program (variable_declaration (variable_declarator name: (identifier) @name) @symbol))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @symbol))
"""
_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(class_declaration name: (type_identifier) @name) @symbol
(abstract_class_declaration name: (type_identifier) @name) @symbol
(interface_declaration name: (type_identifier) @name) @symbol
(type_alias_declaration name: (type_identifier) @name) @symbol
(enum_declaration name: (identifier) @name) @symbol
(internal_module name: (_) @name) @symbol
(function_signature name: (identifier) @name) @symbol
(method_signature name: (_) @name) @symbol
(abstract_method_signature name: (_) @name) @symbol
(public_field_definition name: (_) @name) @symbol
"""
)
_C = """
(function_definition declarator: (function_declarator declarator: (identifier) @name)) @symbol
(function_definition declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @name))) @symbol
(function_definition declarator: (pointer_declarator declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @name)))) @symbol
(struct_specifier name: (type_identifier) @name body: (_)) @symbol
(union_specifier name: (type_identifier) @name body: (_)) @symbol
(enum_specifier name: (type_identifier) @name body: (_)) @symbol
(type_definition declarator: (type_identifier) @name) @symbol
(preproc_def name: (identifier) @name) @symbol
(preproc_function_def name: (identifier) @name) @symbol
"""
_MEMBER = "(function_declarator declarator: (field_identifier) @name)"
_OWN = """scope: [(namespace_identifier) (template_type)] @owner
  name: [(identifier) (destructor_name) (operator_name)] @name"""
_QUALIFIED = f"""(function_declarator declarator: [(qualified_identifier {_OWN})
  (qualified_identifier name: (qualified_identifier {_OWN}))])"""

_QUERIES = {
    "python": """
(class_definition name: (identifier) @name) @symbol
(function_definition name: (identifier) @name) @symbol
(module (expression_statement (assignment left: (identifier) @name) @symbol))
(class_definition body: (block (expression_statement (assignment left: (identifier) @name) @symbol)))
(type_alias_statement left: (type (identifier) @name)) @symbol
""",
    "javascript": _JAVASCRIPT
    + """
(class_declaration name: (identifier) @name) @symbol
(field_definition property: (_) @name) @symbol
""",
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "go": """
(function_declaration name: (identifier) @name) @symbol
(method_declaration receiver: (parameter_list (parameter_declaration type: [
  (type_identifier) @owner
  (generic_type type: (type_identifier) @owner)
  (pointer_type [(type_identifier) @owner (generic_type type: (type_identifier) @owner)])]))
  name: (field_identifier) @name) @symbol
(type_spec name: (type_identifier) @name) @symbol
(type_alias name: (type_identifier) @name) @symbol
(const_spec name: (identifier) @name) @symbol
(source_file (var_declaration (var_spec name: (identifier) @name) @symbol))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @symbol)))
""",
    "rust": """
(function_item name: (identifier) @name) @symbol
(function_signature_item name: (identifier) @name) @symbol
(struct_item name: (type_identifier) @name) @symbol
(enum_item name: (type_identifier) @name) @symbol
(union_item name: (type_identifier) @name) @symbol
(trait_item name: (type_identifier) @name) @symbol
(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @symbol
(mod_item name: (identifier) @name body: (_)) @symbol
(type_item name: (type_identifier) @name) @symbol
(const_item name: (identifier) @name) @symbol
(static_item name: (identifier) @name) @symbol
(macro_definition name: (identifier) @name) @symbol
""",
    "java": """
(class_declaration name: (identifier) @name) @symbol
(interface_declaration name: (identifier) @name) @symbol
(enum_declaration name: (identifier) @name) @symbol
(record_declaration name: (identifier) @name) @symbol
(annotation_type_declaration name: (identifier) @name) @symbol
(method_declaration name: (identifier) @name) @symbol
(constructor_declaration name: (identifier) @name) @symbol
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @symbol
""",
    "c": _C,
    "cpp": _C
    + f"""
(class_specifier name: (_) @name body: (_)) @symbol
(namespace_definition name: (namespace_identifier) @name) @symbol
(alias_declaration name: (type_identifier) @name) @symbol
(function_definition declarator: (reference_declarator
  (function_declarator declarator: (identifier) @name))) @symbol
(function_definition declarator: {_MEMBER}) @symbol
(function_definition declarator: (pointer_declarator declarator: {_MEMBER})) @symbol
(function_definition declarator: (reference_declarator {_MEMBER})) @symbol
(function_definition declarator: {_QUALIFIED}) @symbol
(function_definition declarator: (pointer_declarator declarator: {_QUALIFIED})) @symbol
(function_definition declarator: (reference_declarator {_QUALIFIED})) @symbol
(field_declaration declarator: {_MEMBER}) @symbol
""",
    "ruby": """
(class name: [(constant) @name (scope_resolution name: (constant) @name)]) @symbol
(module name: [(constant) @name (scope_resolution name: (constant) @name)]) @symbol
(method name: (_) @name) @symbol
(singleton_method name: (_) @name) @symbol
(assignment left: (constant) @name) @symbol
""",
    "php": """
(class_declaration name: (name) @name) @symbol
(interface_declaration name: (name) @name) @symbol
(trait_declaration name: (name) @name) @symbol
(enum_declaration name: (name) @name) @symbol
(function_definition name: (name) @name) @symbol
(method_declaration name: (name) @name) @symbol
(const_declaration (const_element (name) @name) @symbol)
""",
    "bash": "(function_definition name: (word) @name) @symbol",
}
LANGUAGES = tuple(_QUERIES)


@dataclass(frozen=True, slots=True)
class Defined:
    """One definition: lines from 1, bytes of the name."""

    name: str
    owner: str
    """What it belongs to by its own words (a receiver, `Class::`); empty: by where it stands, if at all."""
    first: int
    last: int
    at: int
    """Where its name begins, in bytes."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file as its grammar reads it."""

    _root: "Node"
    _query: "Query"

    def definitions(self) -> list[Defined]:
        """What it defines, in order; of two that begin and end together the first."""
        from tree_sitter import QueryCursor

        found: dict[tuple[int, str], Defined] = {}
        cursor = QueryCursor(self._query)
        cursor.set_max_start_depth(DEEPEST)
        for _, captures in cursor.matches(self._root):
            node, name = captures["symbol"][0], captures["name"][0]
            owner = captures.get("owner")
            defined = Defined(
                name=_text(name),
                owner=_text(owner[0]) if owner else "",
                first=node.start_point[0] + 1,
                last=max(node.start_point[0] + 1, node.end_point[0] + (node.end_point[1] > 0)),
                at=name.start_byte,
            )
            found.setdefault((name.start_byte, defined.name), defined)
        return sorted(found.values(), key=lambda each: (each.first, -each.last, each.at))

    def is_name(self, start: int, end: int) -> bool:
        """Whether these bytes are a name of the program, not part of a comment or of a string."""
        node = self._root.descendant_for_byte_range(start, end)
        if node is None or (node.start_byte, node.end_byte) != (start, end):
            return False
        return not any(word in node.type for word in ("comment", "string", "heredoc", "text"))


def language_of(name: str) -> str | None:
    """The language of a file by its name, if there is a grammar for it here."""
    language = SUFFIXES.get(name.rpartition(".")[2].lower()) if "." in name else None
    return language if language and _is_here(language) else None


def parsed(data: bytes, language: str) -> Parsed:
    """A file's content, whatever is wrong with it."""
    parser, query = _reader(language)
    return Parsed(parser.parse(data).root_node, query)


@cache
def _is_here(language: str) -> bool:
    return find_spec("tree_sitter") is not None and find_spec(_module(language)) is not None


def _module(language: str) -> str:
    return f"tree_sitter_{'typescript' if language == 'tsx' else language}"


@cache
def _reader(language: str) -> "tuple[Parser, Query]":
    from tree_sitter import Language, Parser, Query

    module = import_module(_module(language))
    names = {"typescript": "language_typescript", "tsx": "language_tsx", "php": "language_php"}
    make: Callable[[], object] = getattr(module, names.get(language, "language"))
    grammar = Language(make())
    return Parser(grammar), Query(grammar, _QUERIES[language])


def _text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")
