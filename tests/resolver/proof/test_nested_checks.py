"""A test shows a fix only if its checks in nested functions decide."""

import pytest

from patchwright.resolver.proof import nested_checks
from tests.resolver.patch_verifier import BUG, FIXED, TESTS, VerifierFactory

EACH = "\n\ndef each(items, report):\n    for item in items:\n        report(add(item, item))\n"
CHECKED = (
    "\n\ndef test_each():\n    def check(total):\n        assert total == 2\n\n    calc.each([1], check)\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "tests", "kind"),
    [
        (FIXED + EACH, CHECKED, "fixed"),
        (BUG + EACH.replace("in items", "in []"), CHECKED, "unproven"),
        # Another check of the test decides.
        (FIXED + EACH.replace("in items", "in []"), CHECKED + "    assert calc.add(1, 1) == 2\n", "fixed"),
        # Another test shows the fix.
        (
            FIXED + EACH.replace("in items", "in []"),
            CHECKED + "\n\ndef test_add():\n    assert calc.add(1, 1) == 2\n",
            "fixed",
        ),
        # A callback that must not be called.
        (FIXED + EACH, CHECKED.replace("assert total == 2", "assert total == 2 or total"), "fixed"),
    ],
)
async def test_checks_in_callbacks_have_to_decide(
    code: str, tests: str, kind: str, open_verifier: VerifierFactory
) -> None:
    base = {"calc.py": BUG + EACH, "tests/test_calc.py": f"import calc\n{TESTS}{tests}"}
    if "or total" in tests:
        base["calc.py"] = BUG + EACH.replace("report(", "report(0 * ")
    async with open_verifier({**base}) as verifier:
        verdict = await verifier.verdict({"calc.py": code})
    assert verdict.kind == kind, verdict.reason
    if kind == "unproven":
        assert verdict.reason == (
            "With the patch, `test_each` also passes if its checks fail, so no test shows the fix."
        )


def test_a_test_that_is_nested_too_deeply_is_not_copied() -> None:
    names = nested_checks._break_nested_checks(CHECKED)[1]
    deep = CHECKED.replace("total == 2", f"total + {'+'.join(['0'] * 20_000)} == 2")
    assert (names, nested_checks._break_nested_checks(deep)[1]) == ({"test_each"}, frozenset())
