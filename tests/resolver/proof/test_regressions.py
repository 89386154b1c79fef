"""Verification of patches that break tests, with real suites in real sandboxes."""

import pytest

from tests.resolver.patch_verifier import BUG, FAILING, FIXED, TESTS


@pytest.mark.slow
async def test_a_test_that_breaks_twice_is_a_regression(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED.replace("return 1", "return 2")})
    assert (verdict.kind, verdict.pass_to_fail) == ("regressed", ("tests/test_calc.py::test_one",))
    assert verdict.reason == "1 test passed without the patch and failed with it, twice."


@pytest.mark.slow
async def test_a_patch_that_cannot_be_imported_breaks_all_tests(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"calc.py": "def add(a, b:\n"})
    assert (verdict.kind, verdict.pass_to_fail) == ("regressed", ("tests/test_calc.py::test_one",))


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        {"tests/test_calc.py": FAILING},
        {"tests/test_new.py": "from new import X\n\ndef test_new():\n    assert X"},
    ],
)
async def test_a_patch_whose_code_breaks_other_tests_as_a_whole_is_a_regression(open_verifier, tests) -> None:
    """The runner then has no results of single tests, neither for the existing tests nor for changed ones."""
    files = {"calc.py": BUG, "new.py": "", "tests/test_calc.py": TESTS, "tests/test_more.py": TESTS}
    async with open_verifier(files | {"tests/test_other.py": "def test_other():\n    pass\n"}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED + "1 / 0\n", "new.py": "X = 1\n", **tests})
    assert (verdict.kind, verdict.modified_tests_failing) == ("regressed", ())
    assert verdict.pass_to_fail == ("tests/test_calc.py::test_one", "tests/test_more.py::test_one")


@pytest.mark.slow
async def test_a_patch_that_makes_the_suite_hang_is_a_regression(open_verifier) -> None:
    async with open_verifier({"calc.py": FIXED, "tests/test_calc.py": FAILING}) as verifier:
        hang = FIXED.replace("return 1", "while True: pass")
        verdict = await verifier.verdict({"calc.py": hang}, seconds=4)
    assert verdict.kind == "regressed"
    assert verdict.reason == (
        "The tests ran without the patch, but two attempts to run them with it failed: "
        "the tests did not finish within 4 s and were killed."
    )
