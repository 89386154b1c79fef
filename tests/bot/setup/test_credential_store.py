"""Saved credentials: atomic, private, and overridden by explicit settings. Setup codes and sessions."""

import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from patchwright.bot.composition import composition_root
from patchwright.bot.credentials import collect_secrets
from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.setup import credential_store
from patchwright.bot.setup.app_form import AppForm, parse_app_form
from patchwright.bot.setup.credential_key import KeySettings, default_key_file
from patchwright.bot.setup.credential_store import (
    ModelConnection,
    RegisteredApp,
    StoredSetup,
)
from patchwright.bot.setup.setup_code import MAX_WRONG_CODES, VALID_SECONDS, SetupCode, SetupSession
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings

APP = RegisteredApp(
    id=7, slug="bot", html_url="https://github.com/apps/bot", client_id="Iv1", client_secret="c" * 20,
    private_key="-----BEGIN RSA PRIVATE KEY-----", webhook_secret="w" * 20, server=GitHubServer(github_server_url="https://github.com"),
    public_url="https://bot.example",
)  # fmt: skip
MODEL = ModelConnection(model="openai/gpt-4o", model_api_key="sk-kept", model_base_url="https://m.example")


def settings(data: Path, found: StoredSetup, **environment: str) -> Settings:
    credential_store.save(data, found)
    environ = {"PATCHWRIGHT_DATA": str(data), "HOME": str(data), **environment}
    return composition_root.read_settings({}, environ, None, data)


def secret(value: Any) -> str:
    return str(value.get_secret_value())


def test_saved_credentials_become_settings(tmp_path: Path) -> None:
    loaded = settings(tmp_path, StoredSetup(app=APP, model=MODEL))
    assert (loaded.app_id, loaded.oauth_client_id, loaded.public_url) == ("7", "Iv1", "https://bot.example")
    assert (secret(loaded.private_key), secret(loaded.webhook_secret)) == (APP.private_key, "w" * 20)
    assert (loaded.model, secret(loaded.model_api_key), loaded.model_base_url) == (
        "openai/gpt-4o", "sk-kept", "https://m.example",
    )  # fmt: skip
    assert not loaded.poll


def test_an_app_without_a_webhook_enables_polling(tmp_path: Path) -> None:
    loaded = settings(
        tmp_path, StoredSetup(app=APP.model_copy(update={"webhook_secret": None, "public_url": None}))
    )
    assert (loaded.poll, loaded.webhook_secret, loaded.oauth_client_id) == (True, None, None)


def test_explicit_settings_override_saved_ones_group_by_group(tmp_path: Path) -> None:
    found = StoredSetup(app=APP, model=MODEL)
    other = settings(
        tmp_path, found, PATCHWRIGHT_MODEL="anthropic/claude", PATCHWRIGHT_PUBLIC_URL="https://b.example"
    )
    # The key of one provider must not be sent to another.
    assert (other.model, other.model_api_key, other.model_base_url) == ("anthropic/claude", None, None)
    assert (other.app_id, other.public_url) == ("7", "https://b.example")
    token = settings(tmp_path, found, GITHUB_TOKEN="ghp_x")
    assert (token.app_id, token.private_key, token.webhook_secret, token.model) == (
        None,
        None,
        None,
        MODEL.model,
    )


def test_a_saved_key_is_not_sent_to_another_github(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"GITHUB_SERVER_URL is not https://github\.com"):
        settings(tmp_path, StoredSetup(app=APP), GITHUB_SERVER_URL="https://evil.example")
    same = settings(tmp_path, StoredSetup(app=APP), GITHUB_SERVER_URL="https://github.com/")
    assert same.app_id == "7"


def test_workflows_and_repositories_cannot_provide_saved_credentials(tmp_path: Path) -> None:
    credential_store.save(tmp_path / "data", StoredSetup(app=APP, model=MODEL))
    environ = {"PATCHWRIGHT_DATA": str(tmp_path / "data"), "HOME": str(tmp_path)}
    assert composition_root.read_settings({}, environ, None, None).app_id is None
    clone = tmp_path / "clone"
    credential_store.save(clone / "data", StoredSetup(model=MODEL))
    (clone / ".git").mkdir()
    (clone / "patchwright.toml").write_text('data = "data"\n')
    with pytest.raises(SettingsError, match="sets data, which controls"):
        composition_root.read_settings({}, {"HOME": str(tmp_path)}, None, clone)


