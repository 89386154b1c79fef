"""What a shell offers when TAB is pressed: commands, options, their values, and the names of runs."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

MOST_RUNS = 100  # the newest


def script(shell: str) -> str:
    """What a `bash`, `zsh` or `fish` reads to complete our command."""
    return shellcode(["patchwright"], shell=shell)


def complete(top: argparse.ArgumentParser) -> None:
    """Answer the shell that asks by argcomplete's variables, and end the process."""
    for action in _actions(top):
        if action.choices is None and action.nargs != 0:
            action.completer = _completer(str(action.metavar))  # type: ignore[attr-defined]
    argcomplete.autocomplete(top)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # argparse has no other list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _completer(takes: str) -> Callable[..., Any]:
    from bot.terminal.listing import State
    from resolver.domain import VerdictKind

    known: dict[str, Callable[..., Any]] = {
        "RUN": _runs,
        "FILE": FilesCompleter(),
        "PATH": FilesCompleter(),
        "DIR": DirectoriesCompleter(),
        "STATE": lambda **_: get_args(State),
        "VERDICT": lambda **_: get_args(VerdictKind),
    }
    return known.get(takes) or (lambda **_: ())  # argcomplete's own for this would hide the option, too


def _runs(parsed_args: argparse.Namespace, **_: object) -> Sequence[str]:
    from bot import compose
    from bot.terminal.naming import LAST, on_disk
    from resolver.errors import ResolverError

    config = getattr(parsed_args, "config", None)
    try:
        settings = compose.read_settings({}, compose.environment(), config and Path(config), Path.cwd())
    except ResolverError:
        return ()  # the command itself will say what is wrong
    return (LAST, *on_disk(settings.data / "runs")[:MOST_RUNS])
