"""Defines the command line. Each command imports its slow modules when it runs, so that `--help` responds at
once.
"""

import argparse
import os
from collections.abc import Sequence

from patchwright.bot.terminal.exit_codes import CHECK_EXIT_CODES, JOB_EXIT_CODES, USAGE_ERROR
from patchwright.bot.terminal.help_screens import (
    GETTING_STARTED,
    SETTINGS_HELP,
    CommandParser,
    HelpFormatter,
    Subparsers,
    exit_codes_help,
)
from patchwright.bot.terminal.help_screens import add_command as _command
from patchwright.runtime import VERSION

JSON_ERROR_HELP = "also print a fatal error as one JSON object"


def build_parser() -> argparse.ArgumentParser:
    """Returns the argument parser with all commands."""
    parser = CommandParser(
        prog="patchwright",
        description="Label an issue `fix-me`, get a tested pull request.",
        epilog=f"{exit_codes_help(JOB_EXIT_CODES)}{SETTINGS_HELP}\nshell completion: patchwright completion --help",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (
        _add_resolve, _add_serve, _add_work, _add_docker_proxy, _add_action, _add_demo, _add_runs, _add_view,
        _add_export, _add_replay, _add_probe, _add_doctor, _add_prepare, _add_completion,
    ):  # fmt: skip
        add(commands)
    return parser


def _add_resolve(commands: Subparsers) -> None:
    command = _command(
        commands,
        "resolve",
        "resolve one issue and open a verified pull request",
        "Resolve one issue: reproduce it, fix it, verify the fix with the repository's own tests, and open a pull\n"
        "request.\n\n"
        "  patchwright resolve https://github.com/OWNER/REPO/issues/7\n"
        "  patchwright resolve --repo PATH --issue FILE.md --out FIX.diff\n"
        "  patchwright resolve --continue RUN [--answer TEXT]",
        JOB_EXIT_CODES,
    )
    command.add_argument(
        "url",
        nargs="?",
        metavar="ISSUE",
        help="URL of an issue or pull request, or OWNER/REPO#7; for a pull request, addresses its open reviews",
    )
    command.add_argument("--repo", metavar="PATH", help="a local git repository, instead of a GitHub issue")
    command.add_argument("--issue", metavar="FILE", help="with --repo: a file whose first line is the title")
    command.add_argument(
        "--include-changes", action="store_true", help="with --repo: include your uncommitted changes"
    )
    command.add_argument("--out", metavar="FILE", help="with --repo: also write the patch to this file")
    command.add_argument(
        "--continue", dest="run", metavar="RUN", help="resume this run (its name, or `last`)"
    )
    command.add_argument(
        "--answer", metavar="TEXT", help="with --continue: your answer to the question that the run asked"
    )
    command.add_argument("--dry-run", action="store_true", help="show the pull request instead of opening it")
    verbosity = command.add_mutually_exclusive_group()
    verbosity.add_argument(
        "--quiet", "-q", action="store_true", help="print only notices, errors and the result"
    )
    verbosity.add_argument("--verbose", "-v", action="store_true", help="print everything in full")
    _add_settings_options(command)


def _add_serve(commands: Subparsers) -> None:
    command = _command(
        commands,
        "serve",
        "run the server: receive webhooks and resolve labeled issues",
        "Receive GitHub webhooks at POST /webhook and run jobs in a worker process (see `patchwright work`).\n"
        "/healthz, /readyz and /metrics report the server's state.\n\n"
        "Without configuration, the first start prints a URL and a code for the setup page. There you choose a model\n"
        "and create a GitHub App. Otherwise set PATCHWRIGHT_WEBHOOK_SECRET, PATCHWRIGHT_MODEL, and either\n"
        "GITHUB_TOKEN or an App's ID and private key. With --poll, you need no webhook and no webhook secret. If\n"
        "you use --poll with GITHUB_TOKEN, also set PATCHWRIGHT_POLLED_REPOSITORIES.\n\n"
        "  patchwright serve --host 0.0.0.0 --port 8000",
    )
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    command.add_argument("--port", type=int, default=8000, help="port to listen on (default %(default)s)")
    command.add_argument(
        "--poll",
        action="store_true",
        default=None,
        help="poll GitHub every 30 s instead of receiving webhooks; works behind a firewall",
    )
    command.add_argument(
        "--no-worker",
        action="store_true",
        help="only receive webhooks; `patchwright work` runs the jobs elsewhere (needs REDIS_URL)",
    )
    _add_settings_options(command, json_help=JSON_ERROR_HELP)


def _add_work(commands: Subparsers) -> None:
    command = _command(
        commands,
        "work",
        "run a worker that takes jobs from a server",
        "Take jobs from the Redis at REDIS_URL and run them. Start as many workers as you like, each with its own\n"
        "Docker engine. `patchwright serve` starts one worker itself. Use the same settings as for the server.\n\n"
        "  REDIS_URL=redis://queue:6379/0 patchwright work",
    )
    command.add_argument(
        "--exclusive",
        action="store_true",
        help="no other worker uses this Redis, so restart the jobs of a killed worker at once",
    )
    _add_settings_options(command, json_help=JSON_ERROR_HELP)


def _add_docker_proxy(commands: Subparsers) -> None:
    command = _command(
        commands,
        "docker-proxy",
        "run a Docker proxy that allows only sandbox containers",
        "Access to the Docker socket means root access to the machine. Run this proxy as a user with that access,\n"
        "and give the workers the proxy's socket instead. The proxy allows only Patchwright's images, and only\n"
        "containers with the isolation of a Patchwright sandbox.\n\n"
        "  patchwright docker-proxy --listen /run/patchwright/engine.sock --group 10001\n"
        "  DOCKER_HOST=unix:///run/patchwright/engine.sock patchwright work",
        has_settings=False,
    )
    command.add_argument("--listen", metavar="PATH", required=True, help="socket for the workers")
    command.add_argument(
        "--engine",
        metavar="PATH",
        default="/var/run/docker.sock",
        help="socket of the Docker engine (default %(default)s)",
    )
    command.add_argument("--group", metavar="GROUP", help="group that may connect, by name or number")
    command.add_argument("--json", action="store_true", help=JSON_ERROR_HELP)


def _add_action(commands: Subparsers) -> None:
    command = _command(
        commands,
        "action",
        "handle the event that started a GitHub Actions workflow",
        "Handle the event in GITHUB_EVENT_PATH, and write step outputs and a job summary. See action.yml.\n\n"
        "Use two jobs, so that no job has both the model's key and write access:\n"
        "  patchwright action --resolve DIR    resolve the issue with a read-only token, save the result in DIR\n"
        "  patchwright action --publish DIR    check and publish the result; needs no model or sandbox",
        JOB_EXIT_CODES,
    )
    directory = command.add_mutually_exclusive_group()
    directory.add_argument(
        "--resolve", metavar="DIR", help="write nothing to GitHub; save the result in this directory"
    )
    directory.add_argument(
        "--publish",
        metavar="DIR",
        help="check and publish the result that another job saved in this directory",
    )
    _add_settings_options(command)


def _add_demo(commands: Subparsers) -> None:
    command = _command(
        commands,
        "demo",
        "watch an issue become a pull request, without an account or API key",
        "Start a local GitHub fake with a sample repository and `patchwright serve`, label an issue, and watch it\n"
        "become a pull request. The model's replies are recorded; everything else is real.\n\n"
        "  patchwright demo --sandbox local",
        has_settings=False,
    )
    command.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    command.add_argument(
        "--sandbox", choices=("docker", "local", "auto"), default="auto", help="where commands run"
    )
    command.add_argument("--keep", metavar="DIR", help="keep the demo's data in this directory")


def _add_runs(commands: Subparsers) -> None:
    command = _command(
        commands,
        "runs",
        "list the runs on this machine",
        "List the runs on this machine, newest first, with state, verdict, cost and time of the last change.\n\n"
        "  patchwright runs durations --state stopped",
    )
    command.add_argument(
        "text", nargs="?", metavar="TEXT", help="only runs whose name, repository or title contains this text"
    )
    command.add_argument(
        "--state",
        metavar="STATE",
        help="only runs in this state: running, published, input_required, stopped ...",
    )
    command.add_argument(
        "--verdict", metavar="VERDICT", help="only runs with this verdict: fixed, conditional, unproven ..."
    )
    command.add_argument("--all", action="store_true", help="list all runs, not only the newest 20")
    _add_config_and_json_options(command)


def _add_view(commands: Subparsers) -> None:
    command = _command(
        commands,
        "view",
        "export a run as an HTML file",
        "Export a run as one self-contained HTML file: steps with their output, edits as diffs, tests, images and\n"
        "cost. Secrets are masked. Prints the path of the file.\n\n"
        "  patchwright view last",
    )
    _add_run_argument(command)
    command.add_argument(
        "--out", metavar="FILE", help="output file (default: view.html in the run's directory)"
    )
    command.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        help="open it in a browser (default if a terminal and a browser are available)",
    )
    _add_config_and_json_options(command)


