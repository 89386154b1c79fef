"""Configuration is strict: what is wrong is named, with the mend, before any work."""

from decimal import Decimal
from pathlib import Path

import pytest

from bot.compose import read_settings
from resolver.errors import SettingsError


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "patchwright.toml").write_text('max_steps = 1\nmax_usd = 1.5\nlabel = "mend"\n')
    environ = {"PATCHWRIGHT_MAX_STEPS": "2", "PATCHWRIGHT_MAX_USD": "2.5", "HOME": str(tmp_path)}
    settings = read_settings({"max_steps": 3, "model": None}, environ, None, tmp_path)
    assert (settings.max_steps, settings.max_usd, settings.label) == (3, Decimal("2.5"), "mend")
    assert settings.data == tmp_path / ".local/share/patchwright"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"PATCHWRIGHT_MODLE": "x"},
            "PATCHWRIGHT_MODLE in the environment is not a setting; did you mean PATCHWRIGHT_MODEL?",
        ),
        ({"PATCHWRIGHT_MAX_STEPS": "many"}, "max_steps (PATCHWRIGHT_MAX_STEPS)"),
        ({"PATCHWRIGHT_SANDBOX": "chroot"}, "sandbox (PATCHWRIGHT_SANDBOX)"),
        ({"PATCHWRIGHT_CA_BUNDLE": "/nowhere.pem"}, "in the settings: there is no file /nowhere.pem. Correct"),
        ({"PATCHWRIGHT_MODEL_BASE_URL": "localhost:8000/v1"}, "it has to begin with https:// or http://"),
        ({"GITHUB_API_URL": "github.example.com"}, "github_api_url (GITHUB_API_URL)"),
        ({"PATCHWRIGHT_PUBLIC_URL": "javascript:alert(1)"}, "is not a plain URL such as https://"),
        ({"PATCHWRIGHT_PUBLIC_URL": "https://me:pass@host"}, "is not a plain URL such as https://"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named(environ: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({}, environ, None, tmp_path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("max_step = 1", "max_step in {path} is not a setting; did you mean max_steps?"),
        ("max_steps = ", "{path} is not valid TOML"),
        ('max_steps = "x"', "max_steps (PATCHWRIGHT_MAX_STEPS)"),
    ],
)
def test_a_wrong_line_of_the_file_is_named(toml: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "patchwright.toml"
    path.write_text(toml)
    with pytest.raises(SettingsError) as refused:
        read_settings({}, {}, None, tmp_path)
    assert message.format(path=path) in str(refused.value)


def test_a_file_in_somebodys_repository_does_not_decide_where_credentials_go(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    path = tmp_path / "patchwright.toml"
    path.write_text('github_api_url = "https://evil.test"')
    with pytest.raises(SettingsError, match="decides where credentials are sent"):
        read_settings({}, {}, None, tmp_path)
    named = read_settings({}, {}, path, tmp_path)  # the operator named it, so it is theirs
    assert named.github_api_url == "https://evil.test"


def test_nor_which_templates_are_run_here(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "patchwright.toml").write_text('templates = "evil"')
    with pytest.raises(SettingsError, match="templates"):
        read_settings({}, {}, None, tmp_path)


def test_an_empty_variable_counts_as_absent(tmp_path: Path) -> None:
    assert read_settings({}, {"PATCHWRIGHT_MODEL": ""}, None, tmp_path).model is None


def test_a_run_has_a_page_where_the_operator_says_or_its_workflow_is(tmp_path: Path) -> None:
    public = {"PATCHWRIGHT_PUBLIC_URL": "https://bot.test/patchwright/"}
    settings = read_settings({}, public, None, tmp_path)
    assert settings.page_of("label/7 x") == "https://bot.test/patchwright/runs/label%2F7%20x"
    in_workflow = public | {"PATCHWRIGHT_WORKFLOW_URL": "https://forge.test/runs/1"}
    assert read_settings({}, in_workflow, None, tmp_path).page_of("a") == "https://forge.test/runs/1"
    assert read_settings({}, {}, None, tmp_path).page_of("a") is None


def test_settings_never_show_a_secret(tmp_path: Path) -> None:
    environ = {"GITHUB_TOKEN": "ghs_canary", "PATCHWRIGHT_MODEL_API_KEY": "sk-canary"}
    settings = read_settings({}, environ, None, tmp_path)
    assert "canary" not in repr(settings) + settings.model_dump_json()
