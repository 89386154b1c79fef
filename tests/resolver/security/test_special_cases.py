"""Added code that may satisfy only the tests that show the fix is named for reviewers."""

import pytest

from patchwright.resolver.git.new_file import add_file
from patchwright.resolver.security.special_cases import (
    COUNTER,
    EXPECTED,
    MAX_FILE_BYTES,
    READ,
    SETTING,
    UNUSED,
    VALUES,
    find_special_cases,
)
from tests.resolver.patch_verifier import VerifierFactory

TEST = (
    "from calc import *\n\n\ndef test_add():\n    assert add(12, 30) == 42\n"
    "\n\ndef test_one():\n    assert one() == 7\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "patch", "note"),
    [
        ({}, {"calc.py": "def add(a, b):\n    if (a, b) == (12, 30):\n        return 42\n"}, VALUES),
        ({}, {"calc.py": "def add(a, b):\n    return {(12, 30): 42}.get((a, b), a - b)\n"}, VALUES),
        ({}, {"calc.py": "def add(a, b):\n    return 42 if a in (12, 30) else a - b\n"}, VALUES),
        ({}, {"calc.py": "def add(a, b):\n    if 12 == a: return 42\n"}, VALUES),
        # Other values, a value of another test, and no result.
        ({}, {"calc.py": "def add(a, b):\n    if (a, b) == (12, 31):\n        return 42\n"}, ""),
        ({}, {"calc.py": "def add(a, b):\n    if a == 12:\n        return 7\n"}, ""),
        ({}, {"calc.py": "def add(a, b):\n    if a == 12:\n        return b\n"}, ""),
        ({}, {"calc.py": "def add(a, b):\n    if a == 0:\n        return b\n"}, ""),
        ({}, {"calc.py": "n = 0\n\ndef add(a, b):\n    global n\n    n += 1\n    return a if n < 9 else b\n"}, COUNTER),
        ({}, {"calc.py": "def add(a, b):\n    add.n += 1\n    return a if add.n < 9 else b\n"}, COUNTER),
        ({}, {"calc.js": "let n = 0;\nexports.add = (a, b) => (n++ < 9 ? a + b : a - b);\n"}, COUNTER),
        ({}, {"calc.py": "def add(a, b):\n    n = 0\n    while n < 9:\n        n += 1\n"}, ""),
        (
            {"tests/test_calc.py": TEST.replace("add(12, 30) == 42", "FIXED")},
            {"calc.py": "def one():\n    return 1\n\n\nFIXED = True\n"},
            UNUSED,
        ),
        (
            {"tests/test_calc.py": TEST.replace("add(12, 30) == 42", "FIXED")},
            {"calc.py": "FIXED = True\n\n\ndef one():\n    return FIXED\n"},
            "",
        ),
        ({}, {"calc.py": "def one():\n    return 1\n\n\nFIXED = True\n"}, ""),
        (
            {"calc.py": "CASES = {\n    'add': 1,\n}\n", "tests/test_calc.py": TEST.replace("42", "CASES['add']")},
            {"calc.py": "CASES = {\n    'add': 2,\n}\n"},
            EXPECTED,
        ),
        (
            {"calc.js": "exports.SUM = 1;\n", "tests/test_calc.py": TEST.replace("42", "SUM")},
            {"calc.js": "exports.SUM = 2;\n"},
            EXPECTED,
        ),
        ({"calc.py": "LIMIT = 1\n"}, {"calc.py": "LIMIT = 2\n"}, ""),
        (
            {"tests/conftest.py": "import os\nos.environ['CALC_DEV'] = '1'\n", "env.py": "DEV = getenv('CALC_DEV')\n"},
            {"calc.py": "from env import DEV\n"},
            SETTING,
        ),
        ({"conftest.py": "import env\nenv.Strict = True\n"}, {"calc.py": "if env.Strict: pass\n"}, SETTING),
        ({"conftest.py": "import os\nprint(os.environ['CALC_DEV'])\n"}, {"calc.py": "getenv('CALC_DEV')\n"}, ""),
        (
            {"tests/test_calc.py": TEST.replace("add(12, 30) == 42", "'fix' in open('calc.py').read()")},
            {"calc.py": "# fix\n"},
            READ,
        ),
        ({"tests/test_calc.py": TEST.replace("add(12, 30)", "open('data.txt')")}, {"calc.py": "# fix\n"}, ""),
        # Tests and other files are not searched.
        ({}, {"tests/helper.py": "def add(a, b):\n    if (a, b) == (12, 30):\n        return 42\n"}, ""),
        ({}, {"calc.md": "if (a, b) == (12, 30): 42\n"}, ""),
    ],
)  # fmt: skip
async def test_code_that_may_satisfy_only_the_tests_is_named(
    base: dict[str, str | bytes], patch: dict[str, str | None], note: str, open_verifier: VerifierFactory
) -> None:
    async with open_verifier({"calc.py": "", "calc.js": "", "tests/test_calc.py": TEST, **base}) as verifier:
        workspace, change = verifier.workspace, await verifier.patch(patch)
        changes = await workspace.list_changes(change)
        found = await find_special_cases(workspace, change, changes, ("tests/test_calc.py::test_add[x]",))
    assert [sentence for sentence in found if note not in sentence] == []
    assert bool(found) == bool(note)


async def test_the_sentences_name_the_lines(open_verifier: VerifierFactory) -> None:
    async with open_verifier({"calc.py": "", "tests/test_calc.py": TEST}) as verifier:
        code = "def add(a, b):\n    if (a, b) == (12, 30):\n        return 42\n"
        change = await verifier.patch({"calc.py": code})
        changes = await verifier.workspace.list_changes(change)
        found = await find_special_cases(
            verifier.workspace, change, changes, ("tests/test_calc.py::test_add",)
        )
    assert found == [
        "calc.py, line 2, gives special results for values of the tests that show the fix: `if (a, b) == (12, 30):`"
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("in" + " " * 1_000_000, "a" * 1_000_000, "1," * 500_000, "a." * 500_000, "== " + "(" * 1_000_000),
        *("\n" * 1_000_000, "".join(f"A{number} = 1\n" for number in range(60_000)), "x" + "+=1\n" * 60_000),
        "X = " + "+".join(["1"] * 20_000),
    ],
    ids=[
        "spaces",
        "name",
        "values",
        "attributes",
        "brackets",
        "empty lines",
        "constants",
        "counters",
        "deep",
    ],
)
async def test_a_generated_file_of_any_form_is_searched(text: str, open_verifier: VerifierFactory) -> None:
    """With a search whose time grows with the square of the length, this would reach the time limit of a test."""
    async with open_verifier({"calc.py": "", "tests/test_calc.py": TEST}) as verifier:
        change = add_file(
            await verifier.patch({"calc.py": "\n"}), "large.py", text[: MAX_FILE_BYTES - 1] + "\n"
        )
        changes = await verifier.workspace.list_changes(change)
        assert [each.path for each in changes] == ["calc.py", "large.py"]
        assert (
            await find_special_cases(verifier.workspace, change, changes, ("tests/test_calc.py::test_add",))
            == []
        )
