"""An invalid entry in a repository's configuration is ignored alone and reported with its line."""

from pathlib import Path

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.run.repo_config import (
    MAX_FILE_BYTES,
    ConfigProblem,
    ParsedRepoConfig,
    find_key_lines,
    format_problems,
    nearest_line,
    parse_repo_config,
    read_repo_config,
)
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig
from tests.resolver.git_repository import Repository


def test_a_valid_file_is_used_unchanged() -> None:
    text = 'test_command = "make check"\ntest_timeout = 60\nsetup = ["a", "b"]\n[[tests]]\ncommand = "x"\n'
    assert parse_repo_config(text) == ParsedRepoConfig(
        config=RepoConfig(
            test_command="make check",
            test_timeout=60,
            setup=("a", "b"),
            tests=(ConfiguredSuite(command="x"),),
        )
    )
    assert parse_repo_config("") == ParsedRepoConfig()


def test_an_unknown_key_gets_a_suggestion_and_the_rest_applies() -> None:
    read = parse_repo_config('branch = "fix-{number}"\n\ntest_comand = "make check"\n')
    assert read.config == RepoConfig(branch="fix-{number}")
    assert read.problems == (
        ConfigProblem(
            key="test_comand", line=3, message="there is no such setting", suggestion="test_command"
        ),
    )
    assert format_problems(read.problems) == (
        ".github/patchwright.toml in the commit is invalid: "
        "test_comand (line 3): there is no such setting, did you mean test_command?"
    )
    assert format_problems(parse_repo_config("a\n").problems).startswith(
        ".github/patchwright.toml in the commit is invalid: line 1: the file is not valid TOML"
    )


@pytest.mark.parametrize(
    ("text", "key", "line", "wrong"),
    [
        ('test_timeout = "long"', "test_timeout", 1, "it should be a valid integer"),
        ("test_timeout = true", "test_timeout", 1, "it should be a valid integer"),
        ("test_timeout = 9999", "test_timeout", 1, "it should be less than or equal to 1800"),
        ("# first\nsetup = 3", "setup", 2, "it should be a valid string"),
        ('base_branch = "a..b"', "base_branch", 1, "a..b is not a valid branch name"),
        ('[tests]\ncommand = "x"', "tests", 1, "it should be a valid tuple"),
        ("meteor = 1", "meteor", 1, "there is no such setting"),
        ('"we`ird \\n key" = 1', "we`ird \n key", None, "there is no such setting"),
    ],
)
def test_an_invalid_entry_is_ignored(text: str, key: str, line: int | None, wrong: str) -> None:
    read = parse_repo_config(text)
    assert read == ParsedRepoConfig(problems=(ConfigProblem(key=key, line=line, message=wrong),))


def test_invalid_tables_are_removed_and_the_others_stay() -> None:
    read = parse_repo_config(
        '[[tests]]\ncommand = "one"\nruner = "junit"\n'
        '[[tests]]\ndirectory = "web"\n'
        '[[tests]]\ncommand = "three"\nrunner = "junk"\n'
        '[[tests]]\ncommand = "four"\n'
    )
    assert [suite.command for suite in read.config.tests] == ["one", "four"]
    assert [(fault.key, fault.line, fault.suggestion) for fault in read.problems] == [
        ("tests.runer", 3, "runner"),
        ("tests.command", 4, ""),
        ("tests.runner", 8, ""),
    ]
    assert read.problems[1].message == "it is missing"


@pytest.mark.parametrize(
    ("text", "line", "wrong"),
    [
        ('branch = "x"\nthis is no TOML', 2, "the file is not valid TOML: Expected"),
        ('a = "x', None, "the file is not valid TOML: "),
        ("a = " + "[" * 60_000, None, "the values are nested too deeply"),
        ("a = " + "9" * 60_000, None, "the file is not valid TOML: Exceeds the limit"),
        ('a = 1\na = 2\nbranch = "x"', 2, "the file is not valid TOML: Cannot overwrite a value"),
    ],
)
def test_invalid_toml_gives_the_defaults(text: str, line: int | None, wrong: str) -> None:
    read = parse_repo_config(text)
    (fault,) = read.problems
    assert read.config == RepoConfig()
    assert (fault.key, fault.line) == ("", line)
    assert fault.message.startswith(wrong) and len(fault.message) < 300


def test_thousands_of_mistakes_are_found_in_one_pass() -> None:
    read = parse_repo_config("".join(f"x{number} = 1\n" for number in range(5_000)) + "test_timeout = 7\n")
    assert (len(read.problems), read.config.test_timeout) == (5_000, 7)
    assert read.problems[-1].line == 5_000


def test_line_numbers_skip_multi_line_strings() -> None:
    text = (
        'setup = """\nbranch = 3\n"""\nbranch = 4\n[[tests]]\n"command" = "x"\n[[tests]] # two\ntests.x = 1\n'
    )
    lines = find_key_lines(text)
    assert nearest_line(lines, ("branch",)) == 4
    assert nearest_line(lines, ("tests", 0, "command")) == 6
    assert nearest_line(lines, ("tests", 1)) == 7
    assert nearest_line(lines, ("tests", 1, "command")) == 7
    assert nearest_line(lines, ("elsewhere",)) is None


@pytest.mark.parametrize(
    ("content", "wrong", "line"),
    [
        (b'branch = "x"\n# caf\xe9\n', "the file is not UTF-8", 2),
        (b"#" * 10_000_000, "the file has 10,000,000 bytes, more than the limit of 65,536", None),
        (b"\xff\xfe\x00b", "the file is not UTF-8", 1),
    ],
)
async def test_a_binary_or_large_file_is_reported(
    tmp_path: Path, content: bytes, wrong: str, line: int | None
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({REPO_CONFIG_PATH: content})
    async with WorkspaceFactory(tmp_path / "cache").local(repository.path) as workspace:
        assert await read_repo_config(workspace) == ParsedRepoConfig(
            problems=(ConfigProblem(key="", line=line, message=wrong),)
        )


async def test_a_symbolic_link_is_not_followed_and_a_missing_file_is_valid(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({"a.py": ""})
    async with WorkspaceFactory(tmp_path / "cache").local(repository.path) as workspace:
        assert await read_repo_config(workspace) == ParsedRepoConfig()
    (repository.path / ".github").mkdir()
    (repository.path / REPO_CONFIG_PATH).symlink_to("/etc/passwd")
    repository.commit({})
    async with WorkspaceFactory(tmp_path / "cache").local(repository.path) as workspace:
        (fault,) = (await read_repo_config(workspace)).problems
    assert fault.message == "the file is a symbolic link, and I do not follow symbolic links"


async def test_a_file_of_the_maximum_size_is_read(tmp_path: Path) -> None:
    tail = b"\ntest_timeout = 7\n"
    repository = Repository(tmp_path / "repository")
    repository.commit({REPO_CONFIG_PATH: b"#" * (MAX_FILE_BYTES - len(tail)) + tail})
    async with WorkspaceFactory(tmp_path / "cache").local(repository.path) as workspace:
        assert (await read_repo_config(workspace)).config.test_timeout == 7
