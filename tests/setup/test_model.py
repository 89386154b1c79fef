"""What the set-up says of a model that cannot be used."""

import json
import sys

import pytest

from bot.setup.kept import ChosenModel
from bot.setup.model import MOST_SAID, tried

KEY = "sk-typed-into-a-field"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("check PATCHWRIGHT_MODEL_API_KEY, or wait", "check the API key, or wait"),
        ("write PATCHWRIGHT_MODEL as provider/model", "write the name as provider/model"),
        ("check PATCHWRIGHT_MODEL_BASE_URL.", "check the address."),
        (
            "no reply within 60 s (PATCHWRIGHT_MODEL_TIMEOUT)",
            "no reply within 60 s (PATCHWRIGHT_MODEL_TIMEOUT)",
        ),
        (f"wrong key {KEY}", "wrong key ..."),
        ("x" * (MOST_SAID - 5) + KEY, "x" * (MOST_SAID - 5) + "..."),
    ],
)
async def test_its_fields_are_named_as_they_stand_there_and_its_key_never(said: str, told: str) -> None:
    probe = "import json, os, sys; print(os.environ['SAID']); sys.exit(1)"
    model = ChosenModel(model="openai/any", model_base_url=None, model_api_key=KEY)
    seen = await tried(model, [sys.executable, "-c", probe], {"SAID": json.dumps({"error": said})})
    assert seen.why == told
