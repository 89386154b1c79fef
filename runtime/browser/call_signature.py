"""Describes the signature of a browser call for the prompt and the parser."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_type_hints

from pydantic import TypeAdapter

MAX_WAIT_MS = 30_000.0

Button = Literal["left", "middle", "right"]
Modifier = Literal["Alt", "Control", "Meta", "Shift"]
Category = Literal["agent", "navigation", "elements", "files", "coordinates", "keyboard", "tabs"]
CallSet = Literal["web", "navigation", "elements", "files", "coordinates", "keyboard", "tabs"]
"""A set of calls that an operator can allow: a category, or `web`, the calls that most tasks need."""


@dataclass(frozen=True, slots=True)
class CallSignature:
    """The description of one call for a model."""

    name: str
    category: Category
    text: str
    """The call with its arguments, their types and their defaults."""
    description: str
    examples: tuple[str, ...]
    signature: inspect.Signature
    types: Mapping[str, TypeAdapter[object]]


_Method = TypeVar("_Method", bound=Callable[..., Awaitable[None]])


def declare_call(category: Category, *examples: str) -> Callable[[_Method], _Method]:
    """Attach a CallSignature to a method of CallExecutor. Its docstring becomes the description."""

    def declare(method: _Method) -> _Method:
        bound, hints = inspect.signature(method), get_type_hints(method)
        bound = bound.replace(parameters=[*bound.parameters.values()][1:])  # without `self`
        method.__dict__["call_signature"] = CallSignature(
            name=method.__name__,
            category=category,
            text=f"{method.__name__}({', '.join(map(str, bound.parameters.values()))})".replace(
                "typing.", ""
            ),
            description=inspect.getdoc(method) or "",
            examples=examples,
            signature=bound,
            types={name: TypeAdapter(hints[name]) for name in bound.parameters},
        )
        return method

    return declare
