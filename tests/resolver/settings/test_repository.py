"""A mistake in a repository's configuration costs what it is about, and is named with its line."""

from pathlib import Path

import pytest

from resolver.settings.repository import (
    MOST_BYTES,
    Fault,
    Reading,
    lines_of,
    nearest_line,
    read_config,
    reading,
    sentences,
)
from resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig
from resolver.workspace import Workspaces
from tests.resolver.repositories import Repository


def test_a_file_that_holds_is_taken_as_it_is() -> None:
    text = 'test_command = "make check"\ntest_timeout = 60\nsetup = ["a", "b"]\n[[tests]]\ncommand = "x"\n'
    assert reading(text) == Reading(
        config=RepoConfig(
            test_command="make check",
            test_timeout=60,
            setup=("a", "b"),
            tests=(ConfiguredSuite(command="x"),),
        )
    )
    assert reading("") == Reading()


def test_an_unknown_key_is_named_with_the_one_that_may_be_meant_and_the_rest_holds() -> None:
    read = reading('branch = "fix-{number}"\n\ntest_comand = "make check"\n')
    assert read.config == RepoConfig(branch="fix-{number}")
    assert read.faults == (
        Fault(key="test_comand", line=3, wrong="there is no such setting", nearest="test_command"),
    )
    assert sentences(read.faults) == (
        "test_comand (line 3): there is no such setting, did you mean test_command?"
    )


@pytest.mark.parametrize(
    ("text", "key", "line", "wrong"),
    [
        ('test_timeout = "long"', "test_timeout", 1, "it should be a valid integer"),
        ("test_timeout = true", "test_timeout", 1, "it should be a valid integer"),
        ("test_timeout = 9999", "test_timeout", 1, "it should be less than or equal to 1800"),
        ("# first\nsetup = 3", "setup", 2, "it should be a valid string"),
        ('base_branch = "a..b"', "base_branch", 1, "git takes no branch of the name a..b"),
        ('[tests]\ncommand = "x"', "tests", 1, "it should be a valid tuple"),
        ("meteor = 1", "meteor", 1, "there is no such setting"),
        ('"we`ird \\n key" = 1', "we`ird \n key", None, "there is no such setting"),
    ],
)
def test_what_is_wrong_is_left_out(text: str, key: str, line: int | None, wrong: str) -> None:
    read = reading(text)
    assert read == Reading(faults=(Fault(key=key, line=line, wrong=wrong),))


def test_of_several_tables_those_that_are_wrong_go_and_the_others_stay() -> None:
    read = reading(
        '[[tests]]\ncommand = "one"\nreprot = "junit"\n'
        '[[tests]]\ndirectory = "web"\n'
        '[[tests]]\ncommand = "three"\nreport = "junk"\n'
        '[[tests]]\ncommand = "four"\n'
    )
    assert [suite.command for suite in read.config.tests] == ["one", "four"]
    assert [(fault.key, fault.line, fault.nearest) for fault in read.faults] == [
        ("tests.reprot", 3, "report"),
        ("tests.command", 4, ""),
        ("tests.report", 8, ""),
    ]
    assert read.faults[1].wrong == "it is missing"


@pytest.mark.parametrize(
    ("text", "line", "wrong"),
    [
        ('branch = "x"\nthis is no TOML', 2, "it is not valid TOML: Expected"),
        ('a = "x', None, "it is not valid TOML: "),
        ("a = " + "[" * 60_000, None, "its values are nested too deep"),
        ("a = " + "9" * 60_000, None, "it is not valid TOML: Exceeds the limit"),
        ('a = 1\na = 2\nbranch = "x"', 2, "it is not valid TOML: Cannot overwrite a value"),
    ],
)
def test_what_is_no_toml_gives_the_defaults(text: str, line: int | None, wrong: str) -> None:
    read = reading(text)
    (fault,) = read.faults
    assert read.config == RepoConfig()
    assert (fault.key, fault.line) == ("", line)
    assert fault.wrong.startswith(wrong) and len(fault.wrong) < 300


def test_thousands_of_mistakes_are_found_in_one_go() -> None:
    read = reading("".join(f"x{number} = 1\n" for number in range(5_000)) + "test_timeout = 7\n")
    assert (len(read.faults), read.config.test_timeout) == (5_000, 7)
    assert read.faults[-1].line == 5_000


def test_a_line_is_found_in_tables_and_not_in_texts_of_several_lines() -> None:
    text = (
        'setup = """\nbranch = 3\n"""\nbranch = 4\n[[tests]]\n"command" = "x"\n[[tests]] # two\ntests.x = 1\n'
    )
    lines = lines_of(text)
    assert nearest_line(lines, ("branch",)) == 4
    assert nearest_line(lines, ("tests", 0, "command")) == 6
    assert nearest_line(lines, ("tests", 1)) == 7
    assert nearest_line(lines, ("tests", 1, "command")) == 7
    assert nearest_line(lines, ("elsewhere",)) is None


@pytest.mark.parametrize(
    ("content", "wrong", "line"),
    [
        (b'branch = "x"\n# caf\xe9\n', "it is not UTF-8", 2),
        (b"#" * 10_000_000, "it has 10,000,000 bytes, and I read at most 65,536", None),
        (b"\xff\xfe\x00b", "it is not UTF-8", 1),
    ],
)
async def test_what_cannot_be_text_is_said_and_not_read(
    tmp_path: Path, content: bytes, wrong: str, line: int | None
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({REPO_CONFIG_PATH: content})
    async with Workspaces(tmp_path / "cache").local(repository.path) as workspace:
        assert await read_config(workspace) == Reading(faults=(Fault(key="", line=line, wrong=wrong),))


async def test_a_link_is_not_followed_and_no_file_is_no_mistake(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({"a.py": ""})
    async with Workspaces(tmp_path / "cache").local(repository.path) as workspace:
        assert await read_config(workspace) == Reading()
    (repository.path / ".github").mkdir()
    (repository.path / REPO_CONFIG_PATH).symlink_to("/etc/passwd")
    repository.commit({})
    async with Workspaces(tmp_path / "cache").local(repository.path) as workspace:
        (fault,) = (await read_config(workspace)).faults
    assert fault.wrong == "it is a symbolic link, and I follow none"


async def test_the_largest_file_that_is_read_is_read_whole(tmp_path: Path) -> None:
    tail = b"\ntest_timeout = 7\n"
    repository = Repository(tmp_path / "repository")
    repository.commit({REPO_CONFIG_PATH: b"#" * (MOST_BYTES - len(tail)) + tail})
    async with Workspaces(tmp_path / "cache").local(repository.path) as workspace:
        assert (await read_config(workspace)).config.test_timeout == 7
