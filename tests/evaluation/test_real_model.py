"""The whole evaluation with a real model (script/test-evaluation)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BUDGET_USD = "5"


@pytest.mark.bench
@pytest.mark.timeout(7_200)
def test_a_real_model_is_evaluated_with_hidden_tests(tmp_path: Path) -> None:
    if "PATCHWRIGHT_MODEL" not in os.environ:
        pytest.skip("PATCHWRIGHT_MODEL names no model: see script/test-evaluation")
    command = [
        "evaluate",
        "smoke:",
        "--budget",
        BUDGET_USD,
        "--max-usd",
        "0.50",
        "--sandbox",
        "local",
        "--json",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "patchwright", *command, "--out", tmp_path / "results"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["instances"], found["broken"]) == (10, 0)
