"""Repositories with several projects, several languages, configured commands, and hostile manifests."""

import time

import pytest

from patchwright.resolver.run.repo_config import parse_repo_config
from patchwright.resolver.settings.settings import RepoConfig
from tests.resolver.suites.test_discovery import detect, package

# --- several projects
# -------------------------------------------------------------------------------------------

MONOREPO = {
    "package.json": package(test="npm run test --workspaces"),
    "packages/web/package.json": package(test="jest"),
    "packages/web/src/a.test.ts": "",
    "packages/api/pyproject.toml": "[project]\nname='api'",
    "packages/api/tests/test_a.py": "def test(): pass",
    "packages/api/tests/fixtures/pyproject.toml": "",
    "packages/api/tests/fixtures/test_b.py": "",
    "tools/go.mod": "module tools",
    "tools/a_test.go": "",
    "docs/index.md": "",
}


def test_each_monorepo_project_has_a_suite_and_changes_select_the_nearest() -> None:
    suites = detect(MONOREPO)
    assert [(suite.directory, suite.command) for suite in suites.all] == [
        ("", "npm test"),
        ("tools", "go test ./..."),
        ("packages/api", "python3 -m pytest"),
        ("packages/web", "npm test"),
    ]
    assert suites.primary == suites.all[0]

    def of(*changed: str) -> list[str]:
        return [suite.directory for suite in suites.select_for_paths(changed)]

    assert of("packages/web/src/a.ts") == ["packages/web"]
    assert of("packages/web/src/a.ts", "packages/api/api.py", "packages/api/b.py") == [
        "packages/api",
        "packages/web",
    ]
    assert of("packages/api/tests/fixtures/test_b.py") == ["packages/api"]
    assert of("docs/index.md") == [""] == of()


def test_pytest_configured_at_the_root_covers_subdirectories() -> None:
    below = {"a/setup.py": "", "a/test_a.py": "", "test_b.py": ""}
    assert [suite.directory for suite in detect(below).all] == ["", "a"]
    configured = below | {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-q'"}
    assert [suite.directory for suite in detect(configured).all] == [""]


def test_the_primary_suite_has_the_most_tests_and_changes_select_suites() -> None:
    tree = {f"tests/test_{n}.py": "" for n in range(5)} | {
        "package.json": package(test="jest"),
        "a.test.js": "",
    }
    suites = detect(tree)
    assert [suite.runner for suite in suites.all] == ["pytest", "jest"]
    assert suites.primary == suites.all[0]
    assert [suite.runner for suite in suites.select_for_paths(["web/a.tsx"])] == ["jest"]
    assert [suite.runner for suite in suites.select_for_paths(["web/a.tsx", "README.md"])] == [
        "pytest",
        "jest",
    ]


@pytest.mark.slow
def test_a_tree_of_a_hundred_thousand_files_is_searched_in_seconds() -> None:
    tree = {f"packages/p{n // 100}/src/{n % 100}/index.test.js": "" for n in range(100_000)}
    tree |= {f"packages/p{n}/package.json": package(test="jest") for n in range(1_000)}
    start = time.process_time()
    suites = detect(tree)
    assert 0 < len(suites.all) <= 50
    assert time.process_time() - start < 10


# --- configured commands
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "kind", "selects"),
    [
        ("pytest -q tests", "pytest", True),
        ("cd sub && py.test", "pytest", False),
        ("npx jest --outputFile=$PATCHWRIGHT_REPORT", "junit", False),
        ("npx jest", "jest", True),
        ("npm test", "vitest", False),
        ("make test", "pytest", False),
        ("rake", "minitest", False),
        ("tox", "none", False),
        ("pytest a && pytest b", "none", False),
        ("./test.sh", "none", False),
    ],
)
def test_a_configured_command_is_followed_to_its_runner(command: str, kind: str, selects: bool) -> None:
    tree = {
        "package.json": package(test="vitest run"),
        "Makefile": "test:\n\tpytest\n",
        "Rakefile": "Rake::TestTask.new",
        "tests/test_a.py": "",
    }
    suite = detect(tree, RepoConfig(test_command=command)).primary
    assert suite is not None
    assert (suite.command, suite.runner, suite.can_select_tests) == (command, kind, selects)
    assert suite.command_reason == ".github/patchwright.toml configures this command."


def test_several_commands_are_tables_and_the_first_is_primary() -> None:
    read = parse_repo_config(
        '[[tests]]\ncommand = "npm test"\ndirectory = "web/"\nrunner = "junit"\n'
        '[[tests]]\ncommand = "pytest"\n'
    )
    assert read.problems == ()
    suites = detect(MONOREPO, read.config)
    assert [(suite.command, suite.directory, suite.runner) for suite in suites.all] == [
        ("npm test", "web", "junit"),
        ("pytest", "", "pytest"),
    ]
    assert suites.primary == suites.all[0]
    assert (
        suites.select_for_paths(["web/a.js"]) == suites.all[:1]
        and suites.select_for_paths(["b.py"]) == suites.all[1:]
    )


@pytest.mark.parametrize("directory", ["/etc", "../x", "a/../../b", "a//b", "."])
def test_a_directory_outside_the_repository_is_rejected(directory: str) -> None:
    read = parse_repo_config(f'[[tests]]\ncommand = "x"\ndirectory = "{directory}"\n')
    assert read.config.tests == ()  # in another directory the command would test something else
    (fault,) = read.problems
    assert (fault.key, fault.line) == ("tests.directory", 3) and "must be a path below" in fault.message


@pytest.mark.parametrize(
    "tree",
    [
        {"tox.ini": "[testenv\ncommands", "pyproject.toml": "tool = 3\n", "setup.cfg": "\x00=["},
        {"pyproject.toml": "[tool]\ntox = {env_run_base = {commands = 'x'}}\n"},
        {"noxfile.py": "(" * 50_000},
        {"noxfile.py": "def t(s): s.run(*a, **b, c=s.run())\n" + "x = " + "-" * 20_000 + "1"},
        {"Makefile": "test: test\n\t$(MAKE) test\n" + "a" * 100_000 + ": b"},
        {"Cargo.toml": "[[[["},
        {"tox.ini": "[testenv]\ncommands = " + "pytest " * 100_000},
        {"Makefile": "test:\n" + "\t" + "cross-env A=1 A=1 " * 100 + "\n" + (" " * 1_900 + "\n") * 200},
        {"package.json": package(test="pnpm exec " * 150 + "x", unit="ruby -I " * 200)},
        {"noxfile.py": "def t(s):\n s.run('" + "python -W0 " * 150 + "', '" + "a/" * 900 + "')\n"},
    ],
)
def test_hostile_manifests_are_no_error(tree: dict[str, str]) -> None:
    start = time.process_time()
    detect(tree | {"tests/test_a.py": ""})
    assert time.process_time() - start < 5