def _add_export(commands: Subparsers) -> None:
    command = _command(
        commands,
        "export",
        "print the events of a run as JSON lines",
        "Print the events of a run and of its subagents as JSON lines. Secrets are masked.\n\n"
        "  patchwright export last --out run.jsonl",
    )
    _add_run_argument(command)
    command.add_argument("--out", metavar="FILE", help="output file (default: standard output)")
    command.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help=JSON_ERROR_HELP)


def _add_run_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="name of the run, its first characters, or `last`")


def _add_config_and_json_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help="print only one JSON object")


def _add_replay(commands: Subparsers) -> None:
    command = _command(
        commands,
        "replay",
        "rebuild the prompts of a run from its log",
        "Rebuild the prompt of each step of a run without a model or sandbox. Compare it with the prompt that was\n"
        "sent. With --step, print one prompt. Exits with 0 if all are identical, otherwise with 3.\n\n"
        "  patchwright replay last --step 4",
        CHECK_EXIT_CODES,
    )
    _add_run_argument(command)
    command.add_argument("--step", type=int, metavar="N", help="print the prompt of the model's Nth reply")
    _add_config_and_json_options(command)


def _add_probe(commands: Subparsers) -> None:
    command = _command(
        commands,
        "probe",
        "test whether the model can drive the agent",
        "Ask the model and each fallback for one small tool call, and report which of them can drive the agent.\n"
        "Exits with 0 if all configured models can drive the agent, otherwise with 3.\n\n"
        "  patchwright probe --model anthropic/claude-sonnet-5",
        CHECK_EXIT_CODES,
    )
    command.add_argument("--model", metavar="NAME", help="litellm name, such as anthropic/claude-sonnet-5")
    command.add_argument(
        "--base-url", dest="model_base_url", metavar="URL", help="OpenAI-compatible endpoint"
    )
    _add_config_and_json_options(command)


