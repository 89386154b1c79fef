"""What a command prints when it ends with an error or is stopped."""

import argparse

import pytest

from patchwright.bot.cli.command_runner import _stopped_text, report_error
from patchwright.resolver.errors import UsageError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"command": "resolve", "run": None}, "Stopped. The run had not started, so nothing was saved."),
        ({"command": "resolve", "run": "last"}, "Stopped. The run was not changed."),
        ({"command": "resolve", "run": None, "saved_run": {"run": "calc-1"}}, "Stopped."),
        ({"command": "serve"}, "Stopped."),
    ],
)
def test_a_stopped_command_says_if_nothing_was_saved(options: dict[str, object], text: str) -> None:
    assert _stopped_text(argparse.Namespace(**options)) == text


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("It is empty. Describe the problem in it", "It is empty. Describe the problem in it."),
        ("Pass one of them (see --help)", "Pass one of them (see --help)."),
        ("Correct it.", "Correct it."),
        ("Run `docker info`", "Run `docker info`"),
    ],
)
def test_an_error_is_printed_with_a_full_stop(
    message: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_error(argparse.Namespace(json=False), UsageError(message), 2) == 2
    assert capsys.readouterr().err == f"patchwright: {printed}\n"
