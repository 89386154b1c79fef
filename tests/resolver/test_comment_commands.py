"""The table of commands is the only list of them: the parser, the reply to `help`, and the docs agree with it."""

import re
from pathlib import Path

import pytest

from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.comment_commands import COMMANDS, WORK, Command
from patchwright.resolver.rendering.template_renderer import render_reply

NAMED = [command for command in COMMANDS if command is not WORK]
COMMANDS_PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def listed_commands(text: str) -> list[str]:
    """Returns the command of each row of a table. A mention without a command is "work"."""
    return [name or "work" for name in re.findall(r"^\| `@agent ?([a-z-]*)`", text, re.MULTILINE)]


@pytest.mark.parametrize("command", NAMED, ids=lambda command: command.verb)
def test_the_parser_knows_every_word_and_corrects_typing_errors(command: Command) -> None:
    for word in (command.verb, *command.aliases):
        parsed = parse_request(f"please {word}!")
        assert (parsed.verb, parsed.command) == (command.verb, command)
        assert parse_request(f"{word} the cache").verb == (command.verb if command.takes_text else "work")
    if command.verb != "go":
        error = parse_request(f"{command.verb}s").error
        assert error is not None and error.suggestion == command.verb


def test_the_help_and_the_documentation_list_every_command() -> None:
    first_section, _, _ = COMMANDS_PAGE.read_text().partition("\n## ")
    shown = render_reply("help.md.j2", commands=COMMANDS, mention="@agent", label="fix-me", in_workflow=False)
    for text in (shown, first_section):
        assert listed_commands(text) == [command.verb for command in COMMANDS]
