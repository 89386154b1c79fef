"""Verification of patches whose tests need the patch's test configuration."""

import pytest

from tests.resolver.patch_verifier import BUG, FAILING, FIXED, TESTS, VerifierFactory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixed", "kind", "shown"),
    [(FIXED, "conditional", ("tests/test_calc.py::test_add",)), (BUG + "\nPAIR = 1, 2\n", "unproven", ())],
    ids=["fix", "no fix"],
)
async def test_a_test_may_need_test_configuration_that_the_patch_changes(
    open_verifier: VerifierFactory, fixed: str, kind: str, shown: tuple[str, ...]
) -> None:
    conftest = "import pytest\n\n\n@pytest.fixture\ndef pair():\n    return 1, 2\n"
    total = 3 if kind == "conditional" else -1
    tests = f"{FAILING.partition('def test_add')[0]}def test_add(pair):\n    assert add(*pair) == {total}\n"
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict(
            {"calc.py": fixed, "tests/test_calc.py": tests, "tests/conftest.py": conftest}
        )
    assert (verdict.kind, verdict.fail_to_pass) == (kind, shown), verdict.reason
    assert verdict.reverted_test_config == ("tests/conftest.py",)
    assert verdict.patch_tests_failing == ()


@pytest.mark.slow
async def test_a_new_test_that_uses_a_module_that_replaces_the_runner_is_not_run_with_it(
    open_verifier: VerifierFactory,
) -> None:
    tests = "import pytest\nfrom calc import add\n\n\ndef test_add():\n    assert add(*pytest.PAIR) == 3\n"
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict(
            {
                "calc.py": FIXED,
                "tests/test_add.py": tests,
                "sitecustomize.py": "import pytest\npytest.PAIR = 1, 2\n",
            }
        )
    assert (verdict.kind, verdict.patch_tests_failing) == ("unproven", ("tests/test_add.py::test_add",))
