"""What a reviewer is pointed to, because no test can judge it."""

import pytest

from resolver.security.noteworthy import told


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("    os._exit(0)", "can end the process that runs it, tests or not"),
        ("import atexit", "can end the process that runs it, tests or not"),
        ("at_exit { exit!(true) }", "can end the process that runs it, tests or not"),
        ("sys.exit(main())", "can end the process that runs it"),
        ("process.exit(0)", "can end the process that runs it"),
        ("os.Exit(0)", "can end the process that runs it"),
        ("sys.meta_path.insert(0, Finder())", "can change what is loaded when code or tests start"),
        ("open(site + '/sitecustomize.py', 'w')", "can change what is loaded when code or tests start"),
        ("process.env.NODE_OPTIONS = '-r ./x'", "can change what is loaded when code or tests start"),
        ("require.extensions['.js'] = f", "can change what is loaded when code or tests start"),
        ("report = os.environ['PATCHWRIGHT_REPORT']", "names what the tests' report is made with"),
        ("def pytest_runtest_makereport(item):", "names what the tests' report is made with"),
    ],
)
def test_a_line_that_can_steer_the_tests_is_pointed_out(line: str, what: str) -> None:
    assert told("src/a", "x\n", f"x\n{line}\n") == [f"src/a, line 2, {what}: `{line.strip()}`"]


def test_what_was_there_before_is_not_pointed_out_wherever_it_moves() -> None:
    assert told("cli.py", "sys.exit(main())\nx = 1\n", "x = 2\n\n  sys.exit(main())\n") == []


def test_a_second_one_of_its_kind_is_pointed_out_all_the_same() -> None:
    assert told("cli.py", "os._exit(0)\n", "os._exit(0)\nos._exit(0)\n") == [
        "cli.py, line 2, can end the process that runs it, tests or not: `os._exit(0)`"
    ]


def test_an_ordinary_exit_in_a_test_is_no_matter_but_one_at_once_is() -> None:
    assert told("tests/test_cli.py", "", "with pytest.raises(SystemExit): sys.exit(1)\n") == []
    assert len(told("tests/test_cli.py", "", "os._exit(0)\n")) == 1


def test_words_behind_a_long_line_are_found_and_shown_in_short() -> None:
    (sentence,) = told("a.py", "", f"x = 1;{' ' * 100_000}os._exit(0)")
    assert sentence.endswith(": `os._exit(0)`")


@pytest.mark.parametrize(
    "line", ["def exit_code(): ...", "model.exit", "on_exit = 1", "weights = 'best.pth'", ""]
)
def test_ordinary_words_are_let_be(line: str) -> None:
    assert told("a.py", "", line) == []
