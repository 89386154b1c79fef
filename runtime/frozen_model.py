"""The base class of all immutable data classes."""

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Base class of immutable values. Two values with equal fields are equal. Unknown fields are rejected.

    Numbers must be finite, because JSON has no infinite numbers. Otherwise, an infinite number from a sandbox
    could be written to a log, but the log could not be read back.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
    )
