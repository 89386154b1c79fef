"""Runs the commands of the command line and maps their results and errors to exit codes."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from patchwright.bot.composition import composition_root
from patchwright.bot.credentials import collect_secrets, read_private_key
from patchwright.bot.errors import ForgeUnavailable, WorkerFailed
from patchwright.bot.observe.logging_setup import TextFormatter, configure_logging
from patchwright.bot.terminal.exit_codes import ERROR, INTERRUPTED, SUCCESS, UNSUCCESSFUL, USAGE_ERROR
from patchwright.bot.terminal.local_files import absolute_path
from patchwright.bot.terminal.output import print_json, print_stderr, strip_control_chars
from patchwright.resolver.errors import (
    Forbidden,
    LogLocked,
    ModelAccessDenied,
    NotFound,
    RepositoryUnusable,
    ResolverError,
    SettingsError,
    Unauthorized,
    UsageError,
)
from patchwright.resolver.runner_names import Language
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import EngineStopped, EngineUnavailable, ImageUnavailable, SandboxError

OPERATOR_ERRORS = (
    SettingsError, UsageError, RepositoryUnusable, ModelAccessDenied, NotFound, Unauthorized, Forbidden,
    EngineUnavailable, ImageUnavailable, LogLocked,
)  # fmt: skip
"""Errors that the operator must fix by changing the command, the settings or the permissions, or by waiting."""
ERROR_HINTS = {
    Unauthorized: "Check GITHUB_TOKEN, or PATCHWRIGHT_APP_ID and its private key.",
    Forbidden: "The token needs read and write access to contents, issues and pull requests of the repository.",
    NotFound: "Check the URL, and that GITHUB_TOKEN or the App has access to the repository.",
    ForgeUnavailable: "Check the network and GITHUB_API_URL.",
}

SETTINGS_OPTIONS = {
    "model": "model", "model_base_url": "base-url", "sandbox": "sandbox", "image": "image",
    "max_steps": "max-steps", "max_usd": "max-usd", "timeout": "timeout", "config": "config",
}  # fmt: skip
"""Maps the name of each setting to its command-line option."""
READ_ONLY_COMMANDS = frozenset({"runs", "view", "export", "replay", "probe", "doctor", "completion"})
"""The names of the commands that only print information and change nothing."""

T = TypeVar("T")


def run_command(options: argparse.Namespace) -> int:
    """Runs the selected command and returns its exit code. Prints each expected error as one sentence to
    standard error.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    try:
        code = _loop_runner(options.command)(_cancel_on_sigterm(COMMANDS[options.command](options)))
        if options.command in READ_ONLY_COMMANDS:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        if options.command not in READ_ONLY_COMMANDS:
            raise
        # The reader has closed the pipe, as `| head` does. Without this line, Python would print another
        # error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS
    except WorkerFailed as exc:
        code = exc.exit_code if exc.exit_code in range(1, 128) else ERROR
        if options.json:  # The worker has already printed the reason to standard error.
            kind = type(exc).__name__
            print_json(
                {
                    "outcome": "error",
                    "error": f"{exc} See the standard error of the worker.",
                    "kind": kind,
                    "exit_code": code,
                }
            )
        return code
    except OPERATOR_ERRORS as exc:
        # EngineStopped is no usage error: the engine responded before it stopped.
        return report_error(options, exc, ERROR if isinstance(exc, EngineStopped) else USAGE_ERROR)
    except (ResolverError, SandboxError) as exc:
        return report_error(options, exc, ERROR)
    except (KeyboardInterrupt, asyncio.CancelledError):
        # The command has already stopped, so a second Ctrl-C must not print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("Stopped.", file=sys.stderr)
        if options.json:
            saved_run = getattr(options, "saved_run", {})
            print_json({"outcome": "interrupted", "exit_code": INTERRUPTED, **saved_run})
        return INTERRUPTED


def _loop_runner(command: str) -> Callable[[Coroutine[Any, Any, int]], int]:
    """Returns the function that runs the event loop.

    `serve` uses uvloop, which halves the cost of a delivery (benchmarks/receiver.py). Other commands would
    not benefit.
    """
    if command != "serve":
        return asyncio.run
    import uvloop

    return uvloop.run


