"""The configuration file that `setup` proposes, and the commands that it chooses for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.domain import TestRun, TestStatus
from patchwright.resolver.onboarding import TriedCommand, render_config
from patchwright.resolver.settings.repo_config import parse_repo_config
from patchwright.resolver.settings.settings import ConfiguredSuite, RepoConfig

COMMANDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(command=COMMANDS, directory=st.sampled_from(["", 'od "d', "a/b\\c"]))
def test_the_file_configures_exactly_the_given_commands(command: str, directory: str) -> None:
    entries = (
        ConfiguredSuite(command=command, directory=directory),
        ConfiguredSuite(command="make check", runner="none"),
    )
    assert parse_repo_config(render_config(entries)).config == RepoConfig(tests=entries)


def test_a_single_command_in_the_root_directory_needs_no_table() -> None:
    text = render_config((ConfiguredSuite(command="python3 -m pytest"),))
    assert text.splitlines()[-1] == 'test_command = "python3 -m pytest"'
    assert parse_repo_config(text).config == RepoConfig(test_command="python3 -m pytest")


@pytest.mark.parametrize(
    ("results", "code", "problem", "is_proven"),
    [
        ({"a": "passed", "b": "failed"}, 1, None, True),
        ({"a": "error"}, 1, None, False),
        ({"a": "skipped"}, 0, None, False),
        ({}, 0, None, True),
        ({}, 1, None, False),
        ({}, None, "the tests did not finish within 900 s and were killed", False),
        ({"a": "passed"}, 0, "the report is not valid", False),
    ],
)
def test_a_command_is_proven_by_a_passing_test_or_a_successful_end(
    results: dict[str, TestStatus], code: int | None, problem: str | None, is_proven: bool
) -> None:
    run = TestRun(command="make", results=results, exit_code=code, seconds=1, output="", problem=problem)
    assert TriedCommand(ConfiguredSuite(command="make"), run, "").is_proven == is_proven