def _add_doctor(commands: Subparsers) -> None:
    command = _command(
        commands,
        "doctor",
        "check everything that a server or a run needs, and show how to fix problems",
        "Check access to GitHub, the webhook, Redis, the Docker engine with its images and limits, the model, disk,\n"
        "memory and clock. Requests a ping from GitHub and one small reply from the model. Changes no settings.\n"
        "Exits with 0 if no check failed, otherwise with 3.\n\n"
        "  patchwright doctor --config /etc/patchwright/patchwright.toml",
        CHECK_EXIT_CODES,
    )
    _add_config_and_json_options(command)


def _add_prepare(commands: Subparsers) -> None:
    command = _command(
        commands,
        "prepare",
        "build the sandbox images ahead of time",
        "Build the images in which the agent works: one on the base image, and one on the image of each language\n"
        "(`language_images`). Each takes a minute or two. When you upgrade, run this before you restart the\n"
        "server, so that no job waits for an image.\n\n"
        "  patchwright prepare --image python:3.12-slim",
    )
    command.add_argument(
        "--sandbox",
        choices=("docker", "local", "auto"),
        help="where the agent runs commands (default auto); local needs no image [PATCHWRIGHT_SANDBOX]",
    )
    command.add_argument(
        "--image", metavar="IMAGE", help="base image of the Docker sandbox [PATCHWRIGHT_IMAGE]"
    )
    _add_config_and_json_options(command)


def _add_settings_options(
    command: argparse.ArgumentParser, json_help: str = "print only the outcome, as one JSON object"
) -> None:
    group = command.add_argument_group("settings (override the environment and patchwright.toml)")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="litellm name, such as anthropic/claude-sonnet-5 [PATCHWRIGHT_MODEL]",
    )
    group.add_argument(
        "--base-url",
        dest="model_base_url",
        metavar="URL",
        help="OpenAI-compatible endpoint [PATCHWRIGHT_MODEL_BASE_URL]",
    )
    group.add_argument(
        "--sandbox",
        choices=("docker", "local", "auto"),
        help="where the agent runs commands (default auto) [PATCHWRIGHT_SANDBOX]",
    )
    group.add_argument(
        "--image", metavar="IMAGE", help="base image of the Docker sandbox [PATCHWRIGHT_IMAGE]"
    )
    group.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="maximum number of model replies (default 100) [PATCHWRIGHT_MAX_STEPS]",
    )
    group.add_argument(
        "--max-usd",
        metavar="USD",
        help="maximum cost in dollars, if the model's price is known (default 2.00) [PATCHWRIGHT_MAX_USD]",
    )
    group.add_argument(
        "--timeout",
        type=int,
        metavar="SECONDS",
        help="maximum seconds for the agent's work (default 3600) [PATCHWRIGHT_TIMEOUT]",
    )
    group.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help=json_help)


def _add_completion(commands: Subparsers) -> None:
    command = _command(
        commands,
        "completion",
        "print the completion script of a shell",
        "Print a script that completes commands, options and names of runs in your shell.\n\n"
        "  patchwright completion bash > ~/.patchwright.bash && echo '. ~/.patchwright.bash' >> ~/.bashrc\n"
        "  patchwright completion zsh > ~/.patchwright.zsh && echo '. ~/.patchwright.zsh' >> ~/.zshrc\n"
        "  mkdir -p ~/.config/fish/completions && "
        "patchwright completion fish > ~/.config/fish/completions/patchwright.fish",
        has_settings=False,
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(json=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        from patchwright.bot.commands.completion import complete

        complete(parser)
    options = parser.parse_args(arguments)
    if options.version:
        print(f"patchwright {VERSION}")
        return 0
    if options.command is None:
        print(GETTING_STARTED, end="")
        return USAGE_ERROR
    from patchwright.bot.cli.cli_commands import run_command

    return run_command(options)