def test_the_credentials_file_is_private(tmp_path: Path) -> None:
    (tmp_path / "setup").mkdir(mode=0o755)
    credential_store.save(tmp_path, StoredSetup(app=APP))
    credential_store.save(tmp_path, StoredSetup(app=APP, model=MODEL))
    path = credential_store.store_path(tmp_path)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(default_key_file(tmp_path).stat().st_mode) == 0o600
    assert credential_store.load(tmp_path) == StoredSetup(app=APP, model=MODEL)


@pytest.mark.parametrize(
    "content", ["", "{", '{"app": {"id": "x", "private_key": "hunter2"}}', '{"new": 1}', "\0"]
)
def test_an_invalid_file_is_reported_without_quoting_it(tmp_path: Path, content: str) -> None:
    credential_store.save(tmp_path, StoredSetup())
    credential_store.store_path(tmp_path).write_text(content)
    with pytest.raises(SettingsError, match=r"credentials\.json is invalid") as caught:
        credential_store.load(tmp_path)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_repr_hides_secrets() -> None:
    shown = repr(StoredSetup(app=APP, model=MODEL))
    assert not any(one in shown for one in (APP.client_secret, APP.private_key, "w" * 20, "sk-kept"))


def test_api_urls_are_derived_from_the_server_url() -> None:
    api = {
        url: GitHubServer(github_server_url=url).github_api_url
        for url in ("https://github.com/", "https://a.ghe.com", "https://g.corp/x")
    }
    assert list(api.values()) == [
        "https://api.github.com",
        "https://api.a.ghe.com",
        "https://g.corp/x/api/v3",
    ]
    assert GitHubServer(github_server_url="https://g.corp").graphql_url == "https://g.corp/api/graphql"
    assert (
        GitHubServer(github_server_url="https://github.com").graphql_url == "https://api.github.com/graphql"
    )


def test_comments_link_to_loopback_urls_only_with_a_webhook(tmp_path: Path) -> None:
    here, there = "http://localhost:8000", "http://bot.intra:8000"
    pages = {}
    for origin in (here, there):
        for reach in ("poll", "webhook"):
            form = {"reach": reach, "confirmed_url": origin}
            loaded = parse_app_form(form, Settings(data=tmp_path), origin)
            assert isinstance(loaded, AppForm)
            assert loaded.public_url == origin  # people sign in to the dashboard there
            found = Settings(data=tmp_path, public_url=loaded.public_url, poll=not loaded.webhook)
            pages[origin, reach] = found.run_url("a")
    assert pages == {
        (here, "poll"): None, (here, "webhook"): f"{here}/runs/a",
        (there, "poll"): f"{there}/runs/a", (there, "webhook"): f"{there}/runs/a",
    }  # fmt: skip


# --- encryption ---------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


def write_clear_text(data: Path) -> None:
    path = credential_store.store_path(data)
    path.parent.mkdir(parents=True)
    path.write_text(StoredSetup(app=APP, model=MODEL).model_dump_json())


def secrets_on_disk(data: Path) -> list[str]:
    content = "".join(path.read_text() for path in data.rglob("*") if path.is_file())
    return [one for one in (APP.client_secret, APP.private_key, "w" * 20, "sk-kept") if one in content]


def test_a_copy_of_the_data_directory_contains_no_credential(data: Path) -> None:
    credential_store.save(data, StoredSetup(app=APP, model=MODEL))
    assert secrets_on_disk(data) == []
    assert credential_store.has_credentials(data)
    copy = data.parent / "elsewhere" / "data"
    shutil.copytree(data, copy)
    with pytest.raises(
        SettingsError, match=r"cannot be decrypted\. Its key was the file .*data\.key; there is none now"
    ):
        credential_store.load(copy)
    # Positive control: in clear text, the same search finds them all.
    shutil.rmtree(data)
    write_clear_text(data)
    assert len(secrets_on_disk(data)) == 4


def test_nothing_is_created_where_nothing_is_saved(data: Path) -> None:
    assert not credential_store.has_credentials(data)
    assert credential_store.load(data) == StoredSetup()
    assert not default_key_file(data).exists()


def test_the_key_comes_from_the_environment_or_a_file(data: Path) -> None:
    environment, file = KeySettings(key=SecretStr("e" * 32)), KeySettings(file=data.parent / "other.key")
    both = KeySettings(key=environment.key, file=file.file)
    credential_store.save(data, StoredSetup(model=MODEL), both)
    assert not default_key_file(data).exists()
    assert not (data.parent / "other.key").exists()
    assert credential_store.load(data, environment).model == MODEL
    credential_store.save(data, StoredSetup(model=MODEL), file)
    assert stat.S_IMODE((data.parent / "other.key").stat().st_mode) == 0o600
    assert credential_store.load(data, file).model == MODEL
    with pytest.raises(SettingsError, match=r"other\.key; now it is PATCHWRIGHT_CREDENTIALS_KEY\."):
        credential_store.load(data, environment)


