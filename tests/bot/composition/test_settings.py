"""Settings are validated strictly: an error names the setting and how to fix it."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from patchwright.bot.composition.composition_root import build_run_dependencies, read_settings
from patchwright.bot.setup.bootstrap import is_setup_needed
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import SENSITIVE_SETTINGS, Settings


def test_the_command_line_overrides_the_environment_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "patchwright.toml").write_text('max_steps = 1\nmax_usd = 1.5\nlabel = "fix"\n')
    environ = {"PATCHWRIGHT_MAX_STEPS": "2", "PATCHWRIGHT_MAX_USD": "2.5", "HOME": str(tmp_path)}
    settings = read_settings({"max_steps": 3, "model": None}, environ, None, tmp_path)
    assert (settings.max_steps, settings.max_usd, settings.label) == (3, Decimal("2.5"), "fix")
    assert settings.data == tmp_path / ".local/share/patchwright"


def test_file_environment_and_action_give_equal_settings(tmp_path: Path) -> None:
    """`action.yml` passes each input to the program as a variable."""
    steps = yaml.safe_load(Path("action.yml").read_text())["runs"]["steps"]
    passed = {name: text for step in steps for name, text in step.get("env", {}).items()}
    inputs = {"max-steps": "7", "max-usd": "1.25", "label": "fix", "allowed-hosts": "a.example, b.example"}
    variables = {
        name: inputs[match[1]]
        for name, text in passed.items()
        if (match := re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", text)) and match[1] in inputs
    }
    assert len(variables) == len(inputs)
    (tmp_path / "patchwright.toml").write_text(
        'max_steps = 7\nmax_usd = 1.25\nlabel = "fix"\nallowed_hosts = ["a.example", "b.example"]\n'
    )
    home = {"HOME": str(tmp_path)}
    by_hand = {"PATCHWRIGHT_MAX_STEPS": "7", "PATCHWRIGHT_MAX_USD": "1.25", "PATCHWRIGHT_LABEL": "fix"}
    from_file = read_settings({}, home, None, tmp_path)
    from_environment = read_settings(
        {}, {**home, **by_hand, "PATCHWRIGHT_ALLOWED_HOSTS": "a.example, b.example"}, None, None
    )
    from_action = read_settings({}, {**home, **variables}, None, None)
    assert from_file == from_environment == from_action
    assert (from_file.max_steps, from_file.label) == (7, "fix")
    with pytest.raises(ValueError, match="frozen"):
        from_file.max_steps = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"PATCHWRIGHT_MODLE": "x"},
            "PATCHWRIGHT_MODLE in the environment is not a setting; did you mean PATCHWRIGHT_MODEL?",
        ),
        ({"PATCHWRIGHT_MAX_STEPS": "9" * 5000}, f"PATCHWRIGHT_MAX_STEPS: '{'9' * 77}...' is not a whole number"),
        ({"PATCHWRIGHT_MAX_STEPS": "many"}, "PATCHWRIGHT_MAX_STEPS: 'many' is not a whole number. Correct"),
        (
            {"PATCHWRIGHT_SANDBOX_FEATURES": "browser,brwser"},
            "PATCHWRIGHT_SANDBOX_FEATURES: 'brwser' is not one of",
        ),
        ({"PATCHWRIGHT_SANDBOX": "chroot"}, "PATCHWRIGHT_SANDBOX: 'chroot' is not one of docker, local, auto."),
        ({"PATCHWRIGHT_CA_BUNDLE": "/nowhere.pem"}, "PATCHWRIGHT_CA_BUNDLE: the file /nowhere.pem does not exist"),
        ({"PATCHWRIGHT_MODEL_BASE_URL": "localhost:8000/v1"}, "the URL must start with https:// or http://"),
        ({"GITHUB_SERVER_URL": "github.example.com"}, "GITHUB_SERVER_URL: the URL must start with https://"),
        ({"PATCHWRIGHT_SEARCH_PROVIDER": "bing"}, "PATCHWRIGHT_SEARCH_PROVIDER: it must be tavily, exa or brave"),
        ({"PATCHWRIGHT_PUBLIC_URL": "javascript:alert(1)"}, "is not a plain URL such as https://"),
        ({"PATCHWRIGHT_PUBLIC_URL": "https://me:pass@host"}, "is not a plain URL such as https://"),
        ({"PATCHWRIGHT_QQQ": "x"}, "PATCHWRIGHT_QQQ in the environment is not a setting; docs/configuration.md"),
        ({"PATCHWRIGHT_PACKAGE_INDEX": "pypi.org"}, "PATCHWRIGHT_PACKAGE_INDEX: the URL must start with https://"),
        ({"PATCHWRIGHT_MODEL_BASE_URL": "http://a:b/v1"}, "PATCHWRIGHT_MODEL_BASE_URL: the URL is not valid."),
        ({"PATCHWRIGHT_CA_BUNDLE": __file__}, "is not a readable file with certificates (PEM)."),
        ({"PATCHWRIGHT_SECRETS_FILE": "/nowhere"}, "PATCHWRIGHT_SECRETS_FILE: the file /nowhere does not exist."),
        ({"PATCHWRIGHT_MCP_SERVERS": "{a"}, "PATCHWRIGHT_MCP_SERVERS: it is not valid JSON ("),
        ({"PATCHWRIGHT_MCP_SERVERS": "[1]"}, "PATCHWRIGHT_MCP_SERVERS: it must be a table (in an environment"),
        ({"PATCHWRIGHT_MODEL_PRICES": '{"a/b": 3}'}, "PATCHWRIGHT_MODEL_PRICES.a/b: it must be a table (in an"),
        ({"PATCHWRIGHT_LANGUAGE_IMAGES": '{"perl": "x"}'}, "PATCHWRIGHT_LANGUAGE_IMAGES.perl: 'perl' is not one of"),
        ({"PATCHWRIGHT_OPERATOR_TOKEN": "short"}, "PATCHWRIGHT_OPERATOR_TOKEN: it must have at least 16 characters."),
    ],
)  # fmt: skip
def test_an_invalid_variable_is_named(environ: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({}, environ, None, tmp_path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("max_step = 1", "max_step in {path} is not a setting; did you mean max_steps?"),
        ("max_steps = ", "{path} is not valid TOML"),
        ('max_steps = "x"', "max_steps in {path}: 'x' is not a whole number"),
        ("max_steps = 1.5", "max_steps in {path}: '1.5' is not a whole number"),
        ("allowed_hosts = 1", "allowed_hosts in {path}: it must be a list. Correct"),
        ("[mcp_servers.a]\nurl_ = 1", "mcp_servers.a.url_ in {path}: there is no such setting. Correct"),
    ],
)
def test_an_invalid_line_of_the_file_is_named(toml: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "patchwright.toml"
    path.write_text(toml)
    with pytest.raises(SettingsError) as refused:
        read_settings({}, {}, None, tmp_path)
    assert message.format(path=path) in str(refused.value)


def test_a_file_in_a_repository_cannot_set_where_credentials_are_sent(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    path = tmp_path / "patchwright.toml"
    path.write_text('github_server_url = "https://evil.test"')
    with pytest.raises(SettingsError, match="controls where credentials are sent"):
        read_settings({}, {}, None, tmp_path)
    named = read_settings({}, {}, path, tmp_path)  # allowed, because the operator named the file
    assert named.github_api_url == "https://evil.test/api/v3"


def test_a_file_in_a_repository_cannot_set_the_templates(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "patchwright.toml").write_text('templates = "evil"')
    with pytest.raises(SettingsError, match="templates"):
        read_settings({}, {}, None, tmp_path)


def test_the_example_of_an_environment_file_works_unedited(tmp_path: Path) -> None:
    lines = (Path(__file__).parents[3] / "patchwright.env.example").read_text().splitlines()
    active = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    settings = read_settings({}, {"HOME": str(tmp_path), **active}, None, None)
    assert is_setup_needed(settings)
    assert (settings.model, settings.public_url) == (None, None)  # the setup page asks for both


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    assert read_settings({}, {"PATCHWRIGHT_MODEL": ""}, None, tmp_path).model is None


def test_a_run_links_to_the_dashboard_or_its_workflow_run(tmp_path: Path) -> None:
    public = {"PATCHWRIGHT_PUBLIC_URL": "https://bot.test/patchwright/"}
    settings = read_settings({}, public, None, tmp_path)
    assert settings.run_url("label/7 x") == "https://bot.test/patchwright/runs/label%2F7%20x"
    in_workflow = public | {"PATCHWRIGHT_WORKFLOW_URL": "https://forge.test/runs/1"}
    assert read_settings({}, in_workflow, None, tmp_path).run_url("a") == "https://forge.test/runs/1"
    assert read_settings({}, {}, None, tmp_path).run_url("a") is None


def test_settings_never_reveal_a_secret(tmp_path: Path) -> None:
    environ = {"GITHUB_TOKEN": "ghs_canary", "PATCHWRIGHT_MODEL_API_KEY": "sk-canary"}
    settings = read_settings({}, environ, None, tmp_path)
    assert "canary" not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize("line", ['sandbox = "local"', 'allowed_repositories = ["a/b"]'])
def test_a_file_of_a_cloned_repository_cannot_turn_off_the_isolation(tmp_path: Path, line: str) -> None:
    (tmp_path / "patchwright.toml").write_text(line)
    (tmp_path / ".git").mkdir()
    with pytest.raises(SettingsError, match="is in a git repository and sets"):
        read_settings({}, {}, None, tmp_path)
    assert read_settings(
        {}, {}, tmp_path / "patchwright.toml", tmp_path
    )  # positive control: the person trusts it


@pytest.mark.parametrize("name", ["acme", "acme/", "https://github.com/acme/calc"])
def test_an_allowed_repository_needs_an_owner_and_a_name(name: str, tmp_path: Path) -> None:
    environ = {"PATCHWRIGHT_ALLOWED_REPOSITORIES": f"acme/calc,{name}"}
    with pytest.raises(SettingsError, match="is not a repository such as owner/name or owner/"):
        read_settings({}, environ, None, tmp_path)
    environ["PATCHWRIGHT_ALLOWED_REPOSITORIES"] = "acme/calc,acme/lib-*"
    assert read_settings({}, environ, None, tmp_path).named_repositories == ("acme/calc",)


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "PATCHWRIGHT_MODEL_API_KEY"])
@pytest.mark.parametrize("key", ["sk-canary\n", "sk canary", "\N{LEFT DOUBLE QUOTATION MARK}sk-canary"])
def test_a_key_that_fits_in_no_http_header_is_reported_without_its_value(
    name: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({}, {name: key}, None, tmp_path)
    assert f"{name}: it contains a line break, a space" in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("risk_analyzers", ("mine",), "mine is not an entry point of patchwright.analyzers"),
        ("risk_policy", "mine", "mine is not an entry point of patchwright.policies"),
        ("secrets_file", Path(__file__), "is readable by users other than its owner: run chmod 600"),
    ],
)
async def test_a_setting_of_the_agent_is_checked_before_there_is_a_sandbox(
    name: str, value: object, message: str, tmp_path: Path
) -> None:
    values = {"data": tmp_path, "model": "openai/x", "model_api_key": "k", "sandbox": "local", name: value}
    with pytest.raises(SettingsError, match=message):
        async with build_run_dependencies(Settings(**values), notify=print):  # type: ignore[arg-type]
            pass


def test_a_package_index_in_a_directory_is_ignored(tmp_path: Path) -> None:
    def package_index(url: str) -> str | None:
        return read_settings({}, {"PIP_INDEX_URL": url}, None, tmp_path).package_index

    assert package_index("file:///srv/simple") is None
    assert package_index("https://pypi.test/simple") == "https://pypi.test/simple"


def test_every_sensitive_setting_exists() -> None:
    assert Settings.model_fields.keys() >= SENSITIVE_SETTINGS
