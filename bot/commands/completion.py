"""Shell completion for commands, options, option values and names of runs."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

MAX_RUNS = 100  # Only this many of the newest runs are offered as completions.


def completion_script(shell: str) -> str:
    """Returns the completion script of the patchwright command for `bash`, `zsh` or `fish`."""
    return shellcode(["patchwright"], shell=shell)


def complete(parser: argparse.ArgumentParser) -> None:
    """Prints the completions that the shell asks for in argcomplete's environment variables, and exits."""
    for action in _actions(parser):
        if action.choices is None and action.nargs != 0:
            action.completer = _completer(str(action.metavar))  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # argparse has no public list of a parser's actions.
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _completer(metavar: str) -> Callable[..., Any]:
    from patchwright.bot.commands.run_table import LISTED_STATES
    from patchwright.resolver.domain import VerdictKind

    completers: dict[str, Callable[..., Any]] = {
        "RUN": _complete_runs,
        "FILE": FilesCompleter(),
        "PATH": FilesCompleter(),
        "DIR": DirectoriesCompleter(),
        "STATE": lambda **_: LISTED_STATES,
        "VERDICT": lambda **_: get_args(VerdictKind),
    }
    return completers.get(metavar) or (
        lambda **_: ()
    )  # argcomplete's SuppressCompleter would also hide the option itself.


def _complete_runs(parsed_args: argparse.Namespace, **_: object) -> Sequence[str]:
    from patchwright.bot.composition import composition_root
    from patchwright.bot.terminal.run_ids import LAST, list_local_runs
    from patchwright.resolver.errors import ResolverError

    config = getattr(parsed_args, "config", None)
    try:
        settings = composition_root.read_settings(
            {}, composition_root.read_environment(), config and Path(config), Path.cwd()
        )
    except ResolverError:
        return ()  # The command itself reports the error.
    return (LAST, *list_local_runs(settings.data / "runs")[:MAX_RUNS])
