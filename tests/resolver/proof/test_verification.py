"""Verification with real suites in real sandboxes, on good, bad and dishonest patches."""

import pytest

from patchwright.resolver.domain import Verdict
from patchwright.resolver.suites.suite import Suite
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, TESTS


async def test_a_failing_test_that_passes_with_the_patch_is_a_fix(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",))
    assert verdict.reason == "1 test failed without the patch and passed with it; none broke."
    assert verdict.before and verdict.after
    assert (verdict.before.failed_count, verdict.after.failed_count, verdict.after.passed_count) == (1, 0, 2)


@pytest.mark.slow
async def test_a_new_test_counts_when_the_base_code_fails_it(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED, "tests/test_calc.py": FAILING})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["python3 -m pytest", "(python3 -m pytest)"]
)  # the second command runs all or none
async def test_a_new_case_in_an_existing_test_counts_as_a_new_test(open_verifier, command: str) -> None:
    suite = Suite(command=command, runner="pytest", command_reason="")
    more = TESTS + "    assert add(1, 2) == 3\n"
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED, "tests/test_calc.py": more}, suite)
        idle = await verifier.verdict({"calc.py": FIXED, "tests/test_calc.py": TESTS + "\n"}, suite)
    test = "tests/test_calc.py::test_one"
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", (test,)), verdict.reason
    assert verdict.new_tests_at_base == {test: "failed"}
    assert (idle.kind, idle.fail_to_pass) == ("unproven", ()), idle.reason


@pytest.mark.slow
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
async def test_a_new_test_that_does_not_check_the_code_is_no_fix(open_verifier, test: str) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict(
            {"calc.py": FIXED, "added.py": "", "tests/data.py": "NUMBER = 1", "tests/test_new.py": test}
        )
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ()), verdict
    assert verdict.after and verdict.after.results["tests/test_new.py::test_new"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "added", "test"),
    [
        ("calc.py", FIXED + "\n\ndef sub(a, b):\n    return a - b\n", "from calc import sub"),
        ("calc.py", FIXED + "\n\ndef sub(a, b):\n    return a - b\n", "import calc\nsub = calc.sub"),
        ("minus.py", "def sub(a, b):\n    return a - b\n", "from minus import sub"),
    ],
)
async def test_a_new_test_that_fails_for_the_missing_feature_counts(
    open_verifier, module: str, added: str, test: str
) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict(
            {module: added, "tests/test_sub.py": f"{test}\n\n\ndef test_sub():\n    assert sub(3, 1) == 2\n"}
        )
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_sub.py::test_sub",)), verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "check"),
    [
        ("import calc", "self.assertEqual(calc.inverse(0), 0)"),  # it divides by zero at base
        ("import calc", "self.assertEqual(calc.double(2), 4)"),
        ("from calc import double", "self.assertEqual(double(2), 4)"),
    ],
)
async def test_with_unittest_an_exception_at_base_is_evidence(open_verifier, head: str, check: str) -> None:
    base = "def inverse(n):\n    return 1 / n\n"
    fixed = "def inverse(n):\n    return 1 / n if n else 0\n\n\ndef double(n):\n    return 2 * n\n"
    test = "import unittest\n{0}\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        {1}\n"
    files = {"calc.py": base, "tests/__init__.py": "", "tests/test_one.py": test.format("", "pass")}
    suite = Suite(command="python3 -m unittest", runner="unittest", command_reason="")
    async with open_verifier(files) as verifier:
        verdict = await verifier.verdict(
            {"calc.py": fixed, "tests/test_two.py": test.format(head, check)}, suite
        )
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_two.py::T::test_it",)), verdict


@pytest.mark.slow
async def test_failing_subtests_are_evidence(open_verifier) -> None:
    test = (
        "import unittest\nfrom calc import add\n\n\nclass Add(unittest.TestCase):\n    def test_all(self):\n"
        "        for n in range(4):\n            with self.subTest(n=n):\n"
        "                self.assertEqual(add(n, 1), n + 1)\n"
    )
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED, "tests/test_all.py": test})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_all.py::Add::test_all",)), verdict


@pytest.mark.slow
async def test_a_file_that_the_command_ignores_is_neither_evidence_nor_a_failure(open_verifier) -> None:
    suite = Suite(command="python3 -m pytest --ignore=tests/test_slow.py", runner="pytest", command_reason="")
    slow = "import data_that_nobody_has\n"
    async with open_verifier(
        {"calc.py": BUG, "tests/test_calc.py": TESTS, "tests/test_slow.py": slow}
    ) as verifier:
        verdict = await verifier.verdict(
            {"calc.py": FIXED, "tests/test_calc.py": FAILING, "tests/test_slow.py": slow + "\n"}, suite
        )
        ignored = await verifier.verdict({"calc.py": FIXED, "tests/test_slow.py": FAILING}, suite)
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",)), (
        verdict.reason
    )
    assert (ignored.kind, ignored.fail_to_pass) == ("unproven", ()), ignored.reason


