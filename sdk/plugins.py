"""Frozen values whose subclasses may come from other packages, and how these are found by name."""

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import (
    ConfigDict,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from patchwright.runtime.frozen_model import FrozenModel


class Extensible(FrozenModel):
    """Base class of values that go to JSON and come back as the same subclass.

    The JSON field `kind` is the name of the subclass. A subclass of another package is found if its module has been
    imported, or if its package declares it as an entry point of `entry_point_group`, with the class's name.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    entry_point_group: ClassVar[str] = ""

    @model_serializer(mode="wrap")
    def _add_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": type(self).__name__, **handler(self)}

    @model_validator(mode="wrap")
    @classmethod
    def _choose_class(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, dict) and "kind" not in value and cls.__name__.startswith("Base"):
            raise ValueError("the field `kind` is missing")
        if not isinstance(value, dict) or "kind" not in value:
            return handler(value)
        fields = {key: field for key, field in value.items() if key != "kind"}
        chosen = cls._find_class(str(value["kind"]))
        return handler(fields) if chosen is cls else chosen.model_validate(fields)

    @classmethod
    def _find_class(cls, kind: str) -> type[Self]:
        known = {
            found.__name__: found for found in _concrete_classes(cls) if not found.__name__.startswith("Base")
        }
        known |= {cls.__name__: cls} if cls.__name__ == kind else {}
        if kind not in known:
            loaded = load_entry_points(cls.entry_point_group)
            known |= {
                name: found
                for name, found in loaded.items()
                if isinstance(found, type) and issubclass(found, cls)
            }
        if kind not in known:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(sorted(known))}")
        return known[kind]


def _concrete_classes(base: type[Any]) -> Iterator[type[Any]]:
    if not getattr(base, "__abstractmethods__", None):
        yield base
    for subclass in base.__subclasses__():
        yield from _concrete_classes(subclass)


@cache
def load_entry_points(group: str) -> dict[str, Any]:
    """Loads the entry points of installed packages. Their code runs in this process, so installing such a package
    means trusting it.
    """
    from importlib.metadata import entry_points

    return {entry.name: entry.load() for entry in entry_points(group=group)}
