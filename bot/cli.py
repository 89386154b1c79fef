"""The command line. Everything heavy is imported by the command that needs it: `--help` must be instant."""

import argparse
import os
import sys
from collections.abc import Sequence

from bot.terminal.exits import DIFFERENT, OF_A_JOB, USAGE
from bot.terminal.usage import FIRST, SETTINGS, Commands, Help, Parser, codes
from bot.terminal.usage import command as _command


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = Parser(
        prog="patchwright",
        description="Label an issue `fix-me`, get a tested pull request.",
        epilog=codes(OF_A_JOB)
        + SETTINGS
        + "\ncompletion of commands, options and runs: patchwright completion --help",
        formatter_class=Help,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for add in (
        _resolve, _serve, _work, _gate, _action, _demo, _runs, _view, _export, _replay, _probe, _doctor, _prepare,
        _completion,
    ):  # fmt: skip
        add(commands)
    return top


def _resolve(commands: Commands) -> None:
    command = _command(
        commands,
        "resolve",
        "work on one issue and deliver a proven patch",
        "Work on one issue: reproduce, mend, prove with the repository's own tests, deliver.\n\n"
        "  patchwright resolve https://github.com/OWNER/REPO/issues/7\n"
        "  patchwright resolve --repo PATH --issue FILE.md --out FIX.diff\n"
        "  patchwright resolve --continue RUN [--answer TEXT]",
        OF_A_JOB,
    )
    command.add_argument(
        "url",
        nargs="?",
        metavar="ISSUE",
        help="its URL, as in the browser's address line, or OWNER/REPO#7; or a pull request's, whose open review "
        "threads are worked on",
    )
    command.add_argument(
        "--repo", metavar="PATH", help="a git repository on this disk, instead of an issue on GitHub"
    )
    command.add_argument("--issue", metavar="FILE", help="with --repo: a text file that says what is wrong")
    command.add_argument("--out", metavar="FILE", help="with --repo: write the patch to this file as well")
    command.add_argument(
        "--continue", dest="run", metavar="RUN", help="go on with an interrupted run, or the `last`"
    )
    command.add_argument(
        "--answer", metavar="TEXT", help="with --continue: the answer to the question that the run asked"
    )
    command.add_argument("--dry-run", action="store_true", help="show the pull request instead of opening it")
    told = command.add_mutually_exclusive_group()
    told.add_argument("--quiet", "-q", action="store_true", help="only notices, errors and the result")
    told.add_argument(
        "--verbose", "-v", action="store_true", help="thoughts, commands and what came of them in full"
    )
    _shared(command)


def _serve(commands: Commands) -> None:
    command = _command(
        commands,
        "serve",
        "receive webhooks and work on labelled issues",
        "Receive GitHub's webhooks at POST /webhook, in a small process of its own, and work on what is labelled or\n"
        "mentioned in another (see `patchwright work`). /healthz, /readyz and /metrics say how it is.\n"
        "A first start that was told nothing prints a code and an address, where a model is chosen and an App made.\n"
        "Else it needs PATCHWRIGHT_WEBHOOK_SECRET, PATCHWRIGHT_MODEL, and GITHUB_TOKEN or an App's id and key. With\n"
        "--poll it needs no webhook and no secret; with GITHUB_TOKEN it needs PATCHWRIGHT_REPOSITORIES then.\n\n"
        "  patchwright serve --host 0.0.0.0 --port 8000",
    )
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    command.add_argument("--port", type=int, default=8000, help="port to listen on (default %(default)s)")
    command.add_argument(
        "--poll",
        action="store_true",
        default=None,
        help="look at GitHub every 30 s: works behind a firewall, without a webhook",
    )
    command.add_argument(
        "--no-worker",
        action="store_true",
        help="only receive: what is asked for is done by `patchwright work` elsewhere (needs REDIS_URL)",
    )
    _shared(command, json="print an error that ends it as one JSON object too")


def _work(commands: Commands) -> None:
    command = _command(
        commands,
        "work",
        "do the jobs of a server, on another machine or beside it",
        "Take jobs from the Redis that REDIS_URL names and do them: start as many as you like, each with a Docker\n"
        "engine of its own. `patchwright serve` starts one itself. Settings are those of the server.\n\n"
        "  REDIS_URL=redis://queue:6379/0 patchwright work",
    )
    command.add_argument(
        "--alone",
        action="store_true",
        help="nobody else works on this Redis: what a killed worker left begins at once",
    )
    _shared(command, json="print an error that ends it as one JSON object too")


def _gate(commands: Commands) -> None:
    command = _command(
        commands,
        "gate",
        "a door to the Docker engine that lets nothing but sandboxes through",
        "Whoever reaches an engine's socket is root on its machine. Run this as somebody who may, and give workers\n"
        "its socket instead: it lets through containers that are confined as ours are, and images of our names.\n\n"
        "  patchwright gate --listen /run/patchwright/engine.sock --group 10001\n"
        "  DOCKER_HOST=unix:///run/patchwright/engine.sock patchwright work",
        settings=False,
    )
    command.add_argument("--listen", metavar="PATH", required=True, help="the socket that workers get")
    command.add_argument(
        "--engine", metavar="PATH", default="/var/run/docker.sock", help="the engine's (default %(default)s)"
    )
    command.add_argument("--group", metavar="GROUP", help="the group that may connect, by name or number")
    command.add_argument(
        "--json", action="store_true", help="print an error that ends it as one JSON object too"
    )


def _action(commands: Commands) -> None:
    command = _command(
        commands,
        "action",
        "work on the event that started a GitHub Actions workflow",
        "Work on the event in GITHUB_EVENT_PATH; writes step outputs and a job summary. See action.yml.\n\n"
        "In two jobs, of which none has both the model's key and a right to write:\n"
        "  patchwright action --leave DIR      work, with a token that may only read\n"
        "  patchwright action --publish DIR    publish what that left; no model, no sandbox",
        OF_A_JOB,
    )
    part = command.add_mutually_exclusive_group()
    part.add_argument(
        "--leave", metavar="DIR", help="write nothing to GitHub; leave what is to be published here"
    )
    part.add_argument("--publish", metavar="DIR", help="check and publish what another job left here")
    _shared(command)


def _demo(commands: Commands) -> None:
    command = _command(
        commands,
        "demo",
        "watch one issue become a pull request, without account or key",
        "Start a stand-in for GitHub with a sample repository and `patchwright serve` beside it, label an\n"
        "issue, and watch it become a pull request. The model is a recording; everything else is real.\n\n"
        "  patchwright demo --sandbox local",
        settings=False,
    )
    command.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    command.add_argument(
        "--sandbox", choices=("docker", "local", "auto"), default="auto", help="where the agent works"
    )
    command.add_argument("--keep", metavar="DIR", help="keep the demo's data in this directory")


def _runs(commands: Commands) -> None:
    command = _command(
        commands,
        "runs",
        "list the runs on this disk",
        "List the runs on this disk, the newest first: state, verdict, cost, and when something last happened.\n\n"
        "  patchwright runs durations --state stopped",
    )
    command.add_argument(
        "text", nargs="?", metavar="TEXT", help="only those whose name, repository or title has this"
    )
    command.add_argument(
        "--state", metavar="STATE", help="only these: working, delivered, asked, stopped ..."
    )
    command.add_argument("--verdict", metavar="VERDICT", help="only these: fixed, unproven, regressed ...")
    command.add_argument("--all", action="store_true", help="not only the newest 20")
    _reading(command)


def _view(commands: Commands) -> None:
    command = _command(
        commands,
        "view",
        "write a run as one HTML file",
        "Write a run as one HTML file that needs nothing else: every step with its output, edits as diffs, tests,\n"
        "pictures, cost. Secrets are masked. Prints the file's path.\n\n"
        "  patchwright view last",
    )
    _of_a_run(command)
    command.add_argument(
        "--out", metavar="FILE", help="write it here (default: view.html beside the run's log)"
    )
    command.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        help="open it in a browser (default: at a terminal, where there is one)",
    )
    _reading(command)


