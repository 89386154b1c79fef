"""The composition root: the only module that reads the environment. Chooses the implementations of all commands;
`worker_root.py` adds those of a worker.
"""

import contextlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.bot.credentials import collect_secrets, read_private_key
from patchwright.bot.setup import credential_store
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.llm.model_check import check_endpoint, check_models
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.resolver.settings.settings import (
    FALLBACK_VARIABLES,
    SENSITIVE_SETTINGS,
    Settings,
    build_settings,
    name_sources,
    parse_environment,
    read_fallback_variables,
    read_toml,
)

if TYPE_CHECKING:  # These slow imports are deferred, so that an invalid setting is reported at once.
    from patchwright.bot.github.auth import AppAuth, RequestPolicy, TokenAuth
    from patchwright.bot.github.forge import GitHubForge
    from patchwright.bot.write_limiter import WriteLimiter
    from patchwright.resolver.run.dependencies import RunDependencies
    from patchwright.resolver.run_log import Listener

CONFIG_FILE = "patchwright.toml"
IMAGE_VARIABLES = (
    "PATCHWRIGHT_IMAGE",
    "PATCHWRIGHT_CA_BUNDLE",
    "PATCHWRIGHT_PACKAGE_INDEX",
    *FALLBACK_VARIABLES,
)


