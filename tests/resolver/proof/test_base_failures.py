"""Verification of fixes whose tests fail on the base code in an unusual way."""

import pytest

from tests.resolver.patch_verifier import VerifierFactory


@pytest.mark.slow
async def test_a_bug_that_shows_only_beside_other_tests_can_be_fixed(open_verifier: VerifierFactory) -> None:
    shared = "class Basket:\n    items = []\n\n    def add(self, item):\n        self.items.append(item)\n"
    own = shared.replace("    items = []\n", "    def __init__(self):\n        self.items = []\n")
    tests = (
        "from basket import Basket\n\n\ndef test_a():\n    Basket().add(1)\n\n\n"
        "def test_b():\n    assert Basket().items == []\n"
    )
    async with open_verifier({"basket.py": shared, "test_basket.py": tests}) as verifier:
        verdict = await verifier.verdict({"basket.py": own})
    assert (verdict.kind, verdict.fail_to_pass, verdict.flaky) == ("fixed", ("test_basket.py::test_b",), ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def count(n):\n    while n:\n        n -= 2\n    return 0\n", "def count(n):\n    return 0\n"),
        ("import os\n\n\ndef count(n):\n    os.abort()\n", "def count(n):\n    return 0\n"),
    ],
    ids=["hang", "crash"],
)
async def test_a_new_test_that_hangs_or_crashes_without_the_patch_shows_the_fix(
    open_verifier: VerifierFactory, before: str, after: str
) -> None:
    old = "def test_old():\n    pass\n"
    new = f"{old}\n\ndef test_count():\n    import calc\n\n    assert calc.count(1) == 0\n"
    async with open_verifier({"calc.py": before, "test_calc.py": old}) as verifier:
        verdict = await verifier.verdict({"calc.py": after, "test_calc.py": new}, seconds=12)
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("test_calc.py::test_count",)), verdict.reason
