"""The configuration file that `setup` proposes, and the commands that it chooses for it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.domain import TestRun, TestStatus
from patchwright.resolver.pipeline.onboarding import (
    OnboardingResult,
    TriedCommand,
    render_comment,
    render_config,
    render_pull_body,
)
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run.repo_config import parse_repo_config
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.settings.settings import ConfiguredSuite, RepoConfig, Settings
from patchwright.resolver.suites.suite import Suite
from tests.resolver.pull_requests import pull

COMMANDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(command=COMMANDS, directory=st.sampled_from(["", 'od "d', "a/b\\c"]))
def test_the_file_configures_exactly_the_given_commands(command: str, directory: str) -> None:
    entries = (
        ConfiguredSuite(command=command, directory=directory),
        ConfiguredSuite(command="make check"),
    )
    assert parse_repo_config(render_config(entries)).config == RepoConfig(tests=entries)


HEAD = (
    "# How Patchwright runs the tests of this repository. All settings:\n"
    "# https://github.com/patchwright/patchwright/blob/main/docs/configuration.md#the-repositorys-own-file\n\n"
)


def test_a_single_command_in_the_root_directory_needs_no_table() -> None:
    assert render_config((ConfiguredSuite(command="python3 -m pytest"),)) == (
        f"{HEAD}# Runs the tests, before and after each change, in the root directory.\n"
        'test_command = "python3 -m pytest"\n'
    )
    assert render_config(
        (ConfiguredSuite(command="jest", directory="web"), ConfiguredSuite(command="tox"))
    ) == (
        f"{HEAD}# Each [[tests]] entry names the tests of one directory. They run before and after each change. "
        "The tests of the\n# first entry also run while the agent works.\n"
        '[[tests]]\ncommand = "jest"\ndirectory = "web"\n\n[[tests]]\ncommand = "tox"\n'
    )


PASSED = TestRun(command="jest", results={"a": "passed", "b": "failed"}, exit_code=1, seconds=12, output="")
KILLED = PASSED.model_copy(update={"command": "tox", "results": {}, "problem": "`tox` was not found"})
TRIED = (
    TriedCommand(ConfiguredSuite(command="jest"), PASSED, "The file package.json says so."),
    TriedCommand(ConfiguredSuite(command="tox"), KILLED, "The file tox.ini exists."),
)
PREPARED = EnvironmentPrepared(
    commands=("npm ci", "pip install ."), was_cached=False, seconds=1, problem="`npm ci` exited with 1"
)
COMMENTS: dict[OnboardingResult, str] = {
    "opened": "I opened pull request #8, which adds `.github/patchwright.toml`. I ran its test commands: "
    "`jest`: 1 failed, 1 passed in 12 s; `tox`: `tox` was not found.",
    "open": "Pull request #8 already proposes `.github/patchwright.toml`. Review and merge it, or close it to "
    "decline.",
    "declined": "Pull request #8 proposed `.github/patchwright.toml`, and someone closed it. I do not propose "
    "the file again. If you want it after all, reopen that pull request, or add the file yourself.",
    "exists": "I propose nothing, because `.github/patchwright.toml` already exists on the default branch.",
    "no_tests": "I propose nothing, because I found no tests in this repository. If it has tests, add "
    '`.github/patchwright.toml` with your own command:\n\n```toml\ntest_command = "make check"\n```',
    "not_proven": "I propose nothing, because no test command that I found runs in the sandbox:\n\n"
    "- `jest`: 1 failed, 1 passed in 12 s\n- `tox`: `tox` was not found\n\n"
    "Installing the dependencies failed: `npm ci` exited with 1\n\n"
    "Fix the cause and write the command `setup` again, or add `.github/patchwright.toml` with your own test "
    "command.",
    "not_pushed": "I could not push the branch `patchwright/setup` (`no`). If this branch exists, delete it and "
    "write the command `setup` again. Or apply this change yourself:\n\nTry this.",
    "not_opened": "I pushed `.github/patchwright.toml` to the branch `patchwright/setup`, but opened no pull "
    "request: no\n\nTry this.",
}


@pytest.mark.parametrize("result", COMMENTS)
def test_each_result_has_this_text(result: OnboardingResult) -> None:
    text = render_comment(
        result, pull=pull(number=8), tried=TRIED, environment=PREPARED, branch="patchwright/setup",
        detail="no", advice="Try this.",
    )  # fmt: skip
    assert text == COMMENTS[result]


def test_the_pull_request_says_what_was_found_what_it_means_and_what_to_do() -> None:
    left_out = (Suite(command="mocha", runner="mocha", command_reason="", directory="web"),)
    settings = Settings(data=Path("data"))
    assert render_pull_body(TRIED, left_out, "0123456789abcdef", settings, PREPARED) == render_pull_body(
        TRIED, left_out, "0123456789abcdef", settings
    ).replace(
        "a change.\n\n",
        "a change.\n\nInstalling the dependencies failed, so the tests ran without them: `npm ci` exited with 1\n\n",
    )
    installed = PREPARED.model_copy(update={"problem": None})
    assert render_pull_body(TRIED, left_out, "0123456789abcdef", settings, installed, "CI is on hold.") == (
        "This pull request adds `.github/patchwright.toml`, so that Patchwright always runs your tests with "
        "this command. I ran it on 0123456789ab in a clean sandbox:\n\n"
        "| Command | Result | Why this command |\n| --- | --- | --- |\n"
        "| `jest` | 1 failed, 1 passed in 12 s | The file package.json says so. |\n\n"
        "Tests that fail already are no obstacle: Patchwright compares the results before and after a change.\n\n"
        "Before that, I installed the dependencies with `npm ci`, `pip install .`. Every run detects these "
        "commands again; to choose others, add `setup`.\n\n"
        "**Not in the file**, so Patchwright will not run them after you merge:\n"
        "- `tox`: `tox` was not found\n- `cd web && mocha`\n\n"
        "CI is on hold.\n\n"
        "**What to do next:** check the command, and edit the file on this branch if you want. After you merge, "
        "add the label `fix-me` to an issue, or comment `@agent` and a request.\n\n"
        "**To decline,** close this pull request. I do not propose the file again. Without it, Patchwright looks "
        "for a test command in every run.\n\n"
        "<details><summary>What each setting means</summary>\n\n"
        "| Setting | Meaning | Without it |\n| --- | --- | --- |\n"
        "| `test_command` | runs the tests, in the root directory | the commands in `tests`, or a detected "
        "command |\n"
        "| `tests` | tables with `command`, `directory`, and `runner`, for several projects | detected commands "
        "|\n"
        '| `setup` | installs the dependencies: a command, a list, or `""` for none | the script '
        "`.github/patchwright/setup.sh`, or detected commands |\n"
        "| `test_timeout` | maximum seconds of one test run | 900 |\n"
        "| `base_branch` | the branch from which changes start, and into which they are merged | the default branch |\n"
        "| `branch` | template for branch names | `issue-{number}` |\n"
        "| `agent` | name of the agent that does the work | `codeact` |\n"
        "| `tools` | names of the additional tools that the agent gets | none |\n"
        "| `ready_for_review` | which new pull requests are no drafts: those whose verdict is `fixed`, also those that "
        "are `conditional`, or `none` | `fixed` |\n\n"
        "</details>\n"
    )


def test_the_commit_says_that_the_command_ran() -> None:
    message = render(
        "replies/commit_onboarding.txt.j2", title="T", path=".github/patchwright.toml", author="m <m@x>"
    )
    assert message == (
        "T\n\n.github/patchwright.toml names the test command. Patchwright\n"
        "found the command and ran it on this commit's parent.\n\nCo-authored-by: m <m@x>\n"
    )


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
