"""Classes that are imported when they are first used, so that a program with their names starts fast."""

import copyreg
from abc import ABCMeta
from importlib import import_module
from types import new_class
from typing import Any


class LazyClass(ABCMeta):
    """The type of a class that stands for the class of the same name in another module, and imports it on first use.

    Calls, attributes, subclasses and `isinstance` are those of the other class, whose instances are also instances of
    this one. The two are equal, but not identical.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        if bases:
            return new_class(name, tuple(map(_load, bases)), options, lambda body: body.update(namespace))
        return type.__new__(
            mcs, name, bases, namespace
        )  # ABCMeta.__new__ sets attributes, which would be forwarded.

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _load(cls)(*args, **kwargs)

    def __getattribute__(cls, name: str) -> Any:
        if name == "__get_pydantic_core_schema__":
            return type.__getattribute__(cls, name)
        loaded = _load(cls)
        return (cls, *loaded.__mro__[1:]) if name == "__mro__" else getattr(loaded, name)

    def __dir__(cls) -> list[str]:
        return dir(_load(cls))

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(_load(cls), name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(_load(cls), name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _load(cls))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(_load(subclass), _load(cls))

    def __eq__(cls, other: object) -> bool:
        return isinstance(other, type) and _load(cls) is _load(other)

    def __hash__(cls) -> int:
        return hash(_load(cls))

    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Lets a pydantic model have a field of this type."""
        return handler.generate_schema(_load(cls))


def _load(found: type) -> Any:
    """Returns the class for which a lazy class stands; any other class unchanged."""
    if type(found) is not LazyClass:
        return found
    read = type.__getattribute__
    loaded = getattr(import_module(read(found, "__module__")), read(found, "__name__"))
    type.__setattr__(found, "__doc__", loaded.__doc__)  # `help` reads it without __getattribute__.
    return loaded


copyreg.pickle(LazyClass, lambda lazy: (_load, (_load(lazy),)))
