"""The composition root: reads the environment and picks the implementations. Nothing else does either."""

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.credentials import private_key_of, secrets_of
from bot.setup.kept import read as read_kept
from bot.setup.kept import settings_from
from resolver.errors import ForgeError, SettingsError, Unauthorized
from resolver.settings.settings import (
    SENSITIVE,
    STANDARD,
    Settings,
    build,
    from_environment,
    from_machine,
    from_toml,
)

if TYPE_CHECKING:  # heavy, and not needed to refuse a wrong setting
    from bot.github.forge import GitHubForge
    from bot.github.rest import AppAccess, Pace, TokenAccess
    from bot.pacing import Line
    from resolver.kit import Kit
    from resolver.log import Listener

FILE = "patchwright.toml"
FOR_IMAGES = ("PATCHWRIGHT_IMAGE", "PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", *STANDARD)


def only(environ: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
    """Part of an environment."""
    return {name: environ[name] for name in names if name in environ}


def environment() -> Mapping[str, str]:
    """The process environment, for those who are handed it."""
    return dict(os.environ)


def read_settings(
    overrides: Mapping[str, Any], environ: Mapping[str, str], config: Path | None, directory: Path | None
) -> Settings:
    """The operator's settings: what set-up has kept, then file, environment, command line. Raises SettingsError.

    `directory`: where a `patchwright.toml` is looked for; None: nowhere (a workflow runs in a checkout), and then
    nothing is taken of what set-up has kept either.
    """
    values: dict[str, Any] = {"data": data_directory(environ), **from_machine(environ)}
    if config:
        values |= from_toml(config)
    elif directory:
        values |= _found(directory)
    values |= from_environment(environ)
    values |= {key: value for key, value in overrides.items() if value is not None}
    if directory:
        values = {**settings_from(read_kept(Path(str(values["data"]))), values), **values}
    return build(values, "the settings")


def _found(directory: Path) -> dict[str, Any]:
    path = directory / FILE
    if not path.is_file():
        return {}
    values = from_toml(path)
    inside_repository = any((parent / ".git").exists() for parent in (directory, *directory.parents))
    if inside_repository and (named := sorted(SENSITIVE & values.keys())):
        raise SettingsError(
            f"{path} lies in a git repository and sets {named[0]}, which decides where credentials are sent "
            "or what leaves the sandbox. "
            f"If the file is yours, name it: --config {FILE}"
        )
    return values


def data_directory(environ: Mapping[str, str]) -> Path:
    """Where runs and caches go by default.

    Source: specifications.freedesktop.org/basedir-spec
    """
    base = environ.get("XDG_DATA_HOME") or str(
        Path(environ.get("HOME") or "~").expanduser() / ".local" / "share"
    )
    return Path(base) / "patchwright"


def check_room(data: Path, named_by: str = "PATCHWRIGHT_DATA") -> None:
    """Before anything is begun. Raises SettingsError where nothing can be kept."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data):
            pass
    except OSError as exc:
        raise SettingsError(
            f"{data} cannot be written ({exc.strerror}), and runs are kept there. "
            f"Let this user write in it, or choose another place with {named_by}."
        ) from exc


# --- the kit ------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def kit(
    settings: Settings,
    *,
    trusted: bool,
    say: Callable[[str], object],
    listeners: tuple["Listener", ...] = (),
    prepared: bool = True,
) -> AsyncIterator["Kit"]:
    """Everything a run needs, ready to use; but for its sandboxes, where these are to be `prepared` later.

    `trusted`: whether issue and code are the operator's own, so that the local sandbox may stand in for Docker.
    `say` hears what takes long and what is not as usual. Raises SettingsError, EngineUnavailable or
    ImageUnavailable before any work is done.
    """
    if settings.model is None:
        raise SettingsError(
            "PATCHWRIGHT_MODEL is not set: name the model to use, such as anthropic/claude-sonnet-4-5 (or --model)."
        )
    check_room(settings.data)
    from bot.models import hearing, models
    from bot.sandboxes import sandboxes_for, sandboxes_of
    from resolver.kit import Kit
    from resolver.log import FileLogs
    from resolver.sandbox.lending import read_secrets
    from resolver.secrets import MaskingFilter
    from resolver.words.texts import use_templates
    from resolver.workspace import Workspaces

    use_templates(settings.templates)
    secrets = secrets_of(settings, environment())
    for handler in logging.getLogger().handlers:
        handler.addFilter(MaskingFilter(secrets))
    sandboxes = (
        await sandboxes_for(settings, environment(), trusted=trusted, say=say)
        if prepared
        else sandboxes_of(settings, environment(), say)
    )
    by_purpose = models(settings)
    try:
        yield Kit(
            settings=settings,
            model=by_purpose.act,
            purposes=by_purpose,
            choose=lambda name: models(settings, name),
            hearing=hearing(settings),
            lent=lambda repo: read_secrets(settings.secrets_file, repo, environment()),
            sandboxes=sandboxes,
            workspaces=Workspaces(settings.data / "cache", settings.ca_bundle),
            logs=FileLogs(settings.data / "runs"),
            secrets=secrets,
            listeners=listeners,
        )
    finally:
        await sandboxes.close()


# --- the forge ----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def forge(
    settings: Settings, pace: "Pace | None" = None, line: "Line | None" = None
) -> AsyncIterator["GitHubForge"]:
    """GitHub, by App or by token; `line`: of the writes. Raises SettingsError when neither is there."""
    from bot.github.forge import GitHubForge
    from bot.github.rest import Pace

    async with GitHubForge(
        _access(settings),
        api_url=settings.github_api_url,
        graphql_url=settings.github_graphql_url,
        server_url=settings.github_server_url,
        ca_bundle=settings.ca_bundle,
        pace=pace or Pace(between_writes=settings.between_writes),
        line=line,
    ) as made:
        yield made


def _access(settings: Settings) -> "AppAccess | TokenAccess":
    from bot.github.rest import AppAccess, TokenAccess
    from resolver.security.policy import frees_workflows

    key = private_key_of(settings)
    if settings.app_id and key:
        return AppAccess(settings.app_id, key, frees_workflows(settings.allow_paths))
    if settings.app_id:
        raise SettingsError(
            "PATCHWRIGHT_APP_ID is set, but neither PATCHWRIGHT_PRIVATE_KEY nor PATCHWRIGHT_PRIVATE_KEY_FILE: "
            "give the App's private key (PEM)."
        )
    if settings.github_token:
        return TokenAccess(settings.github_token)
    raise SettingsError(
        "GITHUB_TOKEN is not set: give a token that may write contents, issues and pull requests of the "
        "repository, or PATCHWRIGHT_APP_ID with PATCHWRIGHT_PRIVATE_KEY_FILE; `patchwright serve` begins with a page "
        "that makes an App."
    )


# --- the server ---------------------------------------------------------------------------------------------


async def serve(
    settings: Settings,
    again: Callable[[], Settings],
    worker: Sequence[str],
    probe: Sequence[str],
    images: Sequence[str],
    host: str,
    port: int,
) -> bool:
    """The receiver, and a worker process beside it, until a signal says stop; whether it was Ctrl-C.

    Where nothing says who we are, a page asks for it first, and then the settings are read `again`. `worker` is the
    command of one that calls `work`, `probe` of what tries a model, `images` of what makes images meanwhile. Raises
    WorkerFailed when the worker could not begin.
    """
    from bot.http import listening
    from bot.serve import serve as run
    from bot.serve import webhook_secret
    from bot.setup.first import is_wanted, set_up, welcoming
    from bot.setup.images import making

    more = None
    if not is_wanted(settings):
        webhook_secret(settings)  # what lacks is told whether or not the port is free
        check_room(settings.data)
    async with contextlib.AsyncExitStack() as stack:
        door = stack.enter_context(listening(host, port))
        if is_wanted(settings):
            made = await stack.enter_async_context(making(images, environment()))
            ended = await set_up(settings, door, probe, environment(), made)
            if isinstance(ended, signal.Signals):
                return ended == signal.SIGINT
            settings = again()
            more = welcoming(settings, ended, made)
        for_worker = {**environment(), "PATCHWRIGHT_POLL": "true" if settings.poll else "false"}
        secrets = secrets_of(settings, environment())
        told = await run(
            settings, worker, for_worker, host=host, port=port, secrets=secrets, door=door, more=more
        )
    return told == signal.SIGINT


async def work(settings: Settings, say: Callable[[str], object], *, sole: bool) -> bool:
    """Do what is asked for in the Redis of the settings, until a signal says stop; whether it was Ctrl-C."""
    from bot.github.grants import AppGrants, granted
    from bot.indexing import indexing, keep_whole, settled
    from bot.jobs import Result
    from bot.limits import limited
    from bot.mail import Mail
    from bot.observe.account import account_of
    from bot.observe.archive import Archivist, archive_of
    from bot.observe.tracing import tracing
    from bot.pacing import Prompt
    from bot.progress import apologize, commenting
    from bot.pulls import OurPulls
    from bot.reconcile.watching import watching
    from bot.redis.engines import Engines, telling
    from bot.redis.ledger import Ledger
    from bot.redis.log import SharedLogs, no_archive
    from bot.redis.lookout import Lookout
    from bot.redis.pacing import SharedLine
    from bot.redis.queue import ArqQueue
    from bot.redis.runs import Runs
    from bot.sandboxes import prepare
    from bot.work import check
    from bot.work import work as run
    from resolver.domain import JobId, Spent
    from resolver.errors import LogError
    from resolver.forge import Masked
    from resolver.llm.litellm import warm
    from resolver.log import FileLogs
    from resolver.resolve import resolve
    from runtime.docker.reaper import again_and_again

    check(settings)
    async with contextlib.AsyncExitStack() as stack:
        # First the forge: a missing credential is told before an image is built.
        line = SharedLine(settings.redis_url or "")
        stack.push_async_callback(line.close)
        github = await stack.enter_async_context(forge(settings, line=line))
        await greet(github, say)
        watch = await stack.enter_async_context(watching(settings, _access(settings), line=line))
        here, archive = FileLogs(settings.data / "runs"), archive_of(settings)
        logs = SharedLogs(here, settings.redis_url or "", archive.read if archive else no_archive)
        ledger = Ledger(settings.redis_url or "", settings.configuration)
        queue = ArqQueue(settings.redis_url or "")
        lookout, runs = Lookout(settings.redis_url or ""), Runs(settings.redis_url or "")
        engines = Engines(settings.redis_url or "")
        stack.push_async_callback(engines.close)
        for store in (logs, ledger, queue, lookout, runs):
            stack.push_async_callback(store.close)
        made = await stack.enter_async_context(kit(settings, trusted=False, say=say, prepared=False))
        masked = Masked(github, made.secrets.mask)
        made = replace(made, logs=logs, news=Mail(queue, masked).news)
        reporting, grants = indexing(commenting(masked, settings), runs), AppGrants(github.rest, lookout)
        tracer = tracing(environment(), logs.read, settings.configuration)
        stack.push_async_callback(tracer.close)
        warming = asyncio.create_task(warm())  # 2 s that the first issue need not wait for
        sweeping = asyncio.create_task(again_and_again(telling(made.sandboxes.sweep, engines)))
        archiving = asyncio.create_task(Archivist(logs, here, archive).run())
        listing = asyncio.create_task(keep_whole(runs, settings.data / "runs", archive))

        async def ready() -> None:
            await prepare(made.sandboxes, settings)
            await engines.tell()

        def spent(job: JobId) -> Spent:
            try:
                return logs.read(job).spent()
            except LogError:  # it has not begun
                return Spent()

        async def ended(job: JobId, result: Result) -> Spent:
            tracer.tell(job, result)
            account = await asyncio.to_thread(account_of, job, logs.read)
            await ledger.end(job, result, account)
            await settled(job, result, runs, queue)
            return account.spent

        stopped = await run(
            settings,
            limited(
                granted(tracer.noting(lambda job: resolve(job, made, masked, reporting)), grants, masked),
                *(ledger, masked, settings, spent),
            ),
            lambda job, error: apologize(masked, job, error, made),
            prepare=ready,
            ended=ended,
            watch=watch,
            pulls=OurPulls(github.rest, github, ledger, settings.branch_prefix),
            grants=grants,
            speaker=Prompt(github),
            eyes=github,
            sole=sole,
        )
        sweeping.cancel()
        archiving.cancel()
        listing.cancel()
        await warming
        await asyncio.gather(sweeping, archiving, listing, return_exceptions=True)
    return stopped == signal.SIGINT


async def greet(github: "GitHubForge", say: Callable[[str], object]) -> None:
    """Learn now, not with the first issue, that GitHub does not know us. Raises Unauthorized."""
    try:
        await github.greet()
    except Unauthorized:
        raise
    except ForgeError as exc:  # it may be back before the first delivery
        say(f"NOTICE: GitHub cannot be asked right now whether it knows us: {exc}")
