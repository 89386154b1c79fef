"""Error messages of the model test during the setup."""

import json
import sys

import pytest

from patchwright.bot.setup.credential_store import ModelConnection
from patchwright.bot.setup.model_probe import (
    MAX_ERROR_LENGTH,
    TEXT_TOOLS_ERROR,
    ModelProbeResult,
    probe_model,
)

KEY = "sk-typed-into-a-field"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("check PATCHWRIGHT_MODEL_API_KEY, or wait", "check the API key, or wait"),
        ("write PATCHWRIGHT_MODEL as provider/model", "write the model name as provider/model"),
        ("check PATCHWRIGHT_MODEL_BASE_URL.", "check the base URL."),
        (
            "no reply within 60 s (PATCHWRIGHT_MODEL_TIMEOUT)",
            "no reply within 60 s (PATCHWRIGHT_MODEL_TIMEOUT)",
        ),
        (
            "OPENAI_API_KEY is not set. Set it to your API key for openai/any, or set PATCHWRIGHT_MODEL_API_KEY.",
            "Enter the API key: the field is empty, and the server's environment has no OPENAI_API_KEY. "
            "If your own endpoint needs no key, enter any text.",
        ),
        (f"wrong key {KEY}", "wrong key ..."),
        ("x" * (MAX_ERROR_LENGTH - 5) + KEY, "x" * (MAX_ERROR_LENGTH - 5) + "..."),
    ],
)
async def test_errors_name_the_form_fields_and_hide_the_key(error: str, expected: str) -> None:
    probe = "import json, os, sys; print(os.environ['SAID']); sys.exit(1)"
    model = ModelConnection(model="openai/any", model_base_url=None, model_api_key=KEY)
    result = await probe_model(model, [sys.executable, "-c", probe], {"SAID": json.dumps({"error": error})})
    assert result.error == expected


@pytest.mark.parametrize(
    ("tool_calling", "is_access_denied", "error"),
    [("none", True, "why"), ("none", False, "why"), ("text", False, TEXT_TOOLS_ERROR)],
)
async def test_a_failed_probe_tells_whether_the_entries_are_wrong(
    tool_calling: str, is_access_denied: bool, error: str
) -> None:
    found = {"tool_calling": tool_calling, "reason": "why", "is_access_denied": is_access_denied}
    probe = [sys.executable, "-c", "import os, sys; print(os.environ['SAID']); sys.exit(3)"]
    model = ModelConnection(model="openai/any")
    result = await probe_model(model, probe, {"SAID": json.dumps({"models": [found]})})
    assert result == ModelProbeResult(error, is_access_denied=is_access_denied)
