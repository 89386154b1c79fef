"""Formats the help screens, and provides the text that is shown if no command is given."""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NoReturn, TypeAlias

from patchwright.bot.terminal.exit_codes import COMMON_EXIT_CODES, USAGE_ERROR

GETTING_STARTED = """\
Label an issue, get a tested pull request. Get started:

  patchwright demo                                   watch a demo, without an account or API key
  patchwright resolve --repo PATH --issue FILE.md    fix a problem in a local repository
  patchwright resolve https://github.com/.../7       resolve an issue and open a pull request
  patchwright serve                                  run a server that resolves labeled issues
  patchwright doctor                                 check what the server still needs

`serve` lets you choose a model in your browser; `resolve` needs a model and its key, for example
  export PATCHWRIGHT_MODEL=anthropic/claude-sonnet-4-5 ANTHROPIC_API_KEY=...

List all commands: patchwright --help. Show one with examples: patchwright COMMAND --help
"""
SETTINGS_HELP = """
settings are read from patchwright.toml, the environment (PATCHWRIGHT_MODEL, GITHUB_TOKEN, ...) and these
options; later ones win. docs/configuration.md lists all settings.
"""


MAX_WIDTH = 100  # Maximum width in cells. Longer lines are hard to read.
_EXIT_CODE_LINE = re.compile(r"  \d+ +")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal width. Indented examples stay unchanged, so that they can be copied."""

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
    """An argument parser that also prints usage errors as JSON if --json is given."""

    def error(self, message: str) -> NoReturn:
        if "--json" in sys.argv:
            import json

            report = {"outcome": "error", "error": message, "kind": "UsageError", "exit_code": USAGE_ERROR}
            print(json.dumps(report))
        super().error(message)


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

    `description` ends with an example. `exit_codes` are listed in addition to the exit codes of all commands.
    `has_settings`: the command reads settings.
    """
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=exit_codes_help(exit_codes) + (SETTINGS_HELP if has_settings else ""),
        formatter_class=HelpFormatter,
    )


def exit_codes_help(extra: Mapping[int, str]) -> str:
    """Returns the help text about exit codes: the common ones and `extra`."""
    meanings = {0: "done", **extra, **COMMON_EXIT_CODES}
    return "exit codes:\n" + "".join(f"  {code:<4} {meaning}\n" for code, meaning in meanings.items())
