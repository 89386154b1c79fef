"""Parses browser calls, on the host and in the container. No function in this module has side effects."""

import ast
import difflib
import math
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from patchwright.runtime.browser.action_space import ALL_CALLS, CALLS
from patchwright.runtime.browser.call_signature import CallSignature
from patchwright.runtime.observations import ActionFailure

MAX_CALLS = 50  # maximum number of calls in one turn
_MAX_QUOTED = 80  # maximum characters of the line that an error message quotes


@dataclass(frozen=True, slots=True)
class BrowserCall:
    """One call with all its arguments, including defaults."""

    name: str
    arguments: Mapping[str, object]
    line: int
    """Number of the line that contains the call, counted from 1."""
    text: str
    """First line of the call, as the model wrote it."""


_CODE_FENCE = re.compile(r"\A(\s*```(?:[A-Za-z]*[ \t]*\n)?)(.*?)\s*```\s*\Z", re.DOTALL)


class _InvalidCall(Exception):
    """A statement that is not a valid call."""


def parse_calls(code: str, allowed: Collection[str] = ALL_CALLS) -> tuple[BrowserCall, ...] | ActionFailure:
    """Return the calls in their order in the code. If a call is invalid, return only an error, which names
    the call's line and its correct form.

    The code has one call per line, with literal arguments. Comments, blank lines and a code fence around the
    code are accepted.
    """
    if fenced := _CODE_FENCE.match(code):
        code = "\n" * fenced[1].count("\n") + fenced[2]
    stripped = code.lstrip()
    code = "\n" * code[: len(code) - len(stripped)].count("\n") + stripped
    lines = code.split("\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python keeps unknown escape sequences unchanged
            statements = ast.parse(code).body
    except SyntaxError as error:
        line = min(max(error.lineno or 1, 1), len(lines))
        return _malformed_failure(line, f"{_quote_line(lines, line)} cannot be read ({error.msg})")
    # The code contains NUL or a lone surrogate, or is nested too deep.
    except (ValueError, MemoryError, RecursionError) as error:
        return _malformed_failure(1, f"the code cannot be read ({str(error) or 'too deeply nested'})")
    if len(statements) > MAX_CALLS:
        return _malformed_failure(
            statements[MAX_CALLS].lineno, f"at most {MAX_CALLS} calls can run in one turn"
        )
    calls = []
    for statement in statements:
        text = _quote_line(lines, statement.lineno)
        try:
            calls.append(_parse_call(statement, text))
        except _InvalidCall as error:
            return _malformed_failure(statement.lineno, str(error))
    for call in calls:
        if call.name not in allowed:
            listed = ", ".join(name for name in ALL_CALLS if name in allowed)
            message = (
                f"line {call.line}: {call.name} is not allowed here; nothing was run. Allowed calls: {listed}"
            )
            return ActionFailure(reason="refused", message=message)
    return tuple(calls)


def _malformed_failure(line: int, problem: str) -> ActionFailure:
    hint = 'Write one call per line with literal arguments, as in click("12")'
    return ActionFailure(reason="malformed", message=f"line {line}: {problem}; nothing was run. {hint}")


def _quote_line(lines: list[str], line: int) -> str:
    return f"`{_truncate(lines[line - 1].strip())}`"


def _parse_call(statement: ast.stmt, text: str) -> BrowserCall:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)):
            pass
        case _:
            raise _InvalidCall(f"{text} is not a call")
    if (signature := CALLS.get(name)) is None:
        similar = difflib.get_close_matches(name, ALL_CALLS, n=1)
        others = f"did you mean {similar[0]}?" if similar else f"the calls are {', '.join(ALL_CALLS)}"
        raise _InvalidCall(f"there is no call {_truncate(name)}; {others}")
    positional = [_parse_literal(arg, text) for arg in args]
    named = {keyword.arg or "**": _parse_literal(keyword.value, text) for keyword in keywords}
    try:
        bound = signature.signature.bind(*positional, **named)
    except TypeError as error:
        raise _InvalidCall(f"{text}: {error}; the call is {signature.text}") from None
    bound.apply_defaults()
    arguments = {name: _validate_argument(signature, name, value) for name, value in bound.arguments.items()}
    return BrowserCall(name, arguments, statement.lineno, text)


def _parse_literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _InvalidCall(f"{text}: an argument is not a literal") from None


def _validate_argument(signature: CallSignature, name: str, value: object) -> object:
    try:
        validated = signature.types[name].validate_python(value, strict=True)
    except ValidationError:
        pass
    else:
        if not (isinstance(validated, float) and not math.isfinite(validated)):
            return list(validated) if isinstance(validated, list) else validated
    if type(value) is int and signature.signature.parameters[name].annotation is str:
        raise _InvalidCall(f'{name} is a string: write "{value}"')
    raise _InvalidCall(f"{name} cannot be {_truncate(repr(value))}; the call is {signature.text}")


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