def _export(commands: Commands) -> None:
    command = _command(
        commands,
        "export",
        "print the events of a run as JSON lines",
        "Print the events of a run, and of the agents that it asked, as JSON lines. Secrets are masked.\n\n"
        "  patchwright export last --out run.jsonl",
    )
    _of_a_run(command)
    command.add_argument("--out", metavar="FILE", help="write them here (default: standard output)")
    command.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument(
        "--json", action="store_true", help="print an error that ends it as one JSON object too"
    )


def _of_a_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "run", metavar="RUN", help="the run's name, as `runs` lists it, its beginning, or `last`"
    )


def _reading(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help="print one JSON object, nothing else")


def _replay(commands: Commands) -> None:
    command = _command(
        commands,
        "replay",
        "rebuild what the model was sent in a run, from its log alone",
        "Rebuild the prompt of each step of a run, without model or sandbox, and compare it with what was sent.\n"
        "With --step, print one of them. Ends with 0 when all are the same, else with 3.\n\n"
        "  patchwright replay last --step 4",
        DIFFERENT,
    )
    _of_a_run(command)
    command.add_argument("--step", type=int, metavar="N", help="print the prompt of the model's Nth reply")
    _reading(command)


def _probe(commands: Commands) -> None:
    command = _command(
        commands,
        "probe",
        "try whether the model can drive the agent",
        "Ask the model, and each of its fallbacks, for one tiny tool call, and say whether it can drive the agent.\n"
        "Ends with 0 when all can as they are configured, else with 3.\n\n"
        "  patchwright probe --model anthropic/claude-sonnet-4-5",
        DIFFERENT,
    )
    command.add_argument("--model", metavar="NAME", help="litellm name, such as anthropic/claude-sonnet-4-5")
    command.add_argument(
        "--base-url", dest="model_base_url", metavar="URL", help="OpenAI-compatible endpoint"
    )
    _reading(command)


