"""Code in the browser's language -> its calls, or what is wrong with it. Pure; run by host and container alike."""

import ast
import difflib
import math
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from runtime.browser.calls import ALL, CALLS, Signature
from runtime.observations import Failed

MOST_CALLS = 50  # in one turn
_SHOWN = 80  # characters of a line that an error repeats


@dataclass(frozen=True, slots=True)
class Call:
    """One call, with all of its arguments, those of the defaults included."""

    name: str
    arguments: Mapping[str, object]
    line: int
    """Where it begins in the code, from 1."""
    text: str
    """Its first line, as it was written."""


_FENCED = re.compile(r"\A(\s*```(?:[A-Za-z]*[ \t]*\n)?)(.*?)\s*```\s*\Z", re.DOTALL)


class _Wrong(Exception):
    """A statement that is no call of the language."""


def parse(code: str, allowed: Collection[str] = ALL) -> tuple[Call, ...] | Failed:
    """The calls of the code, in order; or why none of them is run, with the line and what is right.

    One call a line, with literal arguments; comments, blank lines and a code fence around all of it are accepted.
    """
    if fenced := _FENCED.match(code):
        code = "\n" * fenced[1].count("\n") + fenced[2]
    begun = code.lstrip()
    code = "\n" * code[: len(code) - len(begun)].count("\n") + begun
    lines = code.split("\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that Python does not know stays as it is
            statements = ast.parse(code).body
    except SyntaxError as error:
        line = min(max(error.lineno or 1, 1), len(lines))
        return _malformed(line, f"{_quoted(lines, line)} cannot be read ({error.msg})")
    except (ValueError, MemoryError, RecursionError) as error:  # NUL, a lone surrogate, nesting without end
        return _malformed(1, f"the code cannot be read ({str(error) or 'too deeply nested'})")
    if len(statements) > MOST_CALLS:
        return _malformed(statements[MOST_CALLS].lineno, f"at most {MOST_CALLS} calls are run in one turn")
    calls = []
    for statement in statements:
        text = _quoted(lines, statement.lineno)
        try:
            calls.append(_read(statement, text))
        except _Wrong as wrong:
            return _malformed(statement.lineno, str(wrong))
    for call in calls:
        if call.name not in allowed:
            listed = ", ".join(name for name in ALL if name in allowed)
            message = f"line {call.line}: {call.name} may not be called here; nothing was run. Allowed are: {listed}"
            return Failed(reason="refused", message=message)
    return tuple(calls)


def _malformed(line: int, problem: str) -> Failed:
    hint = 'Write one call a line with literal arguments, as in click("12")'
    return Failed(reason="malformed", message=f"line {line}: {problem}; nothing was run. {hint}")


def _quoted(lines: list[str], line: int) -> str:
    return f"`{_short(lines[line - 1].strip())}`"


def _read(statement: ast.stmt, text: str) -> Call:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)):
            pass
        case _:
            raise _Wrong(f"{text} is not a call")
    if (signature := CALLS.get(name)) is None:
        near = difflib.get_close_matches(name, ALL, n=1)
        others = f"did you mean {near[0]}?" if near else f"there are {', '.join(ALL)}"
        raise _Wrong(f"there is no call {_short(name)}; {others}")
    positional = [_literal(arg, text) for arg in args]
    named = {keyword.arg or "**": _literal(keyword.value, text) for keyword in keywords}
    try:
        bound = signature.bound.bind(*positional, **named)
    except TypeError as error:
        raise _Wrong(f"{text}: {error}, but it is {signature.text}") from None
    bound.apply_defaults()
    arguments = {name: _checked(signature, name, value) for name, value in bound.arguments.items()}
    return Call(name, arguments, statement.lineno, text)


def _literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _Wrong(f"{text}: an argument is not a literal") from None


def _checked(signature: Signature, name: str, value: object) -> object:
    try:
        fit = signature.types[name].validate_python(value, strict=True)
    except ValidationError:
        pass
    else:
        if not (isinstance(fit, float) and not math.isfinite(fit)):
            return list(fit) if isinstance(fit, list) else fit
    if type(value) is int and signature.bound.parameters[name].annotation is str:
        raise _Wrong(f'{name} is a string: write "{value}"')
    raise _Wrong(f"{name} cannot be {_short(repr(value))}; the call is {signature.text}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
