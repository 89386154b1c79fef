"""Configuration, read once, whole and strictly: the operator's `Settings` and the repository's `RepoConfig`.

This module turns mappings into values; only `bot/compose.py` reads the environment and the operator's file.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import pydantic_core
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator

from resolver.errors import SettingsError
from resolver.git.branches import checked, is_branch_name
from resolver.settings.models import ModelSettings
from resolver.settings.runs import RunSettings
from resolver.settings.sandboxes import SandboxSettings
from resolver.settings.server import ServerSettings
from resolver.suites.kind import Kind
from runtime.frozen import Frozen

PREFIX = "PATCHWRIGHT_"
REPO_CONFIG_PATH = ".github/patchwright.toml"


class Settings(ModelSettings, SandboxSettings, RunSettings, ServerSettings):
    """The operator's settings: the same for server, Action and command line.

    From `patchwright.toml` (lower-case names), then the environment (`PATCHWRIGHT_` and upper case; the forge's
    and Redis's own names as listed in FOREIGN), then the command line; the later wins.
    What stands below a setting is its meaning in docs/configuration.md, too (tests/settings_reference.py).
    """

    github_token: SecretStr | None = None
    """A token that may read the repository, push branches, and write issues and pull requests."""
    app_id: str | None = None
    """GitHub App id or client id; goes with a private key."""
    private_key: SecretStr | None = None
    """The App's private key, PEM."""
    private_key_file: Path | None = None
    """A file with it."""
    github_api_url: str = "https://api.github.com"
    """REST API; of a GitHub Enterprise Server `https://HOST/api/v3`."""
    github_graphql_url: str = "https://api.github.com/graphql"
    """GraphQL API; of a GitHub Enterprise Server `https://HOST/api/graphql`."""
    github_server_url: str = "https://github.com"
    """Where people and git go."""

    data: Path
    """Directory for runs and caches. Required: the user's data directory."""

    label: str = Field(default="fix-me", min_length=1)
    """The label that starts a run."""
    mention: str = Field(default="@agent", min_length=2)
    """The mention that starts a run, as a whole word."""
    branch_prefix: str = Field(default="patchwright/", min_length=1)
    """How the name of every branch begins that is pushed for an issue."""
    branch: str = "issue-{number}"
    """What follows it: `{number}` of the issue, `{slug}` of its title, `{run}` (a short name of the run). When that
    branch holds somebody else's work, the run's short name is added."""

    max_files: int = Field(default=100, ge=1)
    """Files that a patch may change; of one that changes more, nothing is proposed."""
    max_patch_mb: float = Field(default=4, gt=0, le=4)
    """Megabytes of a patch, and of what it adds to the tree; more than 4 do not leave a sandbox."""
    allow_paths: tuple[str, ...] = ()
    """Patterns of paths that are otherwise left to maintainers, such as `.github/workflows/*`; GitHub wants a
    permission of its own for those."""

    @field_validator("*", mode="before")
    @classmethod
    def _in_words(cls, value: object, info: ValidationInfo) -> object:
        """The environment and the command line know texts alone: a list is words there, and a table JSON."""
        kind = get_origin(cls.model_fields[info.field_name or ""].annotation)
        if not isinstance(value, str) or kind not in (tuple, dict):
            return value
        return tuple(value.replace(",", " ").split()) if kind is tuple else pydantic_core.from_json(value)

    @field_validator("branch")
    @classmethod
    def _names_branches(cls, template: str) -> str:
        return checked(template)

    @field_validator(
        *("github_api_url", "github_graphql_url", "github_server_url"),
        *("model_base_url", "search_base_url", "webhook_url"),
    )
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is not None and not re.match(r"https?://[^\s/]", url, re.IGNORECASE):
            raise ValueError(
                "it has to begin with https:// or http://"
            )  # not repeated: it may hold a password
        return url

    @field_validator("private_key_file", "ca_bundle")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"there is no file {path}")
        return path


FOREIGN = {
    "GITHUB_TOKEN": "github_token",
    "GITHUB_API_URL": "github_api_url",
    "GITHUB_GRAPHQL_URL": "github_graphql_url",
    "GITHUB_SERVER_URL": "github_server_url",
    "REDIS_URL": "redis_url",
}
"""Settings whose variable is not ours to name (as GitHub Actions and Redis users know them)."""


STANDARD = {
    "SSL_CERT_FILE": "ca_bundle",
    "PIP_INDEX_URL": "package_index",
    "https_proxy": "proxy",
    "HTTPS_PROXY": "proxy",
}
"""Variables by which a machine on a closed network was told already; used where ours say nothing."""