@pytest.mark.slow
async def test_pytest_does_not_get_test_files_in_other_languages(open_verifier) -> None:
    base = {"calc.py": BUG, "tests/test_calc.py": TESTS, "lib/tests/test_sum.c": "int x;\n"}
    patch = {"calc.py": FIXED, "tests/test_calc.py": FAILING, "lib/tests/test_sum.c": "int y;\n"}
    async with open_verifier(base) as verifier:
        verdict = await verifier.verdict(patch)
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",)), (
        verdict.reason
    )


async def test_a_weakened_test_is_no_fix(open_verifier) -> None:
    weak = FAILING.replace("assert add(1, 2) == 3", "assert add")
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"tests/test_calc.py": weak})
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ())


@pytest.mark.slow
async def test_a_test_that_fails_sometimes_is_flaky(open_verifier, tmp_path) -> None:
    # Outside all sandboxes, so that both runs can see it.
    once = (
        f"import os\nfrom calc import add\n\n\ndef test_moody():\n    mark = {str(tmp_path / 'mark')!r}\n"
        "    if add(1, 2) == 3 and not os.path.exists(mark):\n        open(mark, 'w').close()\n        assert False\n"
    )
    async with open_verifier({"calc.py": BUG, "test_moody.py": once, "test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.flaky, verdict.pass_to_fail) == (
        "fixed",
        ("test_moody.py::test_moody",),
        (),
    )


@pytest.mark.slow
async def test_a_test_that_shows_the_fix_is_repeated_once_on_each_side(open_verifier, tmp_path) -> None:
    counted = (
        "from calc import add\n\n\ndef test_add():\n"
        f"    with open({str(tmp_path / 'results')!r}, 'a') as file:\n"
        "        print(add(1, 2), file=file)\n"
        "    assert add(1, 2) == 3\n"
    )
    files = {"calc.py": BUG, "test_add.py": counted}
    files |= {f"test_{n}.py": "def test_other():\n    assert True\n" for n in range(3)}
    async with open_verifier(files) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("test_add.py::test_add",))
    results = (tmp_path / "results").read_text().split()
    # With the patch, it runs with the affected tests, alone, with all tests, and in a plain environment.
    assert (results.count("-1"), results.count("3")) == (2, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"tests/test_calc.py": None}, {"tests/test_calc.py": TESTS + "test_one = None"}]
)
async def test_a_missing_test_is_a_condition(open_verifier, change) -> None:
    async with open_verifier(
        {"calc.py": BUG, "tests/test_calc.py": TESTS, "test_add.py": FAILING}
    ) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED, **change})
    assert (verdict.kind, verdict.missing) == ("conditional", ("tests/test_calc.py::test_one",))
    assert [condition.tests for condition in verdict.conditions] == [("tests/test_calc.py::test_one",)]
    assert verdict.fail_to_pass == ("test_add.py::test_add",)
    assert verdict.reason.startswith(
        "1 test failed without the patch and passed with it, and the patch also "
    )


@pytest.mark.slow
async def test_a_completely_failing_baseline_can_be_fixed(open_verifier) -> None:
    async with open_verifier({"calc.py": "1/0\n", "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert verdict.kind == "fixed" and len(verdict.fail_to_pass) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "patched", "kind", "reason"),
    [
        (
            "1",
            "0",
            "fixed",
            "As a whole, the test command failed without the patch and passed with it.",
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
            "The test command passed without the patch and with it, and reports no",
        ),
        (
            "2",
            "1",
            "unproven",
            "The test command failed without the patch and with it, and reports no",
        ),
    ],
)
async def test_without_a_report_the_exit_code_counts(open_verifier, base, patched, kind, reason) -> None:
    suite = Suite(command='exit "$(cat code)"', runner="none", command_reason="")
    async with open_verifier({"code": base}) as verifier:
        verdict = await verifier.verdict({"code": patched}, suite)
    assert verdict.kind == kind and verdict.reason.startswith(reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base_data", "patch", "kind", "shown_by"),
    [
        (
            {"2_1": "1"},
            {"calc.py": FIXED, "tests/sums/3_2": "5", "tests/sums/2_1": "3"},
            "conditional",
            "3_2",
        ),
        ({"0_0": "0"}, {"calc.py": FIXED, "tests/sums/3_2": "5"}, "fixed", "3_2"),
        ({"0_0": "0"}, {"calc.py": f"{BUG}\n# changed\n", "tests/sums/3_0": "3"}, "unproven", None),
        ({"2_1": "3"}, {"calc.py": f"{BUG}\n# changed\n", "tests/sums/2_1": "1"}, "unproven", None),
    ],
)
async def test_data_that_no_test_mentions_can_show_the_fix(
    open_verifier, base_data, patch, kind, shown_by
) -> None:
    test = (
        "import pathlib\nimport pytest\nfrom calc import add\n\n\n"
        "@pytest.mark.parametrize('path', sorted(pathlib.Path('tests/sums').iterdir()), ids=lambda path: path.name)\n"
        "def test_sums(path):\n    assert str(add(*map(int, path.name.split('_')))) == path.read_text()\n"
    )
    base = {"calc.py": BUG, "tests/test_all.py": test}
    base |= {f"tests/sums/{name}": text for name, text in base_data.items()}
    async with open_verifier(base) as verifier:
        verdict = await verifier.verdict(patch)
    assert verdict.kind == kind
    assert (f"tests/test_all.py::test_sums[{shown_by}]" in verdict.fail_to_pass) == (shown_by is not None)


@pytest.mark.slow
async def test_a_helper_that_cannot_be_imported_at_base_is_no_evidence(open_verifier) -> None:
    base = {"calc.py": BUG, "tests/__init__.py": "", "tests/test_calc.py": TESTS}
    patch = {"calc.py": f"{BUG}\n\ndef two():\n    return 2\n", "tests/__init__.py": "from calc import two\n"}
    async with open_verifier(base) as verifier:
        verdict = await verifier.verdict(patch)
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ())


