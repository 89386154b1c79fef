"""Masks secrets in nested values."""

from typing import Any, Literal, TypeVar, get_origin

from patchwright.resolver.events import Trajectory
from patchwright.resolver.secrets import Secrets
from patchwright.runtime.frozen_model import FrozenModel

Value = TypeVar("Value", bound=FrozenModel)


def mask_trajectory(trajectory: Trajectory, secrets: Secrets) -> Trajectory:
    """Returns the run with all secrets masked, for readers who must not know the secrets."""
    return Trajectory(tuple(mask_model(entry, secrets) for entry in trajectory.entries))


def mask_model(value: Value, secrets: Secrets) -> Value:
    """Returns a copy of the model with the secrets masked in all string and bytes values. Fields with literal
    types are not changed.
    """
    fields = type(value).model_fields
    literal_fields = {name for name, field in fields.items() if get_origin(field.annotation) is Literal}
    masked = {
        name: mask_value(getattr(value, name), secrets) for name in fields if name not in literal_fields
    }
    return value.model_copy(update=masked)


def mask_value(value: Any, secrets: Secrets) -> Any:
    """Returns a copy of a model or of plain JSON data with every string and bytes value masked."""
    match value:
        case str() | bytes():
            return secrets.mask(value)
        case FrozenModel():
            return mask_model(value, secrets)
        case tuple():
            return tuple(mask_value(item, secrets) for item in value)
        case list():
            return [mask_value(item, secrets) for item in value]
        case dict():
            return {mask_value(key, secrets): mask_value(item, secrets) for key, item in value.items()}
        case _:
            return value
