"""Every setting stands in the configuration's tables."""

import re
from pathlib import Path

import pytest

from resolver.settings import RepoConfig, Settings

TEXT = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
NAMED = set(re.findall(r"`([a-z_]+)`", TEXT))


@pytest.mark.parametrize("model", [Settings, RepoConfig])
def test_every_setting_is_documented(model: type[Settings] | type[RepoConfig]) -> None:
    assert sorted(set(model.model_fields) - NAMED) == []