def select_variables(environ: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
    """Returns the variables with these names."""
    return {name: environ[name] for name in names if name in environ}


def start_import(module: str) -> None:
    """Starts to import a module in a thread. The program can end before the import does."""
    threading.Thread(target=import_module, args=(module,), name=f"import {module}", daemon=True).start()


def read_environment() -> Mapping[str, str]:
    """Returns a copy of the process environment."""
    return dict(os.environ)


def read_settings(
    overrides: Mapping[str, Any], environ: Mapping[str, str], config: Path | None, directory: Path | None
) -> Settings:
    """Loads the settings from saved setup data, the settings file, the environment and `overrides`, in this
    order. Each source overrides the earlier ones.

    `config` is the settings file; None means `patchwright.toml` in `directory`. If `directory` is None, reads
    neither `patchwright.toml` nor saved setup data. A workflow passes None, because its checkout is not trusted.
    Raises SettingsError if a value is invalid.
    """
    values: dict[str, Any] = {"data": default_data_directory(environ), **read_fallback_variables(environ)}
    from_file = read_toml(config) if config else _read_config_file(directory) if directory else {}
    from_environment = parse_environment(environ)
    from_options = {key: value for key, value in overrides.items() if value is not None}
    values |= {**from_file, **from_environment, **from_options}
    file = config or (directory or Path()) / CONFIG_FILE
    sources = name_sources(str(file), from_file, from_environment, from_options)
    if directory:
        values = credential_store.add_saved_settings(values)
    return build_settings(values, sources)


def _read_config_file(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG_FILE
    if not path.is_file():
        return {}
    values = read_toml(path)
    inside_repository = any((parent / ".git").exists() for parent in (directory, *directory.parents))
    if inside_repository and (sensitive := sorted(SENSITIVE_SETTINGS & values.keys())):
        raise SettingsError(
            f"{path} is in a git repository and sets {sensitive[0]}, which controls where credentials are sent, "
            f"what leaves the sandbox, or whether there is one. If you trust the file, pass --config {CONFIG_FILE}"
        )
    return values


def default_data_directory(environ: Mapping[str, str]) -> Path:
    """Returns the default directory for runs and caches.

    Source: specifications.freedesktop.org/basedir-spec
    """
    base = environ.get("XDG_DATA_HOME") or str(
        Path(environ.get("HOME") or "~").expanduser() / ".local" / "share"
    )
    return Path(base) / "patchwright"


def check_data_directory(data: Path, setting_name: str = "PATCHWRIGHT_DATA") -> None:
    """Creates the data directory and tests that it is writable. Raises SettingsError if this fails."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)  # it contains clones of private repositories
        with tempfile.TemporaryFile(dir=data):
            pass
    except OSError as exc:
        raise SettingsError(
            f"Cannot write to {data}, where runs are stored ({exc.strerror}). "
            f"Make it writable for this user, or set {setting_name} to another directory."
        ) from exc


# --- run dependencies ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def build_run_dependencies(
    settings: Settings,
    *,
    notify: Callable[[str], object],
    listeners: tuple["Listener", ...] = (),
    prepare_sandboxes: bool = True,
) -> AsyncIterator["RunDependencies"]:
    """Yields the RunDependencies of a run, and closes the sandboxes at the end.

    If `prepare_sandboxes` is True, the sandboxes are ready to use. If it is False, the caller must prepare
    them. `notify` receives messages about slow steps and fallbacks. Raises SettingsError, EngineUnavailable
    or ImageUnavailable before any work is done.
    """
    check_models(settings, read_environment())
    if prepare_sandboxes:  # A worker prepares its sandboxes before there is a job, so each job checks this.
        await check_endpoint(settings)
    check_data_directory(settings.data)
    from patchwright.bot.composition import sandbox_factory
    from patchwright.bot.composition.model_factory import build_models, build_transcriber, start_model_import
    from patchwright.resolver.git.workspaces import WorkspaceFactory
    from patchwright.resolver.rendering.jinja_templates import set_template_directory
    from patchwright.resolver.run.dependencies import RunDependencies
    from patchwright.resolver.run_log import FileLogStore
    from patchwright.resolver.sandbox.secret_sources import load_secret_sources, read_secrets_file
    from patchwright.resolver.secrets import MaskingFilter
    from patchwright.resolver.security.risk_plugins import check_plugins
    from patchwright.sdk.agent_loop import load_installed_agents

    set_template_directory(settings.templates)
    check_plugins(settings)
    read_secrets_file(settings.secrets_file)
    secrets = collect_secrets(settings, read_environment())
    for handler in logging.getLogger().handlers:
        handler.addFilter(MaskingFilter(secrets))
    sandboxes = sandbox_factory.build_sandboxes(settings, read_environment(), notify)
    if prepare_sandboxes:
        start_model_import(settings)  # Meanwhile, the sandbox starts and the repository is cloned.
        await sandbox_factory.prepare_sandboxes(sandboxes, settings)
    models = build_models(settings, secrets=secrets)
    try:
        yield RunDependencies(
            settings=settings,
            model=models.act,
            purpose_models=models,
            choose_models=lambda name: build_models(settings, name, secrets),
            agents=load_installed_agents(),
            transcription=build_transcriber(settings),
            get_repo_secrets=lambda repo: load_secret_sources(
                settings.secrets_file, repo, read_environment(), settings.ca_bundle
            ),
            checks_endpoint=not prepare_sandboxes,
            sandboxes=sandboxes,
            workspaces=WorkspaceFactory(settings.data / "cache", settings.ca_bundle),
            logs=FileLogStore(settings.data / "runs"),
            secrets=secrets,
            listeners=listeners,
        )
    finally:
        await sandboxes.close()


# --- GitHub -------------------------------------------------------------------------------------------------


def check_github_credentials(settings: Settings) -> None:
    """Raises SettingsError if neither an App nor a token is configured, or if the App's key is invalid."""
    _github_access(settings)


@contextlib.asynccontextmanager
async def open_forge(
    settings: Settings, pace: "RequestPolicy | None" = None, write_limiter: "WriteLimiter | None" = None
) -> AsyncIterator["GitHubForge"]:
    """Opens the GitHub client. Raises SettingsError if neither an App nor a token is configured."""
    from patchwright.bot.github.auth import WRITE_INTERVAL, RequestPolicy, configured_server
    from patchwright.bot.github.forge import GitHubForge

    # A server on this machine is not GitHub, and limits no writes.
    interval = 0.0 if is_loopback(settings.github_server_url) else WRITE_INTERVAL
    async with GitHubForge(
        _github_access(settings),
        configured_server(settings),
        ca_bundle=settings.ca_bundle,
        policy=pace or RequestPolicy(write_interval=interval),
        write_limiter=write_limiter,
    ) as forge:
        yield forge


def _github_access(settings: Settings) -> "AppAuth | TokenAuth":
    from patchwright.bot.github.auth import AppAuth, TokenAuth
    from patchwright.resolver.security.patch_policy import allows_workflows

    if settings.app_id and (key := read_private_key(settings)):
        return AppAuth(settings.app_id, key, allows_workflows(settings.allowed_paths))
    if settings.app_id:
        raise SettingsError(
            "PATCHWRIGHT_APP_ID is set, but PATCHWRIGHT_PRIVATE_KEY is not. Set it to the App's private key (PEM), "
            "or to the path of its file."
        )
    if settings.github_token:
        return TokenAuth(settings.github_token)
    raise SettingsError(
        "GITHUB_TOKEN is not set. Set it to a token that can write contents, issues and pull requests of the "
        "repository, or set PATCHWRIGHT_APP_ID and PATCHWRIGHT_PRIVATE_KEY. "
        "`patchwright serve` can create the App for you."
    )


# --- server -------------------------------------------------------------------------------------------------


async def start_server(
    settings: Settings,
    reload_settings: Callable[[], Settings],
    worker_command: Sequence[str],
    probe_command: Sequence[str],
    prepare_command: Sequence[str],
    host: str,
    port: int,
) -> bool:
    """Runs the receiver and a worker process until a stop signal. Returns True if the signal was Ctrl-C.

    If no GitHub identity is configured, runs the setup pages first. Then `reload_settings` reads the settings
    that the setup saved. `worker_command` starts a worker, `probe_command` tests a model, and
    `prepare_command` builds images. Raises WorkerFailed if the first worker does not start.
    """
    from patchwright.bot.composition.conversation_factory import open_conversations
    from patchwright.bot.http_server import open_listener
    from patchwright.bot.setup.bootstrap import is_setup_needed, run_setup, welcome_routes
    from patchwright.bot.setup.image_preparation import prepare_images
    from patchwright.bot.web.server import ServerExtensions, require_webhook_secret, run_server

    welcome_apps = None
    if not is_setup_needed(settings):
        # Checked first, so that a missing setting is reported even if the port is in use.
        require_webhook_secret(settings)
        check_data_directory(settings.data)
    if worker_command and settings.model is not None:
        check_models(settings, read_environment())
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(open_listener(host, port))
        if is_setup_needed(settings):
            images = await stack.enter_async_context(prepare_images(prepare_command, read_environment()))
            setup_result = await run_setup(settings, listener, probe_command, read_environment(), images)
            if isinstance(setup_result, signal.Signals):
                return setup_result == signal.SIGINT
            settings = reload_settings()
            welcome_apps = welcome_routes(settings, setup_result, images)
        worker_environment = {**read_environment(), "PATCHWRIGHT_POLL": "true" if settings.poll else "false"}
        stop_signal = await run_server(
            settings,
            worker_command,
            worker_environment,
            listener,
            secrets=collect_secrets(settings, read_environment()),
            extensions=ServerExtensions(
                welcome_apps, partial(open_conversations, settings, read_environment())
            ),
        )
    return stop_signal == signal.SIGINT