# Where credentials are sent, and what leaves the sandbox. A file that came with somebody's repository must not
# decide it.
SENSITIVE = frozenset(
    {
        "data",
        "github_api_url",
        "github_graphql_url",
        "github_server_url",
        "model_base_url",
        "redis_url",
        "repositories",
        "webhook_url",
        "public_url",
        "hold_ci",
        "package_index",
        "search_base_url",
        "search_provider",
        "network",
        "allow_hosts",
        "allow_addresses",
        "upload_mb",
        "proxy",
        "mcp_servers",
        "secrets_file",
        "allow_paths",
        "refuse_risk",
        "risk_analyzers",
        "risk_policy",
        "operator_token",
        "oauth_client_id",
        "oauth_client_secret",
        "archive",
        "templates",
    }
)


class ConfiguredSuite(Frozen):
    """One of several ways to test a repository, or one with more to say than its command."""

    command: str = Field(min_length=1)
    """Shell command, run in `directory`."""
    directory: str = ""
    """Below the repository's root, such as `packages/web`."""
    report: Kind | None = None
    """The runner, where the command does not show it; `junit` when it writes to `$PATCHWRIGHT_REPORT`."""

    @field_validator("directory")
    @classmethod
    def _below_the_root(cls, directory: str) -> str:
        parts = directory.strip("/").split("/") if directory else []
        if directory.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(
                f"{directory} is not a directory below the repository's root such as packages/web"
            )
        return directory.rstrip("/")


class RepoConfig(Frozen):
    """`.github/patchwright.toml` on the base branch: what maintainers say about their repository."""

    test_command: str | None = None
    """Shell command that runs the tests, at the repository's root. None: what `tests` says, else found."""
    tests: tuple[ConfiguredSuite, ...] = Field(default=(), max_length=50)
    """Tables with a `command`, a `directory` and a `report` each, for a repository of several parts; the first is run
    while the agent works."""
    setup: str | tuple[str, ...] | None = None
    """Shell command, or list of them, that installs what the repository needs; `""`: nothing. None: the script
    `.github/patchwright/setup.sh`, or found out from its manifests."""
    test_timeout: int | None = Field(default=None, ge=1, le=1800, strict=True)
    """Seconds of one test run. None: the operator's."""
    base_branch: str | None = None
    """The branch that work begins from and pull requests go to, read on the default branch; `base=NAME` in the comment
    that starts a run, or in an issue by somebody who may write, goes before it. None: the default branch."""
    branch: str | None = None
    """How branches are named, below the operator's prefix. None: the operator's `branch`."""

    @field_validator("branch")
    @classmethod
    def _names_branches(cls, template: str | None) -> str | None:
        return template and checked(template)

    @field_validator("base_branch")
    @classmethod
    def _is_a_branch(cls, name: str | None) -> str | None:
        if name is not None and not is_branch_name(name):
            raise ValueError(f"git takes no branch of the name {name}")
        return name


def variable(key: str) -> str:
    """The environment variable of a setting."""
    return next((name for name, known in FOREIGN.items() if known == key), PREFIX + key.upper())


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that the environment names. Raises SettingsError for an unknown PATCHWRIGHT_ variable.

    An empty variable counts as absent: that is what a workflow makes of a secret that is not set.
    """
    values: dict[str, str] = {}
    known = {variable(key): key for key in Settings.model_fields}
    for name, value in environ.items():
        if name.startswith(PREFIX) and name not in known:
            raise SettingsError(_unknown(name, list(known), "the environment"))
        if name in known and value:
            values[known[name]] = value
    return values


def from_machine(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that the machine's own variables imply; everything else goes before them."""
    values = {key: environ[name] for name, key in STANDARD.items() if environ.get(name)}
    if not values.get("proxy", "http://").startswith("http://"):
        del values["proxy"]  # of another kind (SOCKS, TLS), and meant for others
    return values


def from_toml(path: Path) -> dict[str, Any]:
    """The settings that a TOML file names. Raises SettingsError for bad TOML or an unknown key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise SettingsError(f"There is no settings file {path}: see --config.") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path} cannot be read: {exc}. Mend or remove the file.") from exc
    return parse_toml(text, str(path), Settings)


def parse_toml(text: str, where: str, model: type[Frozen]) -> dict[str, Any]:
    """The keys of a TOML text that `model` knows. Raises SettingsError for bad TOML or an unknown key."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{where} is not valid TOML: {exc}.") from exc
    for key in values:
        if key not in model.model_fields:
            raise SettingsError(_unknown(key, list(model.model_fields), where))
    return values


def build(values: Mapping[str, Any], where: str) -> Settings:
    """The operator's settings, checked. Raises SettingsError that names the key and the mend."""
    try:
        return Settings(**values)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        named = f"{key} ({variable(key)})" if key in Settings.model_fields else key
        wrong = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{named} in {where}: {wrong}. Correct or remove it.") from exc


def _unknown(name: str, known: list[str], where: str) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}."
    return f"{name} in {where} is not a setting; {hint}"
