"""What the help screens have in common, and what is said to who gives no command."""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NoReturn, TypeAlias

from bot.terminal.exits import OF_ALL, USAGE

FIRST = """\
Label an issue, get a tested pull request. What to do first:

  patchwright demo                                   watch it, without account or key
  patchwright resolve --repo PATH --issue FILE.md    mend a repository on this disk
  patchwright resolve https://github.com/.../7       mend an issue: opens the pull request
  patchwright serve                                  a server that works on labelled issues
  patchwright doctor                                 what the server still lacks

`serve` asks for a model in your browser; `resolve` needs one and its key, such as
  export PATCHWRIGHT_MODEL=anthropic/claude-sonnet-4-5 ANTHROPIC_API_KEY=...

All commands: patchwright --help. One of them, with examples: patchwright COMMAND --help
"""
SETTINGS = """
settings come from patchwright.toml, then the environment (PATCHWRIGHT_MODEL, GITHUB_TOKEN, ...),
then these options; docs/configuration.md lists them all.
"""


WIDEST = 100  # cells; longer lines are hard to read
_CODE = re.compile(r"  \d+ +")


class Help(argparse.RawDescriptionHelpFormatter):
    """Folds prose to the window; indented lines are there to be copied, and left alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_folded(text, min(width, WIDEST)))


def _folded(text: str, width: int) -> Iterator[str]:
    for is_prose, block in groupby(text.splitlines(), lambda line: line[:1] not in ("", " ")):
        if is_prose:
            yield from textwrap.wrap(" ".join(block), width)
            continue
        for line in block:
            code = _CODE.match(line)
            yield from textwrap.wrap(line, width, subsequent_indent=" " * 7) if code else [line]


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command to machines too, where --json asks for it."""

    def error(self, message: str) -> NoReturn:
        if "--json" in sys.argv:
            import json

            told = {"outcome": "error", "error": message, "kind": "UsageError", "exit_code": USAGE}
            print(json.dumps(told))
        super().error(message)


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def command(
    commands: Commands,
    name: str,
    summary: str,
    text: str,
    more: Mapping[int, str] = {},
    settings: bool = True,
) -> argparse.ArgumentParser:
    """`text` ends with an example. `more`: exit codes beyond those of all commands; `settings`: it reads them."""
    return commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=codes(more) + (SETTINGS if settings else ""),
        formatter_class=Help,
    )


def codes(more: Mapping[int, str]) -> str:
    """The exit codes of all commands, and more."""
    known = {0: "done", **more, **OF_ALL}
    return "exit codes:\n" + "".join(f"  {code:<4} {meaning}\n" for code, meaning in known.items())