def test_settings_name_the_key_of_saved_credentials(data: Path) -> None:
    key = "k" * 40
    credential_store.save(data, StoredSetup(model=MODEL), KeySettings(key=SecretStr(key)))
    environ = {"PATCHWRIGHT_DATA": str(data), "HOME": str(data), "PATCHWRIGHT_CREDENTIALS_KEY": key}
    loaded = composition_root.read_settings({}, environ, None, data)
    assert loaded.model == MODEL.model
    credential_store.save(data, StoredSetup(model=MODEL), KeySettings(file=data / "key"))
    environ["PATCHWRIGHT_CREDENTIALS_KEY"] = f"file:{data / 'key'}"
    assert composition_root.read_settings({}, environ, None, data).model == MODEL.model
    assert collect_secrets(loaded, {}).mask(key) == "<secret-hidden>"


def test_an_unusable_key_is_reported_without_quoting_it(data: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"in PATCHWRIGHT_CREDENTIALS_KEY has fewer than 32 characters"
    ) as caught:
        credential_store.save(data, StoredSetup(), KeySettings(key=SecretStr("hunter2")))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"/proc/no/key .*set PATCHWRIGHT_CREDENTIALS_KEY to file:PATH"):
        credential_store.save(data, StoredSetup(), KeySettings(file=Path("/proc/no/key")))
    assert not credential_store.has_credentials(data)


def test_changed_credentials_are_rejected(data: Path) -> None:
    credential_store.save(data, StoredSetup(model=MODEL))
    path = credential_store.store_path(data)
    content = json.loads(path.read_text())
    token = content["encrypted"]
    path.write_text(
        json.dumps({**content, "encrypted": token[:40] + ("A" if token[40] != "A" else "B") + token[41:]})
    )
    with pytest.raises(SettingsError, match="cannot be decrypted"):
        credential_store.load(data)


KEYRING = """
import json, pathlib
class errors:
    class KeyringError(Exception): pass
FILE = pathlib.Path(__file__).parent / "entries.json"
def entries(): return json.loads(FILE.read_text()) if FILE.exists() else {}
def get_password(service, name):
    if (FILE.parent / "locked").exists(): raise errors.KeyringError
    return entries().get(service + name)
def set_password(service, name, password):
    if (FILE.parent / "locked").exists(): raise errors.KeyringError
    FILE.write_text(json.dumps({**entries(), service + name: password}))
"""


def test_the_systems_keyring_is_used_if_the_package_is_installed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages"
    package.mkdir()
    (package / "keyring.py").write_text(KEYRING)
    monkeypatch.syspath_prepend(package)
    sys.modules.pop("keyring", None)
    credential_store.save(data, StoredSetup(model=MODEL))
    assert not default_key_file(data).exists()
    assert credential_store.load(data).model == MODEL
    (package / "locked").touch()
    with pytest.raises(SettingsError, match=r"Its key was the system's keyring; there is none now"):
        credential_store.load(data)
    credential_store.save(data, StoredSetup(model=MODEL))
    assert default_key_file(data).exists()
    (package / "locked").unlink()
    assert credential_store.load(data).model == MODEL  # the file goes first
    sys.modules.pop("keyring", None)


# --- the code -----------------------------------------------------------------------------------------------


def test_a_code_works_once_and_expires() -> None:
    now = [0.0]
    once, late, guessed, fine = (SetupCode(lambda: now[0]) for _ in range(4))
    assert len({code.text for code in (once, late, guessed, fine)}) == 4
    assert [once.check(f" {once.text.lower().replace('-', ' ')} "), once.check(once.text)] == [
        "right",
        "expired",
    ]
    assert {guessed.check(f"no {n}") for n in range(MAX_WRONG_CODES)} == {"wrong"}
    assert guessed.check(guessed.text) == "expired"
    assert {fine.check("") for _ in range(MAX_WRONG_CODES - 1)} == {"wrong"}
    assert fine.check(fine.text) == "right"
    now[0] = VALID_SECONDS
    assert late.check(late.text) == "expired"


def test_a_setup_session_expires_and_replaces_the_previous_one() -> None:
    now = [0.0]
    visitor = SetupSession(lambda: now[0])
    assert not visitor.is_valid("")
    first = visitor.start()
    second = visitor.start()
    assert (visitor.is_valid(first), visitor.is_valid(second), visitor.is_valid("é")) == (False, True, False)
    now[0] = VALID_SECONDS
    assert not visitor.is_valid(second)
