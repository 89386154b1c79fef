"""Tests whether a model can drive the agent: runs `patchwright probe` in a child process."""

import asyncio
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchwright.bot.child_process import stop_process, with_parent_death_signal
from patchwright.bot.setup.credential_store import ModelConnection
from patchwright.resolver.errors import EndpointDown
from patchwright.resolver.settings.server_settings import REJECTED_KEY_ADVICE
from patchwright.resolver.settings.settings import environment_variable

TIMEOUT_SECONDS = 90.0  # time limit for one or two small calls
MAX_ERROR_LENGTH = 500  # maximum characters of an error message
TEXT_TOOLS_ERROR = (
    "it calls tools only as text. Set PATCHWRIGHT_TOOL_CALLING=text in the server's environment, restart the "
    "server, and test again."
)
_REJECTED_KEY_ADVICE = f": {REJECTED_KEY_ADVICE}"
_MISSING_KEY = re.compile(r"(\w+) is not set\. Set it to your API key for ")
# Maps environment variables to fields of the form. The command's error messages name environment variables,
# but the person sees the form.
_FIELD_LABELS = {"model": "the model name", "model_base_url": "the base URL", "model_api_key": "the API key"}


@dataclass(frozen=True)
class ModelProbeResult:
    """Result of a model test."""

    error: str | None = None
    """The reason why the model does not work; None if the model works."""
    is_access_denied: bool = False
    """True if the model cannot work as entered, for example with a wrong key."""
    has_known_price: bool = True
    """False if the price of the model is unknown."""


async def probe_model(
    model: ModelConnection, probe_command: Sequence[str], environment: Mapping[str, str]
) -> ModelProbeResult:
    """Tests a model with one small call. Runs `probe_command` with environment variables that contain the
    model's name, URL and key.
    """
    model_environment = {
        environment_variable(key): value for key, value in model.model_dump(exclude_none=True).items()
    }
    process = await asyncio.create_subprocess_exec(
        *with_parent_death_signal(probe_command),
        env={**environment, **model_environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        return ModelProbeResult(f"no response within {TIMEOUT_SECONDS:.0f} s")
    finally:
        await stop_process(process, timeout=5)
    if process.returncode == 0:
        return ModelProbeResult(has_known_price=_has_price(output))
    error, is_access_denied = _parse_failure(output)
    if missing := _MISSING_KEY.match(error):
        error = (
            f"Enter the API key: the field is empty, and the server's environment has no {missing[1]}. "
            "If your own endpoint needs no key, enter any text."
        )
    if model.model_api_key:  # the person typed the key, so no variable is wrong
        error = error.replace(
            _REJECTED_KEY_ADVICE, ". Check that the key is complete and belongs to this provider."
        )
    for key, label in _FIELD_LABELS.items():
        error = re.sub(rf"\b{environment_variable(key)}\b", label, error)
    if model.model_api_key:  # a provider's error message may contain the rejected key
        error = error.replace(model.model_api_key, "...")
    return ModelProbeResult(error[:MAX_ERROR_LENGTH], is_access_denied=is_access_denied)


def _has_price(output: bytes) -> bool:
    try:
        return isinstance(json.loads(output)["models"][0]["usage"]["usd"], str)
    except (ValueError, LookupError, TypeError):
        return False


def _parse_failure(output: bytes) -> tuple[str, bool]:
    """Returns the error message, and whether the provider or Patchwright rejected what the person entered."""
    try:
        result = json.loads(output)
        if "error" in result:
            # The person may start an endpoint later, but must correct every other entry.
            return str(result["error"]), result.get("kind") != EndpointDown.__name__
        probe = result["models"][0]
        if probe["tool_calling"] == "text":
            return TEXT_TOOLS_ERROR, False
        return str(probe["reason"]), bool(probe["is_access_denied"])
    except (ValueError, LookupError, TypeError):
        return "the model could not be tested", False
