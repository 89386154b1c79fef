"""Files that a test command starts or loads are found at any depth; product code is not mistaken for them."""

import json

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.proof.started_files import find_started_files
from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.suite import Suite
from tests.resolver.git_repository import Repository

pytestmark = pytest.mark.real_start


@pytest.fixture
def find(repository: Repository, workspaces: WorkspaceFactory):
    async def find_in(
        files: dict[str, str],
        changed: str,
        command: str = "npm test",
        runner: RunnerName = "mocha",
        directory: str = "",
    ) -> str:
        """Returns the started files among the changed paths. Both are separated by spaces."""
        repository.commit(files)
        suite = Suite(command=command, runner=runner, command_reason="", directory=directory)
        async with workspaces.local(repository.path) as workspace:
            found = await find_started_files(workspace, (suite,), frozenset(changed.split()))
        return " ".join(sorted(found))

    return find_in


def package(**more: object) -> str:
    return json.dumps({"name": "calc", "main": "index.js", **more})


CALC = {
    "index.js": "exports.add = require('./lib/add');\n",
    "lib/add.js": "",
    "test/add.js": "require('../index');\n",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "changed", "expected"),
    [
        ({"package.json": package(scripts={"test": "mocha -r ./support/globals"})}, "support/globals.js", True),
        ({"package.json": package(scripts={"test": "mocha"}), ".mocharc.json": '{"require": ["support/globals.js"]}'},
         "support/globals.js", True),
        ({".mocharc.yml": "require:\n  - support/a\n  - ./support/globals\n"}, "support/globals.js", True),
        ({".taprc": "before: ./support/globals.js\n"}, "support/globals.js", True),
        ({"package.json": package(jest={"setupFilesAfterEnv": ["<rootDir>/support/globals"]})},
         "support/globals.ts", True),
        ({"jest.config.cjs": "module.exports = {\n  globalSetup: './support/globals.js',\n};\n"},
         "support/globals.js", True),
        ({"jest.config.cjs": "module.exports = { reporters: ['default', ['./support/r.js', {}]] };\n"},
         "support/r.js", True),
        ({"vitest.config.ts": "export default { test: { setupFiles: ['./support/globals'] } };\n"},
         "support/globals/index.ts", True),
        ({"vitest.config.ts": "import { plugin } from './support/plugin.mjs';\n"}, "support/plugin.mjs", True),
        ({"jest.config.cjs": "module.exports = { collectCoverageFrom: ['lib/add.js'] };\n"}, "lib/add.js", False),
        ({"package.json": package(scripts={"test": "npm run check", "check": "run-s c:*", "c:a": "sh tools/a.sh"}),
          "tools/a.sh": "set -e\nbash tools/b.sh\n", "tools/b.sh": '. "$(dirname "$0")/lib.sh"\n. tools/more.sh\n'},
         "tools/a.sh tools/b.sh tools/lib.sh tools/more.sh", True),
        ({"package.json": package(scripts={"test": "sh tools/a.sh"}), "tools/a.sh": ". ./calc.sh\n. lib/more.sh\n"},
         "calc.sh lib/more.sh", False),
        ({"package.json": package(scripts={"pretest": "node prepare.js", "test": "mocha"})}, "prepare.js", True),
        ({"package.json": package(scripts={"test": "mocha", "build": "node build.js"})}, "build.js", False),
        ({"package.json": package(scripts={"test": "cp -r lib dist && mocha"})}, "lib/index.js", False),
        ({"package.json": package(scripts={"test": "mocha -r ./index.js"})}, "index.js", False),
        ({"package.json": package(scripts={"test": "node --test test/add.js"})}, "test/add.js", False),
    ],
)  # fmt: skip
async def test_what_a_node_runner_loads_is_found(
    find, files: dict[str, str], changed: str, expected: bool
) -> None:
    assert await find({**CALC, **files}, changed) == (changed if expected else "")


async def test_modules_of_a_setup_file_are_found_but_not_the_product(find) -> None:
    files = {
        **CALC,
        "package.json": package(scripts={"test": "mocha -r ./support/globals"}),
        "support/globals.js": "require('./deep');\nrequire('../lib/add');\nglobal.app = require('../index');\n",
        "support/deep.js": "module.exports = require('./deeper');\n",
    }
    changed = "index.js lib/add.js support/deep.js support/deeper.js support/globals.js"
    assert await find(files, changed) == "support/deep.js support/deeper.js support/globals.js"


@pytest.mark.parametrize(
    ("makefile", "changed", "expected"),
    [
        ("include rules/all.make\n", "rules/all.make", True),
        ("-include $(TOP)/local.make\n", "local.make", True),
        ("test:\n\t@sh tools/check.sh\n", "tools/check.sh tools/inner.sh", True),
        ("test:\n\t-$(SHELL) -c './tools/check.sh'\n", "tools/check.sh tools/inner.sh", True),
        ("calc: calc.c\n\tcc -o calc calc.c\ntest: calc\n\t./calc\n", "calc", True),
        ("calc: calc.c\n\tcc -o calc calc.c\ntest: calc\n\t./calc\n", "calc.c", False),
    ],
)
async def test_what_a_makefile_starts_and_includes_is_found(
    find, makefile: str, changed: str, expected: bool
) -> None:
    files = {"Makefile": makefile, "tools/check.sh": "exec sh tools/inner.sh\n", "calc.c": ""}
    assert await find(files, changed, "make test", "none") == (changed if expected else "")


async def test_a_suite_below_the_root_has_its_own_files(find) -> None:
    files = {"web/package.json": package(scripts={"test": "mocha -r ./globals.js"})}
    assert await find(files, "web/globals.js globals.js", directory="web") == "web/globals.js"


async def test_the_file_with_a_python_project_s_version_is_not_loaded(find) -> None:
    files = {
        "pyproject.toml": '[tool.setuptools.dynamic]\nversion = {file = "calc/VERSION"}\n'
        '[tool.hatch.build.hooks.vcs]\nversion-file = "calc/_version.py"\n',
        "setup.cfg": "[options]\nversion = file: calc/VERSION\n",
    }
    assert await find(files, "calc/VERSION calc/_version.py", "python3 -m pytest", "pytest") == ""