def _doctor(commands: Commands) -> None:
    command = _command(
        commands,
        "doctor",
        "check everything that a run needs, and say what mends what lacks",
        "Check what a server needs, all at once: GitHub and what it grants, the webhook (a ping is asked for), Redis,\n"
        "engine, images and limits, the model (one tiny call), disk, memory, clock. Else it changes nothing.\n"
        "Ends with 0 when nothing has failed, else with 1.\n\n"
        "  patchwright doctor --config /etc/patchwright/patchwright.toml",
    )
    _reading(command)


def _prepare(commands: Commands) -> None:
    command = _command(
        commands,
        "prepare",
        "make the sandbox's images now, before a worker starts",
        "Make what every sandbox begins with: the images on the base image and on those by language (`images`), those\n"
        "of the plugins among them. Takes a minute or two, once for each version and base image; before an upgrade's\n"
        "restart, nobody waits for it.\n\n"
        "  patchwright prepare --image python:3.12-slim",
    )
    command.add_argument(
        "--sandbox",
        choices=("docker", "local", "auto"),
        help="where the agent works (default auto); local needs no image [PATCHWRIGHT_SANDBOX]",
    )
    command.add_argument(
        "--image", metavar="IMAGE", help="base image of the Docker sandbox [PATCHWRIGHT_IMAGE]"
    )
    _reading(command)


def _shared(
    command: argparse.ArgumentParser, json: str = "print the outcome as one JSON object, nothing else"
) -> None:
    group = command.add_argument_group("settings (before the environment and patchwright.toml)")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="litellm name, such as anthropic/claude-sonnet-4-5 [PATCHWRIGHT_MODEL]",
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
        help="where the agent works (default auto) [PATCHWRIGHT_SANDBOX]",
    )
    group.add_argument(
        "--image", metavar="IMAGE", help="base image of the Docker sandbox [PATCHWRIGHT_IMAGE]"
    )
    group.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="replies of the model (default 100) [PATCHWRIGHT_MAX_STEPS]",
    )
    group.add_argument(
        "--max-usd",
        metavar="USD",
        help="dollars, where the model's price is known (default 2.00) [PATCHWRIGHT_MAX_USD]",
    )
    group.add_argument(
        "--timeout",
        type=int,
        metavar="SECONDS",
        help="seconds for the agent's work (default 3600) [PATCHWRIGHT_TIMEOUT]",
    )
    group.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help=json)


def _completion(commands: Commands) -> None:
    command = _command(
        commands,
        "completion",
        "print what a shell needs to complete commands, options and runs",
        "Print what a shell needs to complete our commands, their options, and the names of runs.\n\n"
        "  patchwright completion bash > ~/.patchwright.bash && echo '. ~/.patchwright.bash' >> ~/.bashrc\n"
        "  patchwright completion zsh > ~/.patchwright.zsh && echo '. ~/.patchwright.zsh' >> ~/.zshrc\n"
        "  mkdir -p ~/.config/fish/completions && "
        "patchwright completion fish > ~/.config/fish/completions/patchwright.fish",
        settings=False,
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(json=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:
        from bot.terminal.completion import complete

        complete(top)
    options = top.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"patchwright {version('patchwright')}")
        return 0
    if options.command is None:
        print(FIRST, end="")
        return USAGE
    from bot.commandline import run

    return run(options, top)


if __name__ == "__main__":
    sys.exit(main())