async def _cancel_on_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """Awaits a command. Cancels the command if the process gets SIGTERM. The command can then close its
    resources, as after Ctrl-C.
    """
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def report_error(options: argparse.Namespace, error: Exception, code: int) -> int:
    """Prints the error to standard error. With --json, also prints it as a JSON object to standard output.
    Returns the exit code `code`.
    """
    hint = next((hint for kind, hint in ERROR_HINTS.items() if isinstance(error, kind)), None)
    sentence = strip_control_chars(f"{str(error).rstrip('.')}. {hint}" if hint else str(error))
    print(f"patchwright: {sentence}", file=sys.stderr)
    if options.json:
        print_json({"outcome": "error", "error": sentence, "kind": type(error).__name__, "exit_code": code})
    return code


async def resolve(options: argparse.Namespace) -> int:
    """Resolves one issue, or resumes a run. The issue is given as a URL or as the path of a file."""
    from patchwright.bot.commands.resolve_command import run_resolve

    return await run_resolve(options, _load_settings(options))


async def serve(options: argparse.Namespace) -> int:
    """Runs the server: the receiver, Redis and a worker process."""
    settings = _load_server_settings(options)
    patchwright = (sys.executable, "-P", "-m", "patchwright")
    command, images = list[str](), list[str]()
    if not options.no_worker:
        exclusive = ["--exclusive"] if settings.redis_url is None else []
        command = [*patchwright, "work", *_settings_arguments(options), *exclusive]
        images = [*patchwright, "prepare", *_settings_arguments(options, "config", "sandbox", "image")]
    elif settings.redis_url is None:
        raise SettingsError(
            "REDIS_URL is not set. With --no-worker, set it to the Redis that the workers use."
        )
    probe = [*patchwright, "probe", "--json", *_settings_arguments(options, "config")]
    serving = composition_root.start_server(
        settings, lambda: _load_server_settings(options), command, probe, images, options.host, options.port
    )
    return INTERRUPTED if await serving else 0


async def work(options: argparse.Namespace) -> int:
    """Runs a worker. The server that it works for may run on this machine or on another one."""
    settings = _load_server_settings(options)  # first, so that an invalid setting is reported at once
    from patchwright.bot.composition.worker_root import start_worker

    interrupted = await start_worker(settings, print_stderr, exclusive=options.exclusive)
    return INTERRUPTED if interrupted else 0


async def docker_proxy(options: argparse.Namespace) -> int:
    """Runs the Docker proxy for workers until Ctrl-C or SIGTERM."""
    from patchwright.bot.docker_proxy.proxy import DockerProxy
    from patchwright.bot.signals import catch_stop_signals

    logging.getLogger("patchwright.bot").setLevel(logging.INFO)
    group = int(options.group) if (options.group or "").isdigit() else options.group
    with catch_stop_signals() as stop_signal:
        async with DockerProxy(Path(options.engine)).listen(absolute_path(options.listen), group):
            print(f"patchwright Docker proxy is listening on {options.listen}", flush=True)
            return INTERRUPTED if await stop_signal == signal.SIGINT else 0


def _load_server_settings(options: argparse.Namespace) -> Settings:
    """Loads the settings of a server and configures logging from them."""
    settings = _load_settings(options)
    secrets = collect_secrets(settings, composition_root.read_environment())
    configure_logging(settings, secrets, is_terminal=sys.stderr.isatty())
    return settings


def _settings_arguments(options: argparse.Namespace, *names: str) -> list[str]:
    """Converts the settings in `options` to command-line arguments for another patchwright command.

    If `names` is empty, converts all settings that the user gave as options. Otherwise, converts only the
    settings in `names`.
    """
    values = {
        name: getattr(options, key) for key, name in SETTINGS_OPTIONS.items() if not names or key in names
    }
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


async def action(options: argparse.Namespace) -> int:
    """Handles the event that started a GitHub Actions workflow."""
    from patchwright.bot.github_action.workflow_jobs import run_workflow_job

    resolve_directory, publish_directory = (
        Path(path) if path else None for path in (options.resolve, options.publish)
    )
    return await run_workflow_job(
        lambda: _load_settings(options, directory=None),
        print_stderr,
        resolve_directory=resolve_directory,
        publish_directory=publish_directory,
    )


async def inspect_runs(options: argparse.Namespace) -> int:
    """Runs a command that reads runs from the local disk or the archive."""
    from patchwright.bot.commands.inspect_commands import run_inspect_command

    settings, environ = _load_settings(options), composition_root.read_environment()
    return run_inspect_command(options, settings, collect_secrets(settings, environ), environ)


