"""Values with every secret in them hidden, however deep it stands."""

from typing import Any, Literal, TypeVar, get_origin

from resolver.events import Trajectory
from resolver.secrets import Secrets
from runtime.frozen import Frozen

Value = TypeVar("Value", bound=Frozen)


def without_secrets(trajectory: Trajectory, secrets: Secrets) -> Trajectory:
    """The run as somebody may read it who may not know these secrets."""
    return Trajectory(tuple(redacted(entry, secrets) for entry in trajectory.entries))


def redacted(value: Value, secrets: Secrets) -> Value:
    """The value with each text and each bytes in it masked; words that we ourselves choose from are left."""
    fields = type(value).model_fields
    ours = {name for name, field in fields.items() if get_origin(field.annotation) is Literal}
    hidden = {name: _hidden(getattr(value, name), secrets) for name in fields if name not in ours}
    return value.model_copy(update=hidden)


def _hidden(value: Any, secrets: Secrets) -> Any:
    match value:
        case str() | bytes():
            return secrets.mask(value)
        case Frozen():
            return redacted(value, secrets)
        case tuple():
            return tuple(_hidden(each, secrets) for each in value)
        case list():
            return [_hidden(each, secrets) for each in value]
        case dict():
            return {_hidden(key, secrets): _hidden(each, secrets) for key, each in value.items()}
        case _:
            return value
