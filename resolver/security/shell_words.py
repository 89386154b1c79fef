"""A shell command as the programs that it would start, read without running it."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from runtime.frozen import Frozen

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMAND = 50_000  # characters; a longer one is not read
MAX_DEPTH = 4  # of `sh -c` in `sh -c`
UNKNOWN = "\0"
"""Stands in a word for a part that only the shell knows: `$x`, `$(...)`."""

# Programs that run what follows them, and their options that take a value.
_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-C", "-h", "-p"}),
    "doas": frozenset({"-u"}),
    "env": frozenset({"-u", "-C", "-S"}),
    "timeout": frozenset({"-s", "-k"}),
    "nice": frozenset({"-n"}),
    "xargs": frozenset({"-I", "-n", "-P", "-L", "-d", "-a", "-s"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    **dict.fromkeys(
        ("nohup", "time", "exec", "command", "builtin", "setsid", "ionice", "busybox"), frozenset[str]()
    ),
}
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})


class Program(Frozen):
    """One program that a command would start."""

    name: str
    """Without its directory; UNKNOWN in it where the shell decides."""
    arguments: tuple[str, ...]
    writes: tuple[str, ...] = ()
    """Files that its output is redirected to."""
    fed_by: tuple[str, ...] = ()
    """Programs before it in its pipeline."""
    through: tuple[str, ...] = ()
    """What starts it: `sudo`, `xargs`, a shell's `-c`."""


def programs(command: str) -> tuple[Program, ...] | None:
    """The programs of a command in order. None: it is not a command that can be read."""
    if len(command) > MAX_COMMAND:
        return None
    return _programs(command, 0)


@cache
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _programs(command: str, depth: int) -> tuple[Program, ...] | None:
    root = _parser().parse(command.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        return None
    found: list[Program] = []
    for node in _commands(root):
        inner = _of(node, depth)
        if inner is None:
            return None
        found += inner
    return tuple(found)


def _commands(root: "Node") -> Iterator["Node"]:
    """Every simple command, also in substitutions, loops and functions. Not recursive: nesting is the writer's."""
    left = [root]
    while left:
        node = left.pop()
        if node.type == "command":
            yield node
        left += reversed(node.children)


def _of(node: "Node", depth: int) -> list[Program] | None:
    """A simple command, and what it starts in turn."""
    words = [
        _word(child)
        for child in node.children
        if child.type != "variable_assignment" and not _is_redirect(child)
    ]
    if not words:
        return []
    through: list[str] = []
    while len(words) > 1 and (name := _base(words[0])) in _WRAPPERS:
        through.append(name)
        words = _wrapped(words[1:], _WRAPPERS[name], has_duration=name == "timeout")
    if not words:
        return [Program(name=through[-1], arguments=())]
    name, arguments = _base(words[0]), tuple(words[1:])
    own = Program(
        name=name, arguments=arguments, writes=_writes(node), fed_by=_fed_by(node), through=tuple(through)
    )
    script = _script(name, arguments)
    if script is None or UNKNOWN in script or depth == MAX_DEPTH:
        return [own]
    inner = _programs(script, depth + 1)
    if inner is None:
        return None
    return [own, *(each.model_copy(update={"through": (*through, name, *each.through)}) for each in inner)]


def _wrapped(words: list[str], valued: frozenset[str], *, has_duration: bool) -> list[str]:
    """What a wrapper runs: without its own options, assignments and duration."""
    while words and (words[0].startswith("-") or "=" in words[0].partition("/")[0]):
        words = words[2:] if words[0] in valued else words[1:]
    return words[1:] if has_duration else words


def _script(name: str, arguments: tuple[str, ...]) -> str | None:
    """The text that a shell, or eval, is given to run."""
    if name == "eval":
        return " ".join(arguments)
    if name in SHELLS:
        for option, text in pairwise(arguments):
            if option.startswith("-") and not option.startswith("--") and "c" in option:
                return text
    return None


def _writes(node: "Node") -> tuple[str, ...]:
    around = takewhile(
        lambda each: each.type in ("redirected_statement", "pipeline", "list"), _ancestors(node)
    )
    return tuple(
        _word(child.children[-1])
        for outer in around
        for child in outer.children
        if child.type == "file_redirect"
        and any(part.type in (">", ">>", "&>", "&>>", ">|") for part in child.children)
    )


def _ancestors(node: "Node") -> Iterator["Node"]:
    outer = node.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def _fed_by(node: "Node") -> tuple[str, ...]:
    inner = node
    for holder in _ancestors(node):
        if holder.type == "pipeline":
            before = [child for child in holder.children if child.end_byte <= inner.start_byte]
            names = (each for child in before for each in _commands(child))
            return tuple(_base(_word(each.children[0])) for each in names if each.children)
        if holder.type != "redirected_statement":
            break
        inner = holder
    return ()


def _is_redirect(node: "Node") -> bool:
    return node.type.endswith("_redirect")


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _word(node: "Node") -> str:
    """The text of a word after quoting, with UNKNOWN for what expands."""
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
            return UNKNOWN
        case "string":
            if not any(child.is_named for child in node.children):
                return text[1:-1]
            return "".join(_word(child) for child in node.children if child.type != '"')
        case "concatenation" | "command_name":
            return "".join(_word(child) for child in node.children) if node.children else text
        case "string_content":
            return text
        case _:
            return text.replace("\\", "")
