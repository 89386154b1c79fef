"""Defines the operator's `Settings` and the repository's `RepoConfig`. Invalid and unknown values are
rejected.

This module converts mappings to values. Only `bot/composition/composition_root.py` reads the environment and the
operator's settings file.
"""

import difflib
import re
import ssl
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_origin
from urllib.parse import urlsplit

import pydantic_core
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator

from patchwright.resolver.branch_names import DEFAULT_TEMPLATE, is_branch_name, validate_template
from patchwright.resolver.errors import SettingsError, describe_read_error
from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.settings.model_settings import ModelSettings
from patchwright.resolver.settings.run_settings import ReadyVerdicts, RunSettings
from patchwright.resolver.settings.sandbox_settings import SandboxSettings
from patchwright.resolver.settings.server_settings import ServerSettings, derive_api_url
from patchwright.runtime.frozen_model import FrozenModel

VARIABLE_PREFIX = "PATCHWRIGHT_"
REPO_CONFIG_PATH = ".github/patchwright.toml"


class Settings(ModelSettings, SandboxSettings, RunSettings, ServerSettings):
    """The operator's settings, which are the same for the server, the GitHub Action and the command line.

    They come from three sources: the file `patchwright.toml`, the environment, and the command line. Later
    sources override earlier ones. The file uses lowercase names. Environment variables use uppercase names
    with the prefix `PATCHWRIGHT_`, except those in EXTERNAL_VARIABLES. The docstring of a setting is also its
    description in docs/configuration.md (see tests/settings_reference.py).
    """

    github_token: SecretStr | None = None
    """A token that can read the repository, push branches, and write issues and pull requests."""
    app_id: str | None = None
    """ID or client ID of the GitHub App. It requires `private_key`."""
    private_key: SecretStr | None = None
    """The GitHub App's private key in PEM format, or the path of a file that contains it."""
    github_server_url: str = "https://github.com"
    """URL of GitHub's website and git server. The URL of the API is derived from it, as `https://HOST/api/v3` for
    GitHub Enterprise Server.
    """

    data: Path
    """Path of the directory for runs and caches. By default, this is the user's data directory."""

    label: str = Field(default="fix-me", min_length=1)
    """The label that starts a run."""
    mention: str = Field(default="@agent", min_length=2)
    """The word that addresses the bot. A comment that contains this as a whole word starts a run."""
    branch_prefix: str = Field(default="patchwright/", min_length=1)
    """Prefix of all branches that are pushed for issues. The repository's `branch` determines the rest of the name."""
    max_files: int = Field(default=100, ge=1)
    """Maximum number of files that a patch may change. A larger patch is not published."""
    allowed_paths: tuple[str, ...] = ()
    """Glob patterns for protected paths that patches may change nevertheless, such as `.github/workflows/*`.
    GitHub requires a separate permission for workflow files.
    """

    @property
    def github_api_url(self) -> str:
        return derive_api_url(self.github_server_url)

    @field_validator("*", mode="before")
    @classmethod
    def _split_text(cls, value: object, info: ValidationInfo) -> object:
        """Parses a setting's text from the environment or the command line. The items of a list are separated
        by spaces or commas. A table is JSON.
        """
        kind = get_origin(cls.model_fields[info.field_name or ""].annotation)
        if not isinstance(value, str) or kind not in (tuple, dict):
            return value
        if kind is tuple:
            return tuple(value.replace(",", " ").split())
        try:
            return pydantic_core.from_json(value)
        except ValueError as exc:
            raise ValueError(f"it is not valid JSON ({exc})") from exc

    @field_validator("github_server_url", "model_base_url", "package_index")
    @classmethod
    def _validate_url(cls, url: str | None) -> str | None:
        if url is not None and not re.match(r"https?://[^\s/]", url, re.IGNORECASE):
            # The message does not repeat the URL, because it may contain a password.
            raise ValueError("the URL must start with https:// or http://")
        try:
            _ = urlsplit(url or "").port
        except ValueError as exc:  # for example an opening bracket that is not closed
            raise ValueError("the URL is not valid") from exc
        return url

    @field_validator("github_token", "model_api_key", "search_api_key")
    @classmethod
    def _validate_header_value(cls, secret: SecretStr | None) -> SecretStr | None:
        # A token is sent in an HTTP header, and the HTTP client repeats an invalid header in its error message.
        if secret is not None and not re.fullmatch(r"[!-~]*", secret.get_secret_value()):
            raise ValueError("it contains a line break, a space or another character that no key has")
        return secret

    @field_validator("ca_bundle", "secrets_file")
    @classmethod
    def _validate_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"the file {path} does not exist")
        try:
            if path is not None and info.field_name == "ca_bundle":
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        except OSError as exc:
            raise ValueError(f"{path} is not a readable file with certificates (PEM)") from exc
        return path


