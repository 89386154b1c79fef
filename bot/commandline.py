"""What each command does, and which exit code its ending gets."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bot import compose
from bot.credentials import private_key_of, secrets_of
from bot.errors import Unanswered, WorkerFailed
from bot.observe.logs import LogLine, listen
from bot.terminal.exits import DELIVERED, ERROR, INTERRUPTED, NOTHING, USAGE
from bot.terminal.lines import plain, print_json, to_stderr
from bot.terminal.local_files import absolute
from resolver.errors import (
    Forbidden,
    ModelRefused,
    NotFound,
    RepositoryUnusable,
    ResolverError,
    SettingsError,
    Unauthorized,
    UsageError,
)
from resolver.settings.settings import Settings
from resolver.suites.kind import Language
from runtime.errors import ImageUnavailable, SandboxError

ForOperators = (
    SettingsError, UsageError, RepositoryUnusable, ModelRefused, NotFound, Unauthorized, Forbidden,
)  # fmt: skip
"""What only a change of the command, the settings or the rights can mend."""
MENDS = {
    Unauthorized: "Check GITHUB_TOKEN, or PATCHWRIGHT_APP_ID and its private key.",
    Forbidden: "The token needs to read and write contents, issues and pull requests of the repository.",
    NotFound: "Check the address, and that GITHUB_TOKEN or the App may see the repository.",
    Unanswered: "Check the network, and GITHUB_API_URL.",
}

SHARED = {
    "model": "model", "model_base_url": "base-url", "sandbox": "sandbox", "image": "image",
    "max_steps": "max-steps", "max_usd": "max-usd", "timeout": "timeout", "config": "config",
}  # fmt: skip
"""Settings that may stand on the command line, and their options."""
READING = frozenset({"runs", "view", "export", "replay", "probe", "doctor", "completion"})
"""Commands that do nothing but tell."""

T = TypeVar("T")


def run(options: argparse.Namespace, top: argparse.ArgumentParser) -> int:
    """Run the chosen command; the exit code. Every error becomes one sentence on standard error."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogLine())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    try:
        command: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = {
            "resolve": resolve,
            "serve": serve,
            "work": work,
            "gate": gate,
            "action": action,
            "demo": demo,
            "runs": look,
            "view": look,
            "export": look,
            "replay": look,
            "probe": probe,
            "completion": completion,
            "doctor": doctor,
            "prepare": prepare,
        }[options.command]
        code = _runner(options.command)(_until_stopped(command(options)))
        if options.command in READING:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        if options.command not in READING:
            raise
        # `| head` has seen enough; Python would complain again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DELIVERED
    except WorkerFailed as exc:
        code = exc.exit_code if exc.exit_code in range(1, 128) else ERROR
        if options.json:  # people have read why on standard error
            kind = type(exc).__name__
            print_json(
                {
                    "outcome": "error",
                    "error": f"{exc} Its standard error says why.",
                    "kind": kind,
                    "exit_code": code,
                }
            )
        return code
    except ForOperators as exc:
        return complain(options, exc, USAGE)
    except (ResolverError, SandboxError) as exc:
        return complain(options, exc, ERROR)
    except (KeyboardInterrupt, asyncio.CancelledError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed once more, it has nothing left to stop
        print("Stopped.", file=sys.stderr)
        if options.json:
            print_json({"outcome": "interrupted", "exit_code": INTERRUPTED})
        return INTERRUPTED


def _runner(command: str) -> Callable[[Coroutine[Any, Any, int]], int]:
    """The event loop: uvloop halves what a delivery costs (benchmarks/receiver.py), and nothing else would gain."""
    if command != "serve":
        return asyncio.run
    import uvloop

    return uvloop.run


async def _until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """The work; SIGTERM stops it as Ctrl-C does, with everything closed."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def complain(options: argparse.Namespace, error: Exception, code: int) -> int:
    """Say what is wrong, where people and machines look for it."""
    mend = next((mend for kind, mend in MENDS.items() if isinstance(error, kind)), None)
    sentence = plain(f"{str(error).rstrip('.')}. {mend}" if mend else str(error))
    print(f"patchwright: {sentence}", file=sys.stderr)
    if options.json:
        print_json({"outcome": "error", "error": sentence, "kind": type(error).__name__, "exit_code": code})
    return code


async def resolve(options: argparse.Namespace) -> int:
    """One issue, from a URL, a path, or a run to go on with."""
    from bot.terminal.resolving import resolved

    return await resolved(options, _settings(options))


async def serve(options: argparse.Namespace) -> int:
    """The server: receiver, queue and worker in one process tree."""
    settings = _listening(options)
    ours = (sys.executable, "-P", "-m", "bot.cli")
    command, images = list[str](), list[str]()
    if not options.no_worker:
        alone = ["--alone"] if settings.redis_url is None else []
        command = [*ours, "work", *_shared(options), *alone]
        images = [*ours, "prepare", *_shared(options, "config", "sandbox", "image")]
    elif settings.redis_url is None:
        raise SettingsError(
            "REDIS_URL is not set: with --no-worker, name the Redis that workers take jobs from."
        )
    probe = [*ours, "probe", "--json", *_shared(options, "config")]
    serving = compose.serve(
        settings, lambda: _listening(options), command, probe, images, options.host, options.port
    )
    return INTERRUPTED if await serving else 0


async def work(options: argparse.Namespace) -> int:
    """A worker, for a server here or elsewhere."""
    interrupted = await compose.work(_listening(options), to_stderr, sole=options.alone)
    return INTERRUPTED if interrupted else 0


async def gate(options: argparse.Namespace) -> int:
    """A door to the engine for workers, until Ctrl-C or SIGTERM."""
    from bot.gate.gate import Gate
    from bot.signals import signals

    logging.getLogger("bot").setLevel(logging.INFO)
    group = int(options.group) if (options.group or "").isdigit() else options.group
    with signals() as told:
        async with Gate(Path(options.engine)).listening(absolute(options.listen), group):
            print(f"patchwright lets sandboxes through at {options.listen}", flush=True)
            return INTERRUPTED if await told == signal.SIGINT else 0


def _listening(options: argparse.Namespace) -> Settings:
    """The settings of a server, which logs by them from here on."""
    settings = _settings(options)
    secrets = secrets_of(settings, compose.environment())
    listen(settings, secrets, terminal=sys.stderr.isatty())
    return settings


def _shared(options: argparse.Namespace, *only: str) -> list[str]:
    """The settings of this command line, or these of them, for another one."""
    given = {name: getattr(options, key) for key, name in SHARED.items() if not only or key in only}
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


async def action(options: argparse.Namespace) -> int:
    """The event of a workflow."""
    from bot.action.parts import action as work_on_event

    leave, publish = (Path(place) if place else None for place in (options.leave, options.publish))
    return await work_on_event(_settings(options, directory=None), to_stderr, leave=leave, publish=publish)


async def look(options: argparse.Namespace) -> int:
    """Runs on this disk, to be read."""
    from bot.terminal.runs import looked

    settings, environ = _settings(options), compose.environment()
    return looked(options, settings, secrets_of(settings, environ), environ)


async def probe(options: argparse.Namespace) -> int:
    """Which of the configured models can drive the agent."""
    from bot.terminal.probing import probed

    return DELIVERED if await probed(_settings(options), as_json=options.json) else NOTHING


async def doctor(options: argparse.Namespace) -> int:
    """Whether everything is there that a run needs."""
    from bot.doctor.report import all_checks, told

    settings, environ = _settings(options), compose.environment()
    checks = all_checks(settings, private_key_of(settings), environ)
    healthy = await told(checks, secrets_of(settings, environ), environ, as_json=options.json)
    return DELIVERED if healthy else ERROR


async def prepare(options: argparse.Namespace) -> int:
    """The images of every sandbox, before one is needed."""
    from bot.sandboxes import docker_sandboxes

    settings = _settings(options)
    compose.check_room(settings.data)
    image, images = None, dict[Language, str | None]()
    if settings.sandbox != "local":
        made = docker_sandboxes(settings, compose.environment(), to_stderr)
        _, image = await made.prepare()
        for language, base in settings.images.items():
            try:
                _, images[language] = await (await made.on(base)).prepare()
            except ImageUnavailable as exc:
                images[language] = None
                to_stderr(f"NOTICE: {exc}. What is tested in {language} goes on the usual image.")
        await made.close()
    if options.json:
        print_json({"image": image, "images": images, "plugins": made.plugins if image else ()})
    else:
        print(f"The sandbox's images are ready: {image}" if image else "The local sandbox needs no image.")
        for language, base in settings.images.items() if image else ():
            print(f"for {language}, on {base}: {images[language] or 'none'}")
    return DELIVERED


async def completion(options: argparse.Namespace) -> int:
    """What a shell reads to complete our commands."""
    from bot.terminal.completion import script

    print(script(options.shell))
    return 0


async def demo(options: argparse.Namespace) -> int:
    """The first command of the README."""
    from bot.sandboxes import sandbox_kind
    from demo.run import demo as play
    from demo.run import fresh_directory

    environ = compose.environment()
    kept = Path(environ.get("PATCHWRIGHT_DATA") or compose.data_directory(environ))
    data = absolute(options.keep) if options.keep else fresh_directory(kept)
    compose.check_room(data, "--keep" if options.keep else "PATCHWRIGHT_DATA")
    wanted = {"sandbox": options.sandbox, "data": data, "plugins": "none"}
    settings = compose.read_settings(wanted, compose.only(environ, compose.FOR_IMAGES), None, None)
    sandbox, why = await sandbox_kind(settings, environ, to_stderr)
    return await play(sandbox, why, data, environ, as_json=options.json)


def _settings(options: argparse.Namespace, directory: Path | None = Path()) -> Settings:
    overrides = {key: getattr(options, key, None) for key in (*SHARED, "poll") if key != "config"}
    config = Path(options.config) if options.config else None
    found = compose.read_settings(overrides, compose.environment(), config, directory and directory.resolve())
    if found.templates is not None:  # pages and run files are made of them too, not only what a run says
        from resolver.words.texts import use_templates

        use_templates(found.templates)
    return found
