"""Keeps the conversations of a test in its own directory."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_DATA", str(tmp_path / "data"))
