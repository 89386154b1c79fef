"""Finds or creates the key that encrypts the saved credentials.

The key is in the setting `credentials_key`, or in the file that this setting names. If it is not set, the key is in
the default key file next to the data directory, or in the system's keyring.

A missing key is created in the configured file. If no file is configured, it is created in the keyring. If the
package `keyring` is not installed or does not work, it is created in the default key file.
"""

import base64
import contextlib
import hashlib
import importlib
import importlib.util
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr

from patchwright.resolver.errors import SettingsError, describe_read_error
from patchwright.resolver.settings.server_settings import KEY_FILE_PREFIX, MIN_KEY_LENGTH, ServerSettings
from patchwright.runtime.frozen_model import FrozenModel

KEYRING_SERVICE = "patchwright"
MAX_KEY_BYTES = 10_000
HOW_TO_SET = (
    "set PATCHWRIGHT_CREDENTIALS_KEY to file:PATH, a file in a private directory that is kept across restarts"
)


class KeySettings(FrozenModel):
    """The operator's settings for the encryption key: the key itself, or the file that contains it. If no
    setting is configured, the default places are used.
    """

    key: SecretStr | None = None
    file: Path | None = None


def key_settings(settings: ServerSettings) -> KeySettings:
    """Returns the operator's settings for the encryption key."""
    return parse_key_setting(settings.credentials_key)


def parse_key_setting(value: object) -> KeySettings:
    """Parses the setting `credentials_key`, which may not be validated yet. Raises SettingsError."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text is None:
        return KeySettings()
    if not isinstance(text, str):
        raise SettingsError("credentials_key must be a string. Correct it.")
    if text.startswith(KEY_FILE_PREFIX):
        return KeySettings(file=Path(text.removeprefix(KEY_FILE_PREFIX)))
    return KeySettings(key=SecretStr(text))


class CredentialKey(FrozenModel):
    """The encryption key, and a description of where it comes from."""

    value: SecretStr
    source: str
    """Describes where the key comes from, for use in messages. An example is `the file
    /var/lib/patchwright.key`.
    """

    def encrypt(self, plain: bytes) -> str:
        return self._cipher().encrypt(plain).decode()

    def decrypt(self, token: str) -> bytes | None:
        """Returns the decrypted bytes; None if the token was encrypted with another key or was changed."""
        try:
            return self._cipher().decrypt(token.encode())
        except InvalidToken:
            return None

    def _cipher(self) -> Fernet:
        digest = hashlib.sha256(self.value.get_secret_value().encode()).digest()
        return Fernet(base64.urlsafe_b64encode(digest))


def default_key_file(data: Path) -> Path:
    """Returns the path of the default key file. The file is next to the data directory, so that a copy of the
    data directory does not contain the key.
    """
    data = data.absolute()
    return data.parent / f"{data.name}.key"


def find_key(data: Path, settings: KeySettings) -> CredentialKey | None:
    """Returns the existing key, or None if no key exists. Raises SettingsError if the key is unreadable or too
    short.
    """
    if settings.key is not None:
        return _checked(settings.key.get_secret_value(), "PATCHWRIGHT_CREDENTIALS_KEY")
    file = settings.file or default_key_file(data)
    if (text := _read_key_file(file)) is not None:
        return _checked(text, f"the file {file}")
    if settings.file is not None or (text := _read_keyring(data)) is None:
        return None
    return _checked(text, "the system's keyring")


def find_or_create_key(data: Path, settings: KeySettings) -> CredentialKey:
    """Returns the key, and creates it if there is none. Raises SettingsError."""
    if (key := find_key(data, settings)) is not None:
        return key
    text = secrets.token_urlsafe(32)
    if settings.file is None and _save_to_keyring(data, text):
        return _checked(text, "the system's keyring")
    file = settings.file or default_key_file(data)
    try:
        _create_key_file(file, text)
    except OSError as exc:
        raise SettingsError(
            f"The key that encrypts the saved credentials cannot be written to {file} ({exc.strerror}): "
            f"{HOW_TO_SET}."
        ) from exc
    key = find_key(data, settings)  # Another process may have created the file first.
    assert key is not None
    return key


def _checked(text: str, source: str) -> CredentialKey:
    if len(text.strip()) < MIN_KEY_LENGTH:
        raise SettingsError(
            f"The key in {source} has fewer than {MIN_KEY_LENGTH} characters. "
            "Create one with `openssl rand -base64 32`."
        )
    return CredentialKey(value=SecretStr(text.strip()), source=source)


def _read_key_file(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_KEY_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(
            f"The key file {file} cannot be read: {describe_read_error(exc)}. Make it readable for the server's user."
        ) from exc


def _create_key_file(file: Path, text: str) -> None:
    """Creates the key file with its whole content in one step. If the file already exists, does not change it.
    Raises OSError.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp creates the file with mode 0600. Linking it fails if the name is taken; renaming would not.
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".new-key-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(name, file)
    finally:
        Path(name).unlink()


def _keyring() -> Any:
    """Returns the optional package `keyring`; None if it is not installed."""
    return importlib.import_module("keyring") if importlib.util.find_spec("keyring") else None


def _read_keyring(data: Path) -> str | None:
    if (keyring := _keyring()) is None:
        return None
    try:
        found = keyring.get_password(KEYRING_SERVICE, str(data.absolute()))
    except keyring.errors.KeyringError:  # No backend, as on a server without a desktop.
        return None
    return None if found is None else str(found)


def _save_to_keyring(data: Path, text: str) -> bool:
    if (keyring := _keyring()) is None:
        return False
    try:
        keyring.set_password(KEYRING_SERVICE, str(data.absolute()), text)
    except keyring.errors.KeyringError:
        return False
    return _read_keyring(data) == text
