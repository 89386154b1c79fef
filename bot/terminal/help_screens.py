"""Formats the help screens. Also provides the text that `patchwright` prints if no command is given."""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NoReturn, TypeAlias

from patchwright.bot.terminal.exit_codes import COMMON_EXIT_CODES, USAGE_ERROR

GETTING_STARTED = """\
Label an issue, get a tested pull request. Get started:

  patchwright demo                                   watch a demo, without an account or API key
  patchwright resolve --repo PATH --issue FILE.md    fix a problem in a local repository
  patchwright resolve https://github.com/.../7       resolve an issue and open a pull request
  patchwright serve                                  run a server that resolves labeled issues
  patchwright doctor                                 check what the server still needs

`serve` lets you choose a model in your browser; `resolve` needs a model and its key, for example
  export PATCHWRIGHT_MODEL=anthropic/claude-sonnet-5 ANTHROPIC_API_KEY=...

List all commands: patchwright --help. Show one with examples: patchwright COMMAND --help
"""
SETTINGS_HELP = """
settings are read from patchwright.toml, the environment (PATCHWRIGHT_MODEL, GITHUB_TOKEN, ...) and these
options; later ones win. docs/configuration.md lists all settings.
"""


MAX_WIDTH = 100  # Maximum width in cells. Longer lines are hard to read.
_EXIT_CODE_LINE = re.compile(r"  \d+ +")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal width. Does not change indented examples, so that people can copy
    them.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrap_help(text, min(width, MAX_WIDTH)))


def _wrap_help(text: str, width: int) -> Iterator[str]:
    for is_prose, block in groupby(text.splitlines(), lambda line: line[:1] not in ("", " ")):
        if is_prose:
            yield from textwrap.wrap(" ".join(block), width)
            continue
        for line in block:
            code = _EXIT_CODE_LINE.match(line)
            yield from textwrap.wrap(line, width, subsequent_indent=" " * 7) if code else [line]


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one sentence. With --json, also reports it as JSON.

    The message names options as people type them, and suggests the most similar known name.
    """

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._find_command_parser(getattr(options, "command", None)).report_unknown(unknown[0])
        return options

    def _find_command_parser(self, command: str | None) -> "CommandParser":
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and command in action.choices:
                parser = action.choices[command]
                assert isinstance(parser, CommandParser)
                return parser
        return self

    def report_unknown(self, argument: str) -> NoReturn:
        """Reports an argument that is not known to the command."""
        if not argument.startswith("-"):
            self.error(f"The argument {argument} is not expected here.")
        name = argument.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        self.error(f"There is no option {name}.{_suggest(name, known)}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            kind = "a whole number" if action.type is int else "a valid value"
            self.error(f"{_argument_name(action)}: '{arg_string}' is not {kind}.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"There is no command {value}.{_suggest(value, known)}")
        expected = ", ".join(known)
        self.error(f"{_argument_name(action)}: '{value}' is not one of {expected}.{_suggest(value, known)}")

    def error(self, message: str) -> NoReturn:
        """Prints the message, and ends the process with the exit code of a usage error."""
        if missing := re.fullmatch(r"the following arguments are required: (.+)", message):
            message = f"{missing[1]} is missing."
        sentence = message.removeprefix("argument ").rstrip(".") + ("" if message.endswith("?") else ".")
        sentence = re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", sentence)
        if "--json" in sys.argv:
            import json

            report = {"outcome": "error", "error": sentence, "kind": "UsageError", "exit_code": USAGE_ERROR}
            print(json.dumps(report))
        self.exit(USAGE_ERROR, f"patchwright: {sentence} See `{self.prog} --help`.\n")


def _argument_name(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def _suggest(name: str, known: list[str]) -> str:
    """Returns a sentence that suggests the most similar known name, or "" if no name is similar."""
    import difflib

    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {matches[0]}?" if matches else ""


Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"


def add_command(
    commands: Subparsers,
    name: str,
    summary: str,
    description: str,
    exit_codes: Mapping[int, str] = {},
    has_settings: bool = True,
) -> argparse.ArgumentParser:
    """Adds a command and returns its parser.

    `description` ends with an example. `exit_codes` explains the exit codes that only this command has.
    `has_settings` is True if the command reads settings.
    """
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=exit_codes_help(exit_codes) + (SETTINGS_HELP if has_settings else ""),
        formatter_class=HelpFormatter,
    )


def exit_codes_help(extra: Mapping[int, str]) -> str:
    """Returns the help text that explains the exit codes of all commands, together with the exit codes in
    `extra`.
    """
    meanings = {0: "done", **extra, **COMMON_EXIT_CODES}
    return "exit codes:\n" + "".join(f"  {code:<4} {meaning}\n" for code, meaning in meanings.items())
