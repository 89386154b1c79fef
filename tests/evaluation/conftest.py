"""Fixtures for the evaluation's tests."""

from pathlib import Path

import pytest

from tests.evaluation.evaluation_scenario import EvaluationScenario


@pytest.fixture
def evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvaluationScenario:
    return EvaluationScenario(tmp_path, monkeypatch)