@pytest.mark.slow
async def test_a_changed_test_that_is_no_python_file_can_show_the_fix(open_verifier) -> None:
    collector = (
        "import pytest\nimport calc\n\n\n"
        "def pytest_collect_file(parent, file_path):\n"
        "    return Words.from_parent(parent, path=file_path) if file_path.suffix == '.txt' else None\n\n\n"
        "class Words(pytest.File):\n"
        "    def collect(self):\n        yield Word.from_parent(self, name='')\n\n\n"
        "class Word(pytest.Item):\n"
        "    def runtest(self):\n        assert self.path.read_text() == str(calc.add(2, 1))\n\n"
        "    def reportinfo(self):\n        return self.path, None, ''\n"
    )
    base = {"calc.py": BUG, "tests/conftest.py": collector, "tests/words/test_sum.txt": "1"}
    async with open_verifier(base) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED, "tests/words/test_sum.txt": "3"})
    assert (verdict.kind, verdict.fail_to_pass) == ("conditional", ("tests/words/test_sum.txt::",))
    assert [each.kind for each in verdict.conditions] == ["changed_expectations"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "check", "kind", "reason"),
    [
        (
            "double() { echo $(($1 * 2)); }",
            '[ "$(double 3)" = 6 ]',
            "fixed",
            "With the patch's tests, the test command failed without the patch and passed with it.",
        ),
        (
            "double() { echo $(($1 * 2)); }",
            '[ "$(double 2)" = 4 ]',
            "unproven",
            "The test command passed without the patch and with it, and reports no individual tests.",
        ),
        (
            "double() { echo $(($1 * 1)); }",
            '[ "$(double 3)" = 6 ]',
            "unproven",
            "The test command failed with the tests from the patch.",
        ),
    ],
)
async def test_without_a_report_a_new_check_counts_if_it_fails_at_base(
    open_verifier, code, check, kind, reason
) -> None:
    suite = Suite(command="sh tests/check.sh", runner="none", command_reason="")
    base = {"calc.sh": "double() { echo $(($1 + 2)); }\n", "tests/check.sh": "set -e\n. ./calc.sh\n"}
    async with open_verifier(base) as verifier:
        patch = {"calc.sh": f"{code}\n", "tests/check.sh": f"{base['tests/check.sh']}{check}\n"}
        verdict = await verifier.verdict(patch, suite)
    assert verdict.kind == kind and verdict.reason.startswith(reason)


@pytest.mark.slow
async def test_a_command_that_fails_only_for_a_missing_test_is_no_fix(open_verifier) -> None:
    suite = Suite(command="test -e tests/new.txt", runner="none", command_reason="")
    async with open_verifier({"a": ""}) as verifier:
        verdict = await verifier.verdict({"a": "changed", "tests/new.txt": "x"}, suite)
    assert (verdict.kind, verdict.reason) == (
        "unproven",
        "The test command still fails with the old tests, and passes only with the patch's tests.",
    )


async def test_an_empty_patch_needs_no_verification(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({})
    assert verdict == Verdict(kind="empty", reason="The run ended without a change to the code.")


async def test_without_a_suite_a_patch_is_untested(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED}, suite=None)
    assert verdict == Verdict(
        kind="untested", reason="No tests were found in the repository, and none are configured."
    )


async def test_without_pytest_a_patch_is_untested_with_advice(open_verifier) -> None:
    suite = Suite(command="python3 -S -m pytest", runner="pytest", command_reason="")
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED}, suite)
    assert verdict.kind == "untested"
    assert verdict.reason == (
        "The tests could not be run, with the patch or without it: pytest is not installed in the sandbox; "
        "add it to the image, or set `test_command` in .github/patchwright.toml."
    )
