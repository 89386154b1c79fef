"""The proof: real suites, in real sandboxes, on patches good, bad and dishonest."""

import pytest

from resolver.domain import Verdict
from resolver.suites.suite import Suite
from tests.resolver.proofs import BUG, FAILING, MENDED, TESTS


async def test_a_failing_test_that_passes_with_the_patch_is_a_fix(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED})
    assert (verdict.kind, verdict.newly_passing) == ("fixed", ("tests/test_calc.py::test_add",))
    assert verdict.reason == "1 test failed without the patch and passed with it; none broke."
    assert verdict.before and verdict.after
    assert (verdict.before.failed, verdict.after.failed, verdict.after.passed) == (1, 0, 2)


async def test_a_new_test_counts_when_the_base_code_fails_it(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED, "tests/test_calc.py": FAILING})
    assert (verdict.kind, verdict.newly_passing) == ("fixed", ("tests/test_calc.py::test_add",))


@pytest.mark.parametrize(
    "command", ["python3 -m pytest", "(python3 -m pytest)"]
)  # the second runs all or none
async def test_one_more_case_in_a_test_that_was_there_counts_as_a_new_test_does(proven, command: str) -> None:
    suite = Suite(command=command, report="pytest", why="")
    more = TESTS + "    assert add(1, 2) == 3\n"
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED, "tests/test_calc.py": more}, suite)
        idle = await proof.verdict({"calc.py": MENDED, "tests/test_calc.py": TESTS + "\n"}, suite)
    test = "tests/test_calc.py::test_one"
    assert (verdict.kind, verdict.newly_passing) == ("fixed", (test,)), verdict.reason
    assert verdict.on_old_code == {test: "failed"}
    assert (idle.kind, idle.newly_passing) == ("unproven", ()), idle.reason


@pytest.mark.parametrize(
    "test",
    [
        "def test_new():\n    assert True\n",
        "from calc import one\ndef test_new():\n    assert one() == 1\n",
        "from data import NUMBER\ndef test_new():\n    assert NUMBER == 1\n",
        "import os\nif not os.path.exists('added.py'):\n    raise OSError\ndef test_new():\n    pass\n",
        "import importlib as i\nif i.util.find_spec('added'):\n    def test_new():\n        pass\n",
    ],
)
async def test_a_new_test_that_says_nothing_about_the_code_is_no_fix(proven, test: str) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS}) as proof:
        verdict = await proof.verdict(
            {"calc.py": MENDED, "added.py": "", "tests/data.py": "NUMBER = 1", "tests/test_new.py": test}
        )
    assert (verdict.kind, verdict.newly_passing) == ("unproven", ()), verdict
    assert verdict.after and verdict.after.results["tests/test_new.py::test_new"] == "passed"


@pytest.mark.parametrize(
    ("module", "added", "test"),
    [
        ("calc.py", MENDED + "\n\ndef sub(a, b):\n    return a - b\n", "from calc import sub"),
        ("calc.py", MENDED + "\n\ndef sub(a, b):\n    return a - b\n", "import calc\nsub = calc.sub"),
        ("minus.py", "def sub(a, b):\n    return a - b\n", "from minus import sub"),
    ],
)
async def test_a_new_test_counts_when_it_misses_the_feature_that_the_patch_adds(
    proven, module: str, added: str, test: str
) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS}) as proof:
        verdict = await proof.verdict(
            {module: added, "tests/test_sub.py": f"{test}\n\n\ndef test_sub():\n    assert sub(3, 1) == 2\n"}
        )
    assert (verdict.kind, verdict.newly_passing) == ("fixed", ("tests/test_sub.py::test_sub",)), verdict


async def test_a_weakened_test_is_no_fix(proven) -> None:
    weak = FAILING.replace("assert add(1, 2) == 3", "assert add")
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"tests/test_calc.py": weak})
    assert (verdict.kind, verdict.newly_passing) == ("unproven", ())


async def test_a_test_that_breaks_twice_is_a_regression(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED.replace("return 1", "return 2")})
    assert (verdict.kind, verdict.newly_failing) == ("regressed", ("tests/test_calc.py::test_one",))
    assert verdict.reason == "1 test passed without the patch and failed with it, twice."


