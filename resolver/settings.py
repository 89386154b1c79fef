"""Configuration, read once, whole and strictly: the operator's `Settings` and the repository's `RepoConfig`.

This module turns mappings into values; only `bot/compose.py` reads the environment and the operator's file.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator

from resolver.branches import checked, is_branch_name
from resolver.errors import SettingsError
from resolver.llm.settings import ModelSettings
from resolver.server_settings import ServerSettings
from resolver.suites.kind import Kind, Language
from resolver.tools.mcp_server import McpServer
from runtime.egress import Network, Upstream, is_host_pattern, network_of_mirrors
from runtime.frozen import Frozen
from runtime.plugins import PLUGINS, Plugin

PREFIX = "PATCHWRIGHT_"
REPO_CONFIG_PATH = ".github/patchwright.toml"

SearchProvider = Literal["tavily", "exa", "brave"]


class Settings(ModelSettings, ServerSettings):
    """The operator's settings: the same for server, Action and command line.

    From `patchwright.toml` (lower-case names), then the environment (`PATCHWRIGHT_` and upper case; the forge's
    and Redis's own names as listed in FOREIGN), then the command line; the later wins.
    """

    github_token: SecretStr | None = None
    app_id: str | None = None
    """GitHub App id or client id; goes with a private key."""
    private_key: SecretStr | None = None
    """The App's private key, PEM."""
    private_key_file: Path | None = None
    github_api_url: str = "https://api.github.com"
    github_graphql_url: str = "https://api.github.com/graphql"
    github_server_url: str = "https://github.com"

    data: Path
    """Directory for runs and caches."""

    sandbox: Literal["docker", "local", "auto"] = "auto"
    """auto: docker when an engine answers, else local for `resolve` on a path, refused for foreign text."""
    image: str = "debian:bookworm-slim"
    """Base image of the sandbox."""
    images: dict[Language, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Base images in place of `image`, by what a repository's tests are written in. In the environment: as JSON."""
    memory_mb: int = Field(default=4096, ge=64)
    """Memory of a sandbox, MiB, swap included."""
    cpus: float = Field(default=2.0, gt=0)
    pids: int = Field(default=512, ge=16)
    warm_pool: int = Field(default=0, ge=0, le=16)
    """Sandboxes that are started ahead, so that a run begins at once; each takes its memory meanwhile."""
    transport: Literal["auto", "socket", "exec"] = "auto"
    """How the sandbox's server is reached: by a socket in a shared directory, or through `docker exec`, for an
    engine far away or in a VM. auto: by the socket where it can be shared."""
    plugins: tuple[Plugin, ...] = PLUGINS
    """What a sandbox has beside shell and editor: `kernel` (IPython and its skills), `documents` (reading PDF, Office
    and LaTeX files), `browser` (Chromium). Each is an image layer, made when it is first wanted. In the environment:
    with commas, or `none`."""
    disk_mb: int = Field(default=10_240, ge=16)
    """What files in a sandbox may take, MiB; one that grows larger is ended."""
    network: Network = "allow-list"
    """What the agent's sandbox reaches: nothing, package indexes and `allow_hosts`, or every public host.
    The sandboxes in which tests judge a patch never have any network."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts beside the package indexes; `*.example.org` for all below. In the environment: with commas."""
    allow_addresses: tuple[str, ...] = ()
    """Networks such as 10.1.0.0/16 that count as public: for a closed network whose names lead to mirrors."""
    upload_mb: int = Field(default=10, ge=0)
    """What one sandbox may send by the network, MB."""
    proxy: SecretStr | None = None
    """The proxy by which this network is left, http://[user:password@]host:port. None: no proxy is needed."""

    label: str = Field(default="fix-me", min_length=1)
    """The label that starts a run."""
    mention: str = Field(default="@agent", min_length=2)
    """The mention that starts a run, as a whole word."""
    branch_prefix: str = Field(default="patchwright/", min_length=1)
    """How the name of every branch begins that is pushed for an issue."""
    branch: str = "issue-{number}"
    """What follows it: `{number}` of the issue, `{slug}` of its title, `{run}`, a short name of the run."""

    max_files: int = Field(default=100, ge=1)
    """Files that a patch may change; of one that changes more, nothing is proposed."""
    max_patch_mb: float = Field(default=4, gt=0, le=4)
    """Megabytes of a patch, and of what it adds to the tree; more than 4 do not leave a sandbox."""
    allow_paths: tuple[str, ...] = ()
    """Patterns of paths that are otherwise left to maintainers, such as `.github/workflows/*`. In the environment: with
    commas."""

    instructions_tokens: int = Field(default=8_000, ge=0)
    """Tokens of the repository's own instructions (AGENTS.md and its like) in the first message."""
    context_tokens: int | None = Field(default=None, ge=2_000)
    """Tokens of a conversation, above which it is condensed. None: 100,000, less for a model that takes less."""

    search_provider: SearchProvider = "tavily"
    """Who is asked when the agent searches the web: `tavily`, `exa` or `brave`."""
    search_api_key: SecretStr | None = None
    """That provider's key. None: the web is not searched."""
    search_base_url: str | None = None
    """Where the provider's API is. None: where it says."""
    max_searches: int = Field(default=20, ge=1)
    """Searches of the web in one run."""

    plan_every: int = Field(default=10, ge=0)
    """Replies after which the model is asked to look back and ahead. 0: never."""
    refuse_risk: Literal["medium", "high", "never"] = "high"
    """A call that is rated so risky, or more, is refused. The sandbox is the wall; this is a second look."""
    model_rates_risk: bool = False
    """Ask the model for a rating of each of its calls too; it can only raise the one that the rules give."""
    risk_analyzers: tuple[str, ...] = ()
    """Entry points of `patchwright.analyzers` that rate calls beside the rules. In the environment: with commas."""
    risk_policy: str | None = None
    """The entry point of `patchwright.policies` that decides about rated calls, in place of `refuse_risk`."""
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict)
    """MCP servers whose tools the agent gets, by name. In the environment: as JSON."""
    secrets_file: Path | None = None
    """A TOML file of mode 0600 with the secrets that commands in a repository's sandbox may use."""

    max_steps: int = Field(default=100, ge=1)
    """Replies of the model in one run."""
    browse_steps: int = Field(default=30, ge=1)
    """Replies of the model for one task that is handed to the browsing agent; they count as the run's own."""
    delegate_steps: int = Field(default=20, ge=0)
    """Replies of the model for each question that is handed to an investigator; as above. 0: none is handed on."""
    max_usd: Decimal = Field(default=Decimal("2.00"), gt=0)
    """Dollars in one run, where the price of the model is known."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of all prompts and replies of one run. None: as many as it takes."""
    timeout: int = Field(default=3600, ge=10)
    """Seconds of one run, proof included."""
    test_timeout: int = Field(default=900, ge=1, le=1800)
    """Seconds of one test run."""
    repairs: int = Field(default=2, ge=0, le=20)
    """Times that a patch goes back to the agent because it breaks tests, or fails those that it brings."""
    candidates: int = Field(default=1, ge=1, le=10)
    """Attempts at an issue, each from the untouched code, until one is proven; the best one is delivered."""
    second_opinion: bool = False
    """Ask a second model (`model_judge`) what it thinks of issue and patch. Its words are for reviewers; where it
    rejects a patch that no test has proven, the agent gets to hear them once."""
    setup_timeout: int = Field(default=1200, ge=1, le=1800)
    """Seconds of a repository's set-up."""

    templates: Path | None = None
    """A directory of texts that take the place of ours of the same names, such as `prompts/system.md.j2`."""

    ca_bundle: Path | None = None
    """CA certificates (PEM) for image builds, sandboxes and our own requests."""
    package_index: str | None = None
    """Python package index for image builds and sandboxes."""

    @field_validator("plugins", mode="before")
    @classmethod
    def _named(cls, plugins: object) -> object:
        return () if plugins == "none" else cls._separated(plugins)

    @field_validator(
        "allow_hosts",
        "allow_addresses",
        "allow_paths",
        "risk_analyzers",
        mode="before",
    )
    @classmethod
    def _separated(cls, hosts: object) -> object:
        return tuple(hosts.replace(",", " ").split()) if isinstance(hosts, str) else hosts

    @field_validator("mcp_servers", "images", mode="before")
    @classmethod
    def _from_json(cls, table: object) -> object:
        return json.loads(table) if isinstance(table, str) else table

    @field_validator("allow_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not is_host_pattern(host):
                raise ValueError(f"{host} is not a host name such as example.org or *.example.org")
        return hosts

    @field_validator("allow_addresses")
    @classmethod
    def _networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(network_of_mirrors, networks))

    @field_validator("proxy")
    @classmethod
    def _usable(cls, proxy: SecretStr | None) -> SecretStr | None:
        if proxy is not None:
            Upstream.of(proxy.get_secret_value())
        return proxy

    @field_validator("branch")
    @classmethod
    def _names_branches(cls, template: str) -> str:
        return checked(template)

    @field_validator("ca_bundle", "private_key_file")
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
    """Shell command that runs the tests, at the repository root. None: what `tests` says, else found out."""
    tests: tuple[ConfiguredSuite, ...] = Field(default=(), max_length=50)
    """Tables with a command each, for a repository of several parts; the first is run while the agent works."""
    setup: str | tuple[str, ...] | None = None
    """Shell commands that install what the repository needs. None: `.github/patchwright/setup.sh`, or found out
    from its manifests. Empty: there is nothing to do."""
    test_timeout: int | None = Field(default=None, ge=1, le=1800, strict=True)
    """Seconds of one test run. None: the operator's."""
    base_branch: str | None = None
    """The branch that work begins from, and pull requests go to. None: the default branch."""
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


_Model = TypeVar("_Model", bound=Frozen)


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


def from_toml(path: Path, model: type[Frozen] = Settings) -> dict[str, Any]:
    """The settings that a TOML file names. Raises SettingsError for bad TOML or an unknown key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path} cannot be read: {exc}. Mend or remove the file.") from exc
    return parse_toml(text, str(path), model)


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


def build(model: type[_Model], values: Mapping[str, Any], where: str) -> _Model:
    """The configuration, checked. Raises SettingsError that names the key and the mend."""
    try:
        return model(**values)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        named = f"{key} ({variable(key)})" if model is Settings and key in Settings.model_fields else key
        raise SettingsError(f"{named} in {where}: {first['msg']}. Correct or remove it.") from exc


def _unknown(name: str, known: list[str], where: str) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}."
    return f"{name} in {where} is not a setting; {hint}"
