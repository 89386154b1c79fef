"""Stores the credentials from the setup in the data directory, encrypted and readable only by the server's
user.
"""

import contextlib
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.setup.credential_key import KeySettings, find_key, find_or_create_key, parse_key_setting
from patchwright.resolver.errors import SettingsError
from patchwright.runtime.frozen_model import FrozenModel

IDENTITY_SETTINGS = ("app_id", "private_key", "github_token")
"""The settings that configure a GitHub identity. If any of them is set, the saved App is not used."""
PRIVATE_DIRECTORY_MODE = 0o700
MAX_FILE_BYTES = 100_000


class RegisteredApp(FrozenModel):
    """The credentials of our App. GitHub returns them only once."""

    id: int
    slug: str
    html_url: str
    """URL of the App's page on GitHub."""
    client_id: str
    client_secret: str = Field(repr=False)
    private_key: str = Field(repr=False)
    webhook_secret: str | None = Field(repr=False)
    """The webhook's secret. None if the App has no webhook; the server then polls GitHub."""
    server: GitHubServer
    public_url: str | None
    """URL under which people open the server; None if unknown.

    If the App has a webhook, GitHub must be able to reach this URL. Without a webhook, the URL may work only on
    the server's own machine.
    """

    @property
    def install_url(self) -> str:
        """URL of the page on which people install the App."""
        return f"{self.html_url}/installations/new"


class ModelConnection(FrozenModel):
    """The name, base URL and API key of the model."""

    model: str = Field(min_length=1)
    model_base_url: str | None = None
    model_api_key: str | None = Field(default=None, repr=False)


class StoredSetup(FrozenModel):
    """Everything that the setup saves."""

    model: ModelConnection | None = None
    app: RegisteredApp | None = None


class EncryptedSetup(FrozenModel):
    """The content of the credentials file."""

    encrypted: str
    """A `StoredSetup` as JSON, encrypted with Fernet."""
    key_source: str
    """Describes where the key was stored when the file was written."""


NO_KEY = KeySettings()


def store_path(data: Path) -> Path:
    """Returns the path of the credentials file."""
    return data / "setup" / "credentials.json"


def load(data: Path, key: KeySettings = NO_KEY) -> StoredSetup:
    """Loads the saved credentials. The result is empty if no credentials are saved.

    Raises SettingsError if the file cannot be read or decrypted.
    """
    path, content = store_path(data), _read(data)
    if content is None:
        return StoredSetup()
    try:
        stored = EncryptedSetup.model_validate_json(content)
        found = find_key(data, key)
        plain = found.decrypt(stored.encrypted) if found else None
        if plain is None:
            now = f"now it is {found.source}" if found else "there is none now"
            raise SettingsError(
                f"{path} cannot be decrypted. Its key was {stored.key_source}; {now}. "
                "Restore that key, or delete the file and set up the server again."
            )
        return StoredSetup.model_validate_json(plain)
    except ValidationError:  # raised without the cause, whose message may contain the key
        raise SettingsError(
            f"{path} is invalid. Restore it from a backup, or delete it and set up the server again."
        ) from None


def has_credentials(data: Path) -> bool:
    """Returns True if credentials are saved. Raises SettingsError if the file cannot be read."""
    return _read(data) is not None


def _read(data: Path) -> bytes | None:
    path = store_path(data)
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None  # the same error is reported when credentials are saved
    except OSError as exc:
        raise SettingsError(
            f"{path} cannot be read: {exc.strerror}. Start the server as the user who set it up."
        ) from exc


def save(data: Path, stored: StoredSetup, key: KeySettings = NO_KEY) -> None:
    """Encrypts and saves the credentials atomically. Raises OSError, or SettingsError if there is no key."""
    path, found = store_path(data), find_or_create_key(data, key)
    encrypted = EncryptedSetup(
        encrypted=found.encrypt(stored.model_dump_json().encode()), key_source=found.source
    )
    path.parent.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    path.parent.chmod(PRIVATE_DIRECTORY_MODE)
    # mkstemp creates the file with mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(encrypted.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def check_writable(data: Path, key: KeySettings = NO_KEY) -> None:
    """Checks that credentials can be saved, and creates the encryption key if it does not exist yet.

    Raises OSError if a file cannot be written, or SettingsError if there is no place for the key.
    """
    directory = store_path(data).parent
    directory.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".new-") as file:
        file.write(b" " * MAX_FILE_BYTES)
        file.flush()
        os.fsync(file.fileno())
    find_or_create_key(data, key)


def add_saved_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `values` together with the settings from the saved setup. If both contain a setting, the value in
    `values` applies. Raises SettingsError.
    """
    stored = load(Path(str(values["data"])), parse_key_setting(values.get("credentials_key")))
    return {**to_setting_values(stored, values), **values}


def to_setting_values(stored: StoredSetup, explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings from the saved setup. Leaves out settings that the operator has configured elsewhere
    (`explicit`). Raises SettingsError.

    The saved values form three groups: the App with its key and the URL of its GitHub instance, the model with
    its key, and the OAuth client. If `explicit` contains a main setting of a group, the whole group is left
    out.
    """
    values: dict[str, Any] = {}
    if stored.model is not None and "model" not in explicit:
        values |= stored.model.model_dump(exclude_none=True)
    app = stored.app
    if app is None or _is_any_set(IDENTITY_SETTINGS, explicit):
        return values
    server = app.server.github_server_url
    if str(explicit.get("github_server_url", server)).rstrip("/") != server:
        raise SettingsError(
            f"GITHUB_SERVER_URL is not {server}, where this server's App was created. Remove that setting, or set "
            "PATCHWRIGHT_APP_ID and its private key as well."
        )
    values |= {"github_server_url": server, "app_id": str(app.id), "private_key": app.private_key}
    values |= {"webhook_secret": app.webhook_secret} if app.webhook_secret else {"poll": True}
    if app.public_url is not None:
        values["public_url"] = app.public_url
    has_address = "public_url" in {**values, **explicit}
    if has_address and not _is_any_set(("oauth_client_id", "oauth_client_secret"), explicit):
        values |= {"oauth_client_id": app.client_id, "oauth_client_secret": app.client_secret}
    return {key: value for key, value in values.items() if key not in explicit}


def _is_any_set(keys: Collection[str], explicit: Mapping[str, Any]) -> bool:
    return any(key in explicit for key in keys)


def find_readable_by_others(data: Path, key_file: Path | None = None) -> list[str]:
    """Lists the paths that other users on this machine can access, each followed by its mode. Checks the
    credentials file, its directory, and the key file.
    """
    path = store_path(data)
    return [
        f"{each} has mode {mode & 0o777:04o}"
        for each in (path.parent, path, key_file)
        if each is not None and each.exists() and (mode := each.stat().st_mode) & 0o077
    ]
