"""Whether a model that somebody has typed in can drive the agent: `patchwright probe`, in a process of its own."""

import asyncio
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.child import dying_with_us, stop
from bot.setup.kept import ChosenModel
from resolver.settings.settings import variable

SECONDS = 90.0  # for one tiny call, or two
MOST_SAID = 500  # characters
# How the page calls what a command's own words call by its variable.
_FIELDS = {"model": "the name", "model_base_url": "the address", "model_api_key": "the API key"}


@dataclass(frozen=True)
class Tried:
    """What was seen of a model."""

    why: str | None = None
    """Why it cannot work here; None: it can."""
    priced: bool = True
    """Whether somebody knows what it costs."""


async def tried(model: ChosenModel, probe: Sequence[str], environment: Mapping[str, str]) -> Tried:
    """What comes of one tiny call. `probe`: the command that tries the model of its environment."""
    given = {variable(key): value for key, value in model.model_dump(exclude_none=True).items()}
    process = await asyncio.create_subprocess_exec(
        *dying_with_us(probe),
        env={**environment, **given},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        return Tried(f"it has not answered within {SECONDS:.0f} s")
    finally:
        await stop(process, seconds=5)
    if process.returncode == 0:
        return Tried(priced=_priced(said))
    why = _why(said)
    for key, field in _FIELDS.items():
        why = re.sub(rf"\b{variable(key)}\b", field, why)
    if model.model_api_key:  # a provider may quote the key that it does not take
        why = why.replace(model.model_api_key, "...")
    return Tried(why[:MOST_SAID])


def _priced(said: bytes) -> bool:
    try:
        return isinstance(json.loads(said)["models"][0]["usage"]["usd"], str)
    except (ValueError, LookupError, TypeError):
        return False


def _why(said: bytes) -> str:
    try:
        told = json.loads(said)
        why = told["error"] if "error" in told else told["models"][0]["why"]
    except (ValueError, LookupError, TypeError):
        why = "it could not be tried"
    return str(why)
