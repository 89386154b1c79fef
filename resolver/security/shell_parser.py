"""Parses a shell command into the programs that it would start, without running it."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from patchwright.runtime.frozen_model import FrozenModel

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMAND_LENGTH = 50_000  # characters; longer commands are not parsed
MAX_DEPTH = 4  # levels of `sh -c` inside `sh -c`
EXPANSION = "\0"
"""Stands for the parts of a word that only the shell can expand, such as `$x` or `$(...)`."""

# Programs that run the command in their arguments, and the options of these programs that take a value.
_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-C", "-h", "-p"}),
    "doas": frozenset({"-u"}),
    "env": frozenset({"-u", "-C"}),
    "timeout": frozenset({"-s", "-k"}),
    "nice": frozenset({"-n"}),
    "xargs": frozenset({"-I", "-n", "-P", "-L", "-d", "-a", "-s"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    **dict.fromkeys(
        ("nohup", "time", "exec", "command", "builtin", "setsid", "ionice", "busybox"), frozenset[str]()
    ),
}
# `env -S "git push"` splits the value into words and runs them. GNU env accepts the option in groups of short
# options, and as an abbreviated long option.
_SPLIT_OPTION = re.compile(r"(?:-[i0v]*S|--s[a-z-]*=?)(?P<value>.*)", re.DOTALL)
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})


class ShellProgram(FrozenModel):
    """A program that a command would start."""

    name: str
    """Name without its directory. It contains EXPANSION if only the shell can determine the name."""
    arguments: tuple[str, ...]
    output_files: tuple[str, ...] = ()
    """Files to which the program's output is redirected."""
    piped_from: tuple[str, ...] = ()
    """Programs that precede this program in its pipeline."""
    launchers: tuple[str, ...] = ()
    """Programs that start this program, such as `sudo`, `xargs` or a shell with `-c`."""


def parse_programs(command: str) -> tuple[ShellProgram, ...] | None:
    """Returns the programs of a command in order, or None if the command cannot be parsed."""
    if len(command) > MAX_COMMAND_LENGTH:
        return None
    return _parse_programs(command, 0)


@cache
def _get_parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _parse_programs(command: str, depth: int) -> tuple[ShellProgram, ...] | None:
    root = _get_parser().parse(command.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        return None
    programs: list[ShellProgram] = []
    for node in _iter_commands(root):
        inner = _parse_command(node, depth)
        if inner is None:
            return None
        programs += inner
    return tuple(programs)


def _iter_commands(root: "Node") -> Iterator["Node"]:
    """Yields every simple command, also inside substitutions, loops and functions.

    The function is not recursive, because the model could write a command that is nested too deeply for
    recursion.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "command":
            yield node
        stack += reversed(node.children)


def _parse_command(node: "Node", depth: int) -> list[ShellProgram] | None:
    """Returns the program of a simple command and the programs that this program starts."""
    words = [
        _get_word_text(child)
        for child in node.children
        if child.type != "variable_assignment" and not _is_redirect(child)
    ]
    if not words:
        return []
    launchers: list[str] = []
    while len(words) > 1 and (name := _get_basename(words[0])) in _WRAPPERS:
        launchers.append(name)
        words = _strip_wrapper(words[1:], name)
    if not words:
        return [ShellProgram(name=launchers[-1], arguments=())]
    name, arguments = _get_basename(words[0]), tuple(words[1:])
    program = ShellProgram(
        name=name,
        arguments=arguments,
        output_files=_get_output_files(node),
        piped_from=_get_piped_from(node),
        launchers=tuple(launchers),
    )
    script = _get_inline_script(name, arguments)
    if script is None or EXPANSION in script or depth == MAX_DEPTH:
        return [program]
    inner = _parse_programs(script, depth + 1)
    if inner is None:
        return None
    return [
        program,
        *(nested.model_copy(update={"launchers": (*launchers, name, *nested.launchers)}) for nested in inner),
    ]


def _strip_wrapper(words: list[str], wrapper: str) -> list[str]:
    """Returns the command that a wrapper program such as `env` or `timeout` runs. The wrapper's own options,
    variables and duration are left out.
    """
    while words and (words[0].startswith("-") or "=" in words[0].partition("/")[0]):
        if wrapper == "env" and (split := _SPLIT_OPTION.fullmatch(words[0])):
            values = [split["value"]] if split["value"] else words[1:2]
            words = [*_split_words("".join(values)), *words[1 if split["value"] else 2 :]]
        else:
            words = words[2:] if words[0] in _WRAPPERS[wrapper] else words[1:]
    return words[1:] if wrapper == "timeout" else words


def _split_words(text: str) -> list[str]:
    """Splits a string as `env -S` does. Its `\\_` is a space, and `${NAME}` is a variable."""
    try:
        return shlex.split(re.sub(r"\$\{\w*\}", EXPANSION, text.replace("\\_", " ")), comments=True)
    except ValueError:  # for example an unclosed quote
        return [EXPANSION]


def _get_inline_script(name: str, arguments: tuple[str, ...]) -> str | None:
    """Returns the script in the arguments of a shell or `eval`, or None if there is no script."""
    if name == "eval":
        return " ".join(arguments)
    if name in SHELLS:
        for option, text in pairwise(arguments):
            if option.startswith("-") and not option.startswith("--") and "c" in option:
                return text
    return None


def _get_output_files(node: "Node") -> tuple[str, ...]:
    ancestors = takewhile(
        lambda each: each.type in ("redirected_statement", "pipeline", "list"), _iter_ancestors(node)
    )
    return tuple(
        _get_word_text(child.children[-1])
        for ancestor in ancestors
        for child in ancestor.children
        if child.type == "file_redirect"
        and any(part.type in (">", ">>", "&>", "&>>", ">|") for part in child.children)
    )


def _iter_ancestors(node: "Node") -> Iterator["Node"]:
    outer = node.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def _get_piped_from(node: "Node") -> tuple[str, ...]:
    inner = node
    for ancestor in _iter_ancestors(node):
        if ancestor.type == "pipeline":
            before = [child for child in ancestor.children if child.end_byte <= inner.start_byte]
            names = (command for child in before for command in _iter_commands(child))
            return tuple(
                _get_basename(_get_word_text(command.children[0])) for command in names if command.children
            )
        if ancestor.type != "redirected_statement":
            break
        inner = ancestor
    return ()


def _is_redirect(node: "Node") -> bool:
    return node.type.endswith("_redirect")


def _get_basename(word: str) -> str:
    return word.rpartition("/")[2]


def _get_word_text(node: "Node") -> str:
    """Returns the text of a word without its quotes. EXPANSION replaces each part that only the shell can
    expand.
    """
    text = (node.text or b"").decode("utf-8", "replace")
    match node.type:
        case "raw_string":
            return text[1:-1]
        case (
            "simple_expansion"
            | "expansion"
            | "command_substitution"
            | "arithmetic_expansion"
            | "process_substitution"
        ):
            return EXPANSION
        case "string":
            if not any(child.is_named for child in node.children):
                return text[1:-1]
            return "".join(_get_word_text(child) for child in node.children if child.type != '"')
        case "concatenation" | "command_name":
            return "".join(_get_word_text(child) for child in node.children) if node.children else text
        case "string_content":
            return text
        case _:
            return text.replace("\\", "")
