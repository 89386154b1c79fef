"""docs/configuration.md says of every setting what the models of the settings say."""

import re
from pathlib import Path

import pytest

from patchwright.resolver.settings.settings import SENSITIVE_SETTINGS, RepoConfig, Settings
from tests.settings_reference import PAGE, READ_ON, TABLES, meanings, reference, table

ROOT = Path(__file__).parent.parent


def test_the_settings_reference_matches_the_models() -> None:
    page = PAGE.read_text()
    assert reference(page) == page, "write it anew: .venv/bin/python -m tests.settings_reference"


@pytest.mark.parametrize("model", [Settings, RepoConfig])
def test_every_setting_is_in_one_table(model: type[Settings] | type[RepoConfig]) -> None:
    shown = re.findall(r"^\| `([a-z_]+)`", "".join(map(table, TABLES.values())), re.MULTILINE)
    operators = [key for key in shown if key in Settings.model_fields]
    assert set(model.model_fields) - set(shown) == set()
    assert len(operators) == len(set(operators)) + len(Settings.model_fields.keys() & RepoConfig.model_fields)


def test_a_setting_is_listed_with_its_variable_type_and_default() -> None:
    lines = table(TABLES["runs"]).splitlines()
    assert lines[0] == "| setting | environment, option | takes | default | meaning |"
    (shown,) = (line for line in lines if line.startswith("| `timeout` |"))
    assert shown.startswith(
        "| `timeout` | `PATCHWRIGHT_TIMEOUT`, `--timeout` | whole number, at least 10 | `3600` | Maximum number of"
    )
    assert [line for line in lines if "`secrets_file` †" in line] != []
    assert "secrets_file" in SENSITIVE_SETTINGS


def test_every_further_link_belongs_to_a_setting() -> None:
    known = {key for model in TABLES.values() for key, _, _ in meanings(model)}
    assert READ_ON.keys() - known == set()
