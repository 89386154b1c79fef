"""The App's private key, from its setting or from a file."""

from pathlib import Path

import pytest

from patchwright.bot.credentials import read_private_key
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import build_settings

PEM = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"


def read(tmp_path: Path, value: str) -> str:
    key = read_private_key(build_settings({"data": tmp_path, "private_key": value}))
    assert key is not None
    return key.get_secret_value()


def test_a_private_key_is_the_value_or_in_the_file_that_the_value_names(tmp_path: Path) -> None:
    (tmp_path / "app.pem").write_text(PEM)
    assert read(tmp_path, PEM) == read(tmp_path, str(tmp_path / "app.pem")) == PEM


@pytest.mark.parametrize("value", ["c2VjcmV0" * 300, "c2VjcmV0\0", "c2VjcmV0"])
def test_a_value_that_is_neither_a_key_nor_a_file_is_not_repeated(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match="PATCHWRIGHT_PRIVATE_KEY is neither a private key") as caught:
        read(tmp_path, value)
    assert "c2VjcmV0" not in str(caught.value)
