"""Files that belong to the tests although their paths do not say so."""

import pytest

from patchwright.resolver.git.workspaces import FileChange
from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.test_helpers import find_test_helpers
from patchwright.resolver.suites.suite import Suite
from tests.resolver.patch_verifier import BUG, PYTEST

ASSERTING = "def check(value):\n    assert value\n"
PLAIN = "VALUE = 3\n"
PROJECT = '[project]\nname = "calc"\n\n[tool.pytest.ini_options]\naddopts = "-p tools.hooks"\n'
LAYOUTS: dict[str, tuple[dict[str, str], str, bool]] = {
    "a module with assertions that only tests import": (
        {
            "calc.py": BUG,
            "testutils/checks.py": ASSERTING,
            "tests/test_a.py": "import calc\nimport testutils.checks\n",
        },
        "testutils/checks.py",
        True,
    ),
    "the only module": ({"calc.py": ASSERTING, "tests/test_a.py": "import calc\n"}, "calc.py", False),
    "a module that the product imports": (
        {
            "calc.py": "from support import checks\n",
            "support/checks.py": ASSERTING,
            "tests/test_a.py": "import calc, support\n",
        },
        "support/checks.py",
        False,
    ),
    "a second module of the product": (
        {
            "calc.py": BUG,
            "cli.py": "import calc\nVALUE = 3\n",
            "tests/test_a.py": "import calc\nimport cli\n",
        },
        "cli.py",
        False,
    ),
    "a program of the product": (
        {
            "calc.py": BUG,
            "cli.py": "assert 1\nif __name__ == '__main__':\n    pass\n",
            "tests/test_a.py": "import calc\nimport cli\n",
        },
        "cli.py",
        False,
    ),
    "an application that the settings name": (
        {
            "shop/models.py": "assert 1\n",
            "site/settings.py": "APPS = ['shop']\n",
            "tests/test_a.py": "import shop\nimport site\n",
        },
        "shop/models.py",
        False,
    ),
    "a module that the manifest names": (
        {
            "pyproject.toml": PROJECT,
            "calc.py": ASSERTING,
            "extra.py": PLAIN,
            "tests/test_a.py": "import calc\nimport extra\n",
        },
        "calc.py",
        False,
    ),
    "a module that the manifest does not name": (
        {
            "pyproject.toml": PROJECT,
            "calc.py": BUG,
            "extra.py": PLAIN,
            "tests/test_a.py": "import calc\nimport extra\n",
        },
        "extra.py",
        True,
    ),
    "a module below src": (
        {"src/calc.py": ASSERTING, "support/a.py": ASSERTING, "tests/test_a.py": "import calc\nimport src\n"},
        "src/calc.py",
        False,
    ),
    "what a plugin of the runner imports": (
        {
            "pyproject.toml": PROJECT,
            "calc.py": BUG,
            "tools/hooks.py": "import pytest\nimport texts\n",
            "texts.py": PLAIN,
            "tests/test_a.py": "import calc\n",
        },
        "texts.py",
        True,
    ),
    "data that tests open": (
        {"calc.py": BUG, "samples/a.json": "3", "tests/test_a.py": "import calc\nopen('samples/a.json')\n"},
        "samples/a.json",
        True,
    ),
    "data that the product opens": (
        {
            "calc.py": "open('samples/a.json')\n",
            "samples/a.json": "3",
            "tests/test_a.py": "import calc\nopen('samples/a.json')\n",
        },
        "samples/a.json",
        False,
    ),
    "data of which nobody speaks": (
        {"calc.py": BUG, "a.json": "3", "tests/test_a.py": "import calc\n"},
        "a.json",
        False,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_only_tests_use_belongs_to_the_tests(open_verifier, layout: str) -> None:
    files, path, expected = LAYOUTS[layout]
    change = FileChange(path=path, mode="100644", old_mode="100644", size=1, old_size=1)

    async def read_all(_: Suite) -> frozenset[str]:
        return frozenset(files)

    async def read_nothing_else(_: Suite) -> frozenset[str]:
        return frozenset({"tests/test_a.py"})

    async with open_verifier(files) as verifier:
        found = await find_test_helpers(verifier.workspace, (change,), (PYTEST,), read_all)
        unread = await find_test_helpers(verifier.workspace, (change,), (PYTEST,), read_nothing_else)
    assert (found, unread) == (frozenset({path}) if expected else frozenset(), frozenset())


async def test_the_baseline_run_knows_which_files_it_read(open_verifier) -> None:
    files = {
        "calc.py": BUG,
        "unread.py": "",
        "a name.json": "3",
        "tests/test_a.py": "import calc\n\n\ndef test_a():\n    open('a name.json').read()\n",
    }
    async with (
        open_verifier(files) as verifier,
        BaselineRuns(verifier.workspace, verifier.sandboxes, "run", 60) as runs,
    ):
        read_files = await runs.get_read_files(PYTEST)
    assert {"calc.py", "a name.json", "tests/test_a.py"} <= read_files
    assert "unread.py" not in read_files