EXTERNAL_VARIABLES = {
    "GITHUB_TOKEN": "github_token",
    "GITHUB_SERVER_URL": "github_server_url",
    "REDIS_URL": "redis_url",
}
"""Maps the standard names of environment variables, as in GitHub Actions and Redis, to settings."""
CLIENT_VARIABLES = frozenset({"PATCHWRIGHT_API_KEY"})  # for clients of a server; no settings
FALLBACK_VARIABLES = {
    "SSL_CERT_FILE": "ca_bundle",
    "PIP_INDEX_URL": "package_index",
    "https_proxy": "proxy",
    "HTTPS_PROXY": "proxy",
}
"""Maps standard environment variables for closed networks to settings. All other sources override them."""


# Settings that decide where credentials are sent, what leaves the sandbox, or whether there is one. A file from
# someone's repository must not set them.
SENSITIVE_SETTINGS = frozenset(
    {
        "data",
        "credentials_key",
        "github_server_url",
        "model_base_url",
        "redis_url",
        "allowed_repositories",
        "sandbox",
        "ca_bundle",
        "public_url",
        "hold_ci",
        "package_index",
        "search_provider",
        "network",
        "allowed_hosts",
        "allowed_addresses",
        "max_upload_mb",
        "proxy",
        "mcp_servers",
        "secrets_file",
        "tools",
        "skills",
        "allowed_paths",
        "risk_threshold",
        "risk_response",
        "risk_analyzers",
        "risk_policy",
        "operator_token",
        "oauth_client_id",
        "oauth_client_secret",
        "archive",
        "templates",
    }
)


class ConfiguredSuite(FrozenModel):
    """One of several test commands of a repository, as a maintainer configured it."""

    command: str = Field(min_length=1)
    """The shell command that runs the tests in `directory`."""
    directory: str = ""
    """Directory relative to the repository's root, such as `packages/web`."""
    runner: RunnerName | None = None
    """Name of the test runner, if it cannot be detected from the command. Use `junit` for a command that
    writes a JUnit XML report to `$PATCHWRIGHT_REPORT`.
    """

    @field_validator("directory")
    @classmethod
    def _validate_directory(cls, directory: str) -> str:
        parts = directory.strip("/").split("/") if directory else []
        if directory.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{directory} must be a path below the repository's root, such as packages/web")
        return directory.rstrip("/")


class RepoConfig(FrozenModel):
    """The maintainers' configuration of a repository, `.github/patchwright.toml` on the base branch."""

    test_command: str | None = None
    """Shell command that runs the tests. It starts in the repository's root directory. By default,
    Patchwright uses the commands in `tests`, or detected commands.
    """
    tests: tuple[ConfiguredSuite, ...] = Field(default=(), max_length=50)
    """Tables with `command`, `directory` and `runner`, for a repository with several projects. The tests of
    the first table also run while the agent works.
    """
    setup: str | tuple[str, ...] | None = None
    """Shell command, or a list of shell commands, that installs the dependencies. `""` turns the setup off.
    By default, Patchwright uses the script `.github/patchwright/setup.sh`, or commands detected from the
    manifests.
    """
    test_timeout: int | None = Field(default=None, ge=1, le=1800, strict=True)
    """Maximum number of seconds for one test run. By default, this is the operator's `test_timeout`."""
    base_branch: str | None = None
    """The branch that the agent's changes are based on, and into which its pull requests are merged. Patchwright
    reads this setting only on the default branch. People can override it with `base=NAME` in the comment that
    starts a run, or in an issue by someone with write access. By default, this is the repository's default branch.
    """
    branch: str = DEFAULT_TEMPLATE
    """Template for the name of an issue's branch, without the operator's `branch_prefix`. `{number}` is the issue's
    number, `{slug}` its title, and `{run}` a short run ID. If a branch of this name contains other work, the short
    run ID is appended.
    """
    agent: str | None = None
    """Name of the agent that does the work. By default, this is the operator's `agent`."""
    tools: tuple[str, ...] | None = None
    """Names of those of the operator's `tools` that the agent gets here. By default, the agent gets all of them."""
    ready_for_review: ReadyVerdicts | None = None
    """Which new pull requests are ready for review, and not drafts: those whose verdict is `fixed`, also those whose
    verdict is `conditional`, or `none`. By default, this is the operator's `ready_for_review`.
    """

    @field_validator("branch")
    @classmethod
    def _validate_branch_template(cls, template: str) -> str:
        return validate_template(template)

    @field_validator("base_branch")
    @classmethod
    def _validate_branch_name(cls, name: str | None) -> str | None:
        if name is not None and not is_branch_name(name):
            raise ValueError(f"{name} is not a valid branch name")
        return name


def environment_variable(key: str) -> str:
    """Returns the environment variable of a setting."""
    return next(
        (name for name, known in EXTERNAL_VARIABLES.items() if known == key), VARIABLE_PREFIX + key.upper()
    )