async def test_a_patch_that_the_tests_cannot_import_breaks_all_of_them(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": "def add(a, b:\n"})
    assert (verdict.kind, verdict.newly_failing) == ("regressed", ("tests/test_calc.py::test_one",))


async def test_a_test_that_fails_only_sometimes_is_flaky_not_broken(proven, tmp_path) -> None:
    # Beside all sandboxes, so that the two runs can know of each other.
    once = (
        f"import os\nfrom calc import add\n\n\ndef test_moody():\n    mark = {str(tmp_path / 'mark')!r}\n"
        "    if add(1, 2) == 3 and not os.path.exists(mark):\n        open(mark, 'w').close()\n        assert False\n"
    )
    async with proven({"calc.py": BUG, "test_moody.py": once, "test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED})
    assert (verdict.kind, verdict.flaky, verdict.newly_failing) == (
        "fixed",
        ("test_moody.py::test_moody",),
        (),
    )


@pytest.mark.parametrize(
    "change", [{"tests/test_calc.py": None}, {"tests/test_calc.py": TESTS + "test_one = None"}]
)
async def test_a_test_that_went_away_leaves_the_patch_unproven(proven, change) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS, "test_add.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED, **change})
    assert (verdict.kind, verdict.missing) == ("unproven", ("tests/test_calc.py::test_one",))
    assert verdict.newly_passing == ("test_add.py::test_add",)
    assert verdict.reason == "1 test passed without the patch and did not run with it."


async def test_a_baseline_that_fails_everywhere_can_be_mended(proven) -> None:
    async with proven({"calc.py": "1/0\n", "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED})
    assert verdict.kind == "fixed" and len(verdict.newly_passing) == 2


@pytest.mark.slow
async def test_a_patch_that_makes_the_suite_hang_is_a_regression(proven) -> None:
    async with proven({"calc.py": MENDED, "tests/test_calc.py": FAILING}) as proof:
        hang = MENDED.replace("return 1", "while True: pass")
        verdict = await proof.verdict({"calc.py": hang}, seconds=4)
    assert verdict.kind == "regressed"
    assert verdict.reason == (
        "The tests ran without the patch but not with it, twice: they did not end within 4 s and were killed."
    )


@pytest.mark.parametrize(
    ("base", "patched", "kind", "reason"),
    [
        (
            "1",
            "0",
            "fixed",
            "The test command failed without the patch and passed with it, as a whole.",
        ),
        (
            "0",
            "1",
            "regressed",
            "The test command passed without the patch and failed with it, twice.",
        ),
        (
            "0",
            "00",
            "unproven",
            "The test command passed without the patch and with it, and names no",
        ),
        (
            "2",
            "1",
            "unproven",
            "The test command failed without the patch and with it, and names no",
        ),
    ],
)
async def test_a_command_without_a_report_speaks_by_its_exit_code(
    proven, base, patched, kind, reason
) -> None:
    suite = Suite(command='exit "$(cat code)"', report="none", why="")
    async with proven({"code": base}) as proof:
        verdict = await proof.verdict({"code": patched}, suite)
    assert verdict.kind == kind and verdict.reason.startswith(reason)


async def test_a_command_that_fails_for_a_missing_test_only_is_no_fix(proven) -> None:
    suite = Suite(command="test -e tests/new.txt", report="none", why="")
    async with proven({"a": ""}) as proof:
        verdict = await proof.verdict({"a": "changed", "tests/new.txt": "x"}, suite)
    assert (verdict.kind, verdict.reason) == (
        "unproven",
        "The test command failed without the patch and with it, and names no single tests.",
    )


async def test_without_a_change_there_is_nothing_to_prove(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({})
    assert verdict == Verdict(kind="empty", reason="The run ended without a change to the code.")


async def test_without_a_suite_a_patch_is_untested(proven) -> None:
    async with proven({"calc.py": BUG}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED}, suite=None)
    assert verdict == Verdict(
        kind="untested", reason="The repository has no tests that were found, and none are configured."
    )


async def test_without_pytest_a_patch_is_untested_and_says_what_to_do(proven) -> None:
    suite = Suite(command="python3 -S -m pytest", report="pytest", why="")
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED}, suite)
    assert verdict.kind == "untested"
    assert verdict.reason == (
        "The tests could not be run, with the patch or without it: pytest is not installed in the sandbox; "
        "add it to the image, or set `test_command` in .github/patchwright.toml."
    )