async def probe(options: argparse.Namespace) -> int:
    """Tests whether each configured model can drive the agent."""
    from patchwright.bot.commands.probe_command import run_probe

    settings, environ = _load_settings(options), composition_root.read_environment()
    return SUCCESS if await run_probe(settings, environ, as_json=options.json) else UNSUCCESSFUL


async def doctor(options: argparse.Namespace) -> int:
    """Checks that everything a run needs is available."""
    from patchwright.bot.doctor.report import all_checks, print_report

    settings, environ = _load_settings(options), composition_root.read_environment()
    checks = all_checks(settings, read_private_key(settings), environ)
    healthy = await print_report(checks, collect_secrets(settings, environ), environ, as_json=options.json)
    return SUCCESS if healthy else UNSUCCESSFUL


async def prepare(options: argparse.Namespace) -> int:
    """Builds the images of all sandboxes ahead of time."""
    from patchwright.bot.composition.sandbox_factory import build_docker_sandboxes

    settings = _load_settings(options)
    composition_root.check_data_directory(settings.data)
    image, images = None, dict[Language, str | None]()
    if settings.sandbox != "local":
        sandboxes = build_docker_sandboxes(settings, composition_root.read_environment(), print_stderr)
        _, image = await sandboxes.prepare()
        for language, base in settings.language_images.items():
            try:
                _, images[language] = await (await sandboxes.with_image(base)).prepare()
            except ImageUnavailable as exc:
                images[language] = None
                print_stderr(f"NOTICE: {exc}. Tests in {language} use the default image.")
        await sandboxes.close()
    if options.json:
        print_json(
            {"image": image, "images": images, "sandbox_features": sandboxes.features if image else ()}
        )
    else:
        print(f"Sandbox images are ready: {image}" if image else "The local sandbox needs no image.")
        for language, base in settings.language_images.items() if image else ():
            print(f"for {language}, on {base}: {images[language] or 'none'}")
    return SUCCESS


async def completion(options: argparse.Namespace) -> int:
    """Prints the completion script of a shell."""
    from patchwright.bot.commands.completion import completion_script

    print(completion_script(options.shell))
    return 0


async def demo(options: argparse.Namespace) -> int:
    """Runs the demo, which resolves one issue with recorded model replies on a simulated GitHub."""
    from patchwright.bot.composition.sandbox_factory import choose_demo_sandbox
    from patchwright.demo.run import new_data_dir, run_demo

    environ = composition_root.read_environment()
    default_directory = Path(
        environ.get("PATCHWRIGHT_DATA") or composition_root.default_data_directory(environ)
    )
    data = absolute_path(options.keep) if options.keep else new_data_dir(default_directory)
    composition_root.check_data_directory(data, "--keep" if options.keep else "PATCHWRIGHT_DATA")
    overrides = {"sandbox": options.sandbox, "data": data, "sandbox_features": "none"}
    settings = composition_root.read_settings(
        overrides, composition_root.select_variables(environ, composition_root.IMAGE_VARIABLES), None, None
    )
    sandbox, fallback_reason = await choose_demo_sandbox(settings, environ, print_stderr)
    return await run_demo(sandbox, fallback_reason, data, environ, as_json=options.json)


def _load_settings(options: argparse.Namespace, directory: Path | None = Path()) -> Settings:
    overrides = {key: getattr(options, key, None) for key in (*SETTINGS_OPTIONS, "poll") if key != "config"}
    config = Path(options.config) if options.config else None
    settings = composition_root.read_settings(
        overrides, composition_root.read_environment(), config, directory and directory.resolve()
    )
    # The dashboard and exported runs use these templates too, so the directory is set before any run starts.
    if settings.templates is not None:
        from patchwright.resolver.rendering.jinja_templates import set_template_directory

        set_template_directory(settings.templates)
    return settings


COMMANDS: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, int]]] = {
    "resolve": resolve,
    "serve": serve,
    "work": work,
    "docker-proxy": docker_proxy,
    "action": action,
    "demo": demo,
    "runs": inspect_runs,
    "view": inspect_runs,
    "export": inspect_runs,
    "replay": inspect_runs,
    "probe": probe,
    "completion": completion,
    "doctor": doctor,
    "prepare": prepare,
}
"""Maps the name of each command to the function that runs it. The function returns the exit code."""