def parse_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings in the environment. Raises SettingsError for an unknown PATCHWRIGHT_ variable.

    An empty variable counts as unset, because a workflow passes a missing secret as an empty string.
    """
    values: dict[str, str] = {}
    known = {environment_variable(key): key for key in Settings.model_fields}
    for name, value in environ.items():
        if name.startswith(VARIABLE_PREFIX) and name not in known and name not in CLIENT_VARIABLES:
            raise SettingsError(_unknown_setting_message(name, list(known), "the environment"))
        if name in known and value:
            values[known[name]] = value
    return values


def read_fallback_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns settings from standard environment variables, such as `HTTPS_PROXY`. All other sources override them."""
    values = {key: environ[name] for name, key in FALLBACK_VARIABLES.items() if environ.get(name)}
    # Patchwright supports no SOCKS proxies, and no package index in a directory.
    supported = {"proxy": ("http://",), "package_index": ("http://", "https://")}
    return {key: value for key, value in values.items() if value.startswith(supported.get(key, ("",)))}


def read_toml(path: Path) -> dict[str, Any]:
    """Reads the settings in a TOML file. Raises SettingsError for invalid TOML or an unknown key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise SettingsError(f"The settings file {path} does not exist. Check --config.") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(
            f"{path} cannot be read: {describe_read_error(exc)}. Fix or remove the file."
        ) from exc
    return parse_toml(text, str(path), Settings)


def parse_toml(text: str, source: str, model: type[FrozenModel]) -> dict[str, Any]:
    """Parses TOML whose top-level keys are fields of `model`. Raises SettingsError for invalid TOML or an
    unknown key.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{source} is not valid TOML: {exc}.") from exc
    for key in values:
        if key not in model.model_fields:
            raise SettingsError(_unknown_setting_message(key, list(model.model_fields), source))
    return values


def name_sources(
    file: str, from_file: Iterable[str], from_environment: Iterable[str], from_options: Iterable[str]
) -> dict[str, str]:
    """Returns where the operator set each setting, such as `--max-usd`, a variable, or `max_usd in
    patchwright.toml`.
    """
    sources = {key: f"{key} in {file}" for key in from_file}
    sources |= {key: environment_variable(key) for key in from_environment}
    option_names = {"model_base_url": "base-url"}
    return sources | {key: f"--{option_names.get(key, key).replace('_', '-')}" for key in from_options}


def build_settings(values: Mapping[str, Any], sources: Mapping[str, str] = {}) -> Settings:
    """Validates the operator's settings. If a setting is invalid, raises a SettingsError that names it and
    says how to fix it.

    `sources` maps settings to their names as the operator wrote them, such as `--max-usd`.
    """
    try:
        return Settings(**values)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        # The last part may be the index of a value in a list. The description names the value.
        place = first["loc"][:-1] if isinstance(first["loc"][-1], int) else first["loc"]
        setting, *inner = (str(part) for part in place if part != "[key]")
        source = sources.get(setting, f"{setting} ({environment_variable(setting)})")
        name, space, file = source.partition(" ")
        name = ".".join([name, *inner]) + space + file
        raise SettingsError(f"{name}: {_describe_invalid_value(first)}. Correct or remove it.") from exc


# The first parts of pydantic's error types, and what is wrong with the value.
VALUE_KINDS = {
    "bool": "neither true nor false",
    "decimal": "not a number",
    "float": "not a number",
    "int": "not a whole number",
}
# Pydantic's error types, and messages without names of Python types.
MESSAGES = {
    "dict_type": "it must be a table (in an environment variable: a JSON object)",
    "model_type": "it must be a table (in an environment variable: a JSON object)",
    "tuple_type": "it must be a list",
    "extra_forbidden": "there is no such setting",
    "missing": "it is missing",
}


def _describe_invalid_value(error: Any) -> str:
    """Describes one error of pydantic. Repeats only numbers and choices, because other values may be secret."""
    kind, value = error["type"], str(error["input"])
    value = value if len(value) <= 80 else f"{value[:77]}..."
    if (description := VALUE_KINDS.get(kind.partition("_")[0])) and kind.endswith(
        ("_parsing", "_type", "_from_float", "_parsing_size")
    ):
        return f"'{value}' is {description}"
    if kind == "literal_error":
        return (
            f"'{value}' is not one of {error['ctx']['expected'].replace(' or ', ', ').replace(chr(39), '')}"
        )
    if kind in MESSAGES:
        return MESSAGES[kind]
    if kind == "too_short":
        return f"it must have at least {error['ctx']['min_length']} characters"
    message: str = error["msg"].removeprefix("Value error, ")
    return message.replace("Input should", "it must").replace("it must be a valid", "it must be a")


def _unknown_setting_message(name: str, known: list[str], source: str) -> str:
    # Without the prefix, which all names in the environment share. It would make every name similar.
    names = {each.removeprefix(VARIABLE_PREFIX): each for each in known}
    matches = difflib.get_close_matches(name.removeprefix(VARIABLE_PREFIX), names, n=1, cutoff=0.5)
    few = f"known settings: {', '.join(sorted(known))}."
    hint = few if len(known) < 20 else "docs/configuration.md lists all settings."
    hint = f"did you mean {names[matches[0]]}?" if matches else hint
    return f"{name} in {source} is not a setting; {hint}"
