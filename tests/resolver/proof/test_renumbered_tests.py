"""A test whose number changed is not reported as removed, but a removed parameter is."""

import pytest

from tests.resolver.patch_verifier import VerifierFactory

TEST = """\
import pytest


class Case:
    def __init__(self, value):
        self.value = value

{fixture}
@pytest.mark.parametrize(("number", "case"), {cases})
def test_value(number, case{argument}):
    assert case.value == number
"""
OLD = "[(1, Case(1)), (2, Case(2))]"
FIXTURE = "\n@pytest.fixture(params=[{}])\ndef kind(request):\n    return request.param\n\n"


def write_test(cases: str = OLD, fixture: str = "", argument: str = "") -> str:
    return TEST.format(cases=cases, fixture=fixture, argument=argument)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        # The ids are numbered by position: [1-case0] and [2-case1].
        (write_test(), write_test("[(3, Case(3)), (1, Case(1)), (2, Case(2))]"), []),
        (write_test(), write_test("[(1, Case(1)), (3, Case(3)), (2, Case(2))]"), []),
        (write_test(), write_test("[(3, Case(3)), (2, Case(2))]"), ["1-case0"]),
        (write_test(), write_test("[(3, Case(3)), (4, Case(4)), (2, Case(2))]"), ["1-case0", "2-case1"]),
        (write_test(), write_test("[(2, Case(2)), (1, Case(1))]"), ["1-case0", "2-case1"]),
        (
            write_test('[pytest.param(1, Case(1), id="v1"), (2, Case(2))]'),
            write_test("[(3, Case(3)), (2, Case(2)), (4, Case(4))]"),
            ["v1"],
        ),
        (
            write_test(),
            write_test("[(3, Case(3)), (1, Case(1)), pytest.param(2, Case(2), marks=pytest.mark.skip)]"),
            ["1-case0", "2-case1"],
        ),
        (
            write_test("[(1, ONE), (2, TWO)]", "\nONE, TWO = Case(1), Case(2)\n"),
            write_test("[(3, Case(3)), (1, ONE), (2, TWO)]", "\nONE, TWO = Case(1), Case(True + 1)\n"),
            ["1-case0", "2-case1"],
        ),
        (
            write_test(fixture=FIXTURE.format('"a"'), argument=", kind"),
            write_test("[(3, Case(3)), (1, Case(1)), (2, Case(2))]", FIXTURE.format('"b"'), ", kind"),
            ["a-1-case0", "a-2-case1"],
        ),
        (
            write_test(fixture=FIXTURE.format('"a"'), argument=", kind"),
            write_test("[(3, Case(3)), (1, Case(1)), (2, Case(2))]", FIXTURE.format('"a"'), ", kind"),
            [],
        ),
    ],
    ids="first middle replaced rewritten reordered explicit-id skipped value fixture with-fixture".split(),
)  # fmt: skip
async def test_only_a_removed_parameter_is_missing(
    open_verifier: VerifierFactory, old: str, new: str, missing: list[str]
) -> None:
    async with open_verifier({"calc.py": "x = 1\n", "tests/test_calc.py": old}) as verifier:
        verdict = await verifier.verdict({"calc.py": "x = 2\n", "tests/test_calc.py": new})
    assert list(verdict.missing) == [f"tests/test_calc.py::test_value[{case}]" for case in missing]
