"""Code that works only while it is being tested fixes nothing."""

import pytest

from patchwright.resolver.suites.command_options import build_plain_command
from patchwright.resolver.suites.suite import Suite
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, VerifierFactory

pytestmark = pytest.mark.real_start

BASE = {"calc.py": BUG, "tests/test_calc.py": FAILING}
TELLS = (
    ("import os", "os.environ.get('C' + 'I')"),
    ("import os", "os.environ.get('_'.join(('PYTEST', 'CURRENT', 'TEST')))"),
    ("import os", "[name for name in os.environ if name.startswith('PATCH')]"),
    ("import sys", "'_' + 'pytest' in sys.modules"),
    ("import sys", "any('plug' in name and 'gy' in name for name in sys.modules)"),
    ("import sys", "'test' in sys.argv[0]"),
    ("from pathlib import Path", "'pytest' in Path('/proc/self/cmdline').read_text()"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("imports", "condition"), TELLS)
async def test_code_that_works_only_in_a_test_run_shows_no_fix(
    open_verifier: VerifierFactory, imports: str, condition: str
) -> None:
    code = f"{imports}\n\n\n{BUG.replace('a - b', f'a + b if {condition} else a - b')}"
    async with open_verifier(BASE) as verifier:
        verdict = await verifier.verdict({"calc.py": code})
    assert (verdict.kind, verdict.environment_dependent) == ("unproven", ("tests/test_calc.py::test_add",))
    assert verdict.reason == (
        "With the patch, `test_add` passes only if the code can tell that it is being tested."
    )


@pytest.mark.slow
async def test_code_that_ends_the_plain_run_shows_no_fix(open_verifier: VerifierFactory) -> None:
    code = f"import os\n\nif 'C' + 'I' not in os.environ:\n    os._exit(3)\n\n\n{FIXED}"
    async with open_verifier(BASE) as verifier:
        verdict = await verifier.verdict({"calc.py": code})
    assert verdict.kind == "unproven" and verdict.environment_dependent


@pytest.mark.slow
async def test_tests_that_cannot_run_in_a_plain_environment_show_a_fix(
    open_verifier: VerifierFactory,
) -> None:
    conftest = "import os\n\nassert os.environ['CI'], 'these tests run only in CI'\n"
    async with open_verifier({**BASE, "conftest.py": conftest}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert verdict.kind == "fixed"


@pytest.mark.slow
async def test_tests_that_fail_in_a_plain_environment_without_the_patch_too_show_a_fix(
    open_verifier: VerifierFactory,
) -> None:
    tests = FAILING.replace("():\n", "():\n    assert os.environ['CI']\n")
    base = {"calc.py": BUG, "tests/test_calc.py": f"import os\n\n{tests}"}
    async with open_verifier(base) as verifier:
        assert (await verifier.verdict({"calc.py": FIXED})).kind == "fixed"


@pytest.mark.slow
async def test_a_plain_run_does_not_disturb_imports_and_mocks(open_verifier: VerifierFactory) -> None:
    tests = (
        "import importlib\nimport pickle\nimport sys\nfrom unittest import mock\n\nimport pytest\n\nimport calc\n\n\n"
        "def test_add(monkeypatch):\n    assert sys.modules['pytest'] is pytest\n"
        "    with mock.patch.dict('sys.modules', {'made_up': calc}):\n        import made_up\n"
        "    assert made_up is calc and 'made_up' not in sys.modules\n"
        "    assert pickle.loads(pickle.dumps(calc.add)) is calc.add\n"
        "    monkeypatch.delitem(sys.modules, 'calc')\n    again = importlib.import_module('calc')\n"
        "    assert again is not calc and importlib.reload(again).add(1, 2) == 3\n"
    )
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": tests}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert verdict.kind == "fixed"


@pytest.mark.slow
async def test_other_runners_run_without_the_variable_of_ci(open_verifier: VerifierFactory) -> None:
    suite = Suite(command="python3 -m unittest discover -s tests -t .", runner="unittest", command_reason="")
    tests = (
        "import unittest\nfrom calc import add\n\n\nclass Calc(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
    )
    base = {"calc.py": BUG, "tests/__init__.py": "", "tests/test_calc.py": tests}
    lie = "import os\n\n\n" + BUG.replace("a - b", "a + b if os.environ.get('CI') else a - b")
    async with open_verifier(base) as verifier:
        assert (await verifier.verdict({"calc.py": FIXED}, suite)).kind == "fixed"
        assert (await verifier.verdict({"calc.py": lie}, suite)).kind == "unproven"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3 -m pytest -q", 'python3 <(cat "$PATCHWRIGHT_REPORTER_DIR/plain_start.py") -q t.py::a'),
        (
            "A=1 .venv/bin/python -m pytest",
            'A=1 .venv/bin/python <(cat "$PATCHWRIGHT_REPORTER_DIR/plain_start.py") t.py::a',
        ),
        (
            "uv run pytest",
            "uv run $(sed -n '1s/^#!//p' \"$(command -v pytest)\") "
            '<(cat "$PATCHWRIGHT_REPORTER_DIR/plain_start.py") t.py::a',
        ),
        ("make test", None),
        ("tox && pytest", None),
    ],
)
def test_the_command_of_a_plain_run_names_no_runner(command: str, expected: str | None) -> None:
    assert build_plain_command(command, "pytest", ("t.py::a",)) == expected
