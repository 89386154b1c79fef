"""Finds the tree-sitter grammar for a file, and the places in the file where names are defined.

No other module of the search program imports tree-sitter. Without the feature `symbols`, no grammar is available.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
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
    return Parser(grammar), Query(grammar, _QUERIES[language])


def _node_text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")
