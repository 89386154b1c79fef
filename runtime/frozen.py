"""What every value of ours is made of."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: immutable, equal by content, and strict about unknown fields.

    Its numbers are finite: JSON has no others, so that one from a sandbox could be written to a log, but not read.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
    )
