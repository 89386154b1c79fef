"""The base class of all immutable values."""

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A value: immutable, equal by content, and strict about unknown fields.

    Numbers must be finite, because JSON has no infinite numbers. An infinite number from a sandbox could be
    written to a log but not read back.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
    )
