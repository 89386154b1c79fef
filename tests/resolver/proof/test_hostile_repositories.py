"""Repositories and patches that are hard to verify: each gets a correct verdict with a reason."""

from pathlib import Path

import pytest

from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.run_comparison import find_fail_to_pass
from patchwright.resolver.proof.verification import verify_patch
from patchwright.resolver.suites.execution import TestSetup
from patchwright.resolver.suites.suite import Suite, Suites
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, PYTEST, TESTS

pytestmark = [pytest.mark.real_start, pytest.mark.slow]

NETWORK = "import socket\n\n\ndef test_host():\n    socket.create_connection(('127.0.0.1', 1), timeout=1)\n"


async def test_a_patch_that_only_touches_tests_fixes_nothing(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        verdict = await verifier.verdict({"tests/test_new.py": "def test_new():\n    assert True\n"})
    assert (verdict.kind, verdict.reason) == (
        "unproven",
        "The patch changes only tests, so no test can show that the code is fixed.",
    )
    assert verdict.after and verdict.after.passed_count == 2


async def test_a_patch_to_test_config_is_not_a_patch_to_tests(open_verifier) -> None:
    """As in pytest's own `pluggy`: the code under test would run the tests."""
    async with open_verifier(
        {"src/pluggy/calc.py": BUG, "tests/test_new.py": "def test_new():\n    pass\n"}
    ) as verifier:
        verdict = await verifier.verdict({"src/pluggy/calc.py": FIXED})
    assert (verdict.kind, verdict.reverted_test_config, verdict.reason) == (
        "unproven",
        ("src/pluggy/calc.py",),
        "The tests were run without the change to src/pluggy/calc.py, which can affect how tests run.",
    )


async def test_a_suite_with_missing_dependencies_fails_on_both_sides(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_net.py": NETWORK}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.reason) == (
        "unproven",
        "All tests fail without the patch and with it: they may need something that the sandbox lacks, "
        "such as a network or a service.",
    )


async def test_tests_that_already_failed_do_not_block_a_patch(open_verifier) -> None:
    async with open_verifier(
        {"calc.py": BUG, "tests/test_calc.py": FAILING, "tests/test_net.py": NETWORK}
    ) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",))
    assert verdict.after and verdict.after.failed_tests == ("tests/test_net.py::test_host",)


async def test_a_test_that_passes_by_chance_is_no_fix(open_verifier, tmp_path) -> None:
    # Fails the first time and passes from then on, whatever the code is.
    chance = (
        f"import os\n\n\ndef test_chance():\n    mark = {str(tmp_path / 'mark')!r}\n    there = os.path.exists(mark)\n"
        "    open(mark, 'w').close()\n    assert there\n"
    )
    async with open_verifier(
        {"calc.py": BUG, "tests/test_calc.py": TESTS, "tests/test_chance.py": chance}
    ) as verifier:
        patch = await verifier.patch({"calc.py": FIXED})
        verdict = await verifier.judged(patch)
        assert verdict.before and verdict.after
        assert find_fail_to_pass(verdict.before, verdict.after) == (
            "tests/test_chance.py::test_chance",
        )  # according to a single run
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ())
    assert verdict.flaky == ("tests/test_chance.py::test_chance",)


async def test_an_endless_suite_is_untested_and_leaves_no_processes(open_verifier, tmp_path) -> None:
    start = tmp_path / "begun"
    forks = (
        "import subprocess, time\n\n\ndef test_it():\n    for _ in range(20):\n"
        f"        print(subprocess.Popen(['sleep', '300']).pid, file=open({str(start)!r}, 'a'))\n"
        "    time.sleep(300)\n"
    )
    async with open_verifier({"calc.py": BUG, "tests/test_forks.py": forks}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED}, seconds=5)
    assert (verdict.kind, verdict.reason) == (
        "untested",
        "The tests could not be run, with the patch or without it: the tests did not finish within 5 s and were "
        "killed.",
    )
    numbers = start.read_text().split()
    assert numbers
    assert not [number for number in numbers if _sleeps(number)]


def _sleeps(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes() == b"sleep\x00300\x00"
    except FileNotFoundError:
        return False


async def test_a_suite_that_prints_a_gigabyte_is_verified_by_its_report(open_verifier) -> None:
    loud = (
        f"import os\n{FAILING}\n\ndef test_loud():\n"
        "    for _ in range(1000):\n        os.write(1, b'x' * 1_000_000)\n"
    )
    suite = PYTEST.model_copy(update={"command": "python3 -m pytest -s"})
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": loud}) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED}, suite, seconds=120)
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",))
    assert verdict.after and len(verdict.after.output) <= 20_000


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            "<testsuite tests='0' failures='0'><testcase name='a'/></testsuite>",
            "claims 0 tests, but contains 1",
        ),
        (
            "<!DOCTYPE b [<!ENTITY a 'aaaa'><!ENTITY c '&a;&a;&a;'>]><testsuite><testcase name='&c;'/></testsuite>",
            "uses XML features that reports do not need",
        ),
        ("<testsuite><testcase name='a'>", "is not valid XML"),
        ("", "is not valid XML"),
    ],
)
async def test_a_forged_or_hostile_report_is_rejected(open_verifier, report: str, expected: str) -> None:
    suite = Suite(command='cat "$(cat which)" > "$PATCHWRIGHT_REPORT"', runner="junit", command_reason="")
    honest = "<testsuite><testcase name='a'/></testsuite>"
    async with open_verifier({"which": "honest.xml", "honest.xml": honest, "other.xml": report}) as verifier:
        verdict = await verifier.verdict({"which": "other.xml"}, suite)
    assert verdict.kind in ("regressed", "unproven") and expected in verdict.reason


@pytest.mark.parametrize(
    ("name", "harmless", "telling"),
    [
        ("pyproject.toml", '[project]\nversion = "2"\n', '[tool.pytest.ini_options]\naddopts = "-q"\n'),
        ("setup.cfg", "[metadata]\nversion = 2\n", "[tool:pytest]\naddopts = -q\n"),
        ("package.json", '{"version": "2", "scripts": {"test": "jest"}}', '{"scripts": {"test": "true"}}'),
    ],
)
async def test_a_manifest_is_reverted_only_if_its_test_config_changed(
    open_verifier, name: str, harmless: str, telling: str
) -> None:
    base = {
        "pyproject.toml": '[project]\nversion = "1"\n',
        "setup.cfg": "[metadata]\nversion = 1\n",
        "package.json": '{"version": "1", "scripts": {"test": "jest"}}',
    }[name]
    output = "tests/test_told.py", f"def test_told():\n    assert '2' in open({name!r}).read()\n"
    async with open_verifier(
        {"calc.py": BUG, name: base, "tests/test_calc.py": FAILING, output[0]: output[1]}
    ) as verifier:
        fixes = await verifier.verdict({"calc.py": FIXED, name: harmless})
        tells = await verifier.verdict({"calc.py": FIXED, name: telling})
    assert (fixes.kind, fixes.reverted_test_config) == ("fixed", ())
    assert "tests/test_told.py::test_told" in fixes.fail_to_pass
    assert (tells.kind, tells.reverted_test_config) == ("conditional", (name,))
    (condition,) = tells.conditions
    assert (condition.kind, condition.path) == ("changed_test_config", name)
    assert condition.diff.startswith("-[project]" if name == "pyproject.toml" else "-")


async def test_files_started_by_a_test_command_are_reverted(open_verifier) -> None:
    suite = Suite(command="sh script/check.sh", runner="none", command_reason="")
    async with open_verifier({"code": "1", "script/check.sh": 'exit "$(cat code)"\n'}) as verifier:
        fixed = await verifier.verdict({"code": "0"}, suite)
        faked = await verifier.verdict({"script/check.sh": "exit 0\n"}, suite)
    assert (fixed.kind, faked.kind, faked.reverted_test_config) == (
        "fixed",
        "unproven",
        ("script/check.sh",),
    )


async def test_weakened_tests_are_reported(open_verifier) -> None:
    tests = FAILING + "\n\ndef test_more():\n    assert one()\n    assert one() == 1\n"
    weaker = tests.replace("    assert one() == 1\n", "    pass\n", 1).replace(
        "def test_more", "@pytest.mark.skip\ndef test_more"
    )
    files = {"calc.py": BUG, "tests/test_calc.py": tests, "tests/test_old.py": "def test_old():\n    pass\n"}
    async with open_verifier(files) as verifier:
        verdict = await verifier.verdict(
            {
                "calc.py": FIXED,
                "tests/test_calc.py": f"import pytest\n{weaker}",
                "tests/test_old.py": None,
            }
        )
    assert verdict.kind == "conditional"
    assert [(each.kind, each.path) for each in verdict.conditions] == [
        ("tests_not_run", "tests/test_calc.py"),
        ("deleted_test_file", "tests/test_old.py"),
        ("weakened_tests", "tests/test_calc.py"),
    ]
    assert verdict.deleted_test_files == ("tests/test_old.py",)
    assert verdict.weakened_tests == ("tests/test_calc.py has 2 checks fewer in test_one and 1 skip more.",)
    assert verdict.missing == ("tests/test_calc.py::test_more", "tests/test_old.py::test_old")


async def test_a_modified_test_is_run_in_both_versions(open_verifier) -> None:
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        verdict = await verifier.verdict(
            {
                "calc.py": FIXED.replace("return 1", "return 2"),
                "tests/test_calc.py": FAILING.replace("one() == 1", "one() == 2"),
            }
        )
    assert (verdict.kind, verdict.modified_tests_failing) == (
        "conditional",
        ("tests/test_calc.py::test_one",),
    )
    (condition,) = verdict.conditions
    assert condition.sentence == (
        "`test_one` now expects something else; its old version fails with this change."
    )
    assert (condition.path, condition.lines) == ("tests/test_calc.py", (5, 5))
    assert condition.diff == "-    assert one() == 1\n+    assert one() == 2"


async def test_a_suite_that_collects_no_canary_tests_is_verified_without_them(open_verifier) -> None:
    options = "[pytest]\npython_files = check_*.py\npython_functions = check_*\n"
    checks = FAILING.replace("def test_", "def check_")
    async with open_verifier(
        {"calc.py": BUG, "pytest.ini": options, "tests/check_calc.py": checks}
    ) as verifier:
        verdict = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/check_calc.py::check_add",))


async def test_canary_tests_are_left_out_only_if_the_base_version_of_a_test_file_breaks_them(
    open_verifier,
) -> None:
    """As in dill, where a test file closes a file of pytest."""
    breaking = "import pathlib\n\npathlib.Path.read_bytes = None\n\n\n"
    with_a_sum = TESTS + "\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
    patch = {"calc.py": FIXED, "tests/test_calc.py": breaking + with_a_sum}
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": breaking + TESTS}) as verifier:
        verdict = await verifier.verdict(patch)
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": TESTS}) as verifier:
        broken_by_patch = await verifier.verdict(patch)
        in_new_file = await verifier.verdict({"calc.py": FIXED, "tests/test_b.py": breaking + with_a_sum})
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_sum",))
    for each in (broken_by_patch, in_new_file):
        assert (each.kind, each.fail_to_pass) == ("unproven", ()), each.reason
        assert "canary tests" in each.reason


async def test_a_failing_test_that_is_rewritten_shows_no_fix(open_verifier) -> None:
    """The code stays wrong; the test that fails at base is made to agree with it, and to fail at base."""
    rewritten = FAILING.replace("add(1, 2) == 3", "add(1, 2) == -1.0 and isinstance(add(1, 2), float)")
    async with open_verifier({"calc.py": BUG, "tests/test_calc.py": FAILING}) as verifier:
        patch = {"calc.py": BUG.replace("a - b", "float(a - b)"), "tests/test_calc.py": rewritten}
        verdict = await verifier.verdict(patch)
        honest = await verifier.verdict({"calc.py": FIXED})
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ())
    assert verdict.replaced_failing_tests == ("tests/test_calc.py::test_add",)
    assert verdict.reason == (
        "The original version of `test_add` still fails with the patch, and no other test shows the fix."
    )
    assert (honest.kind, honest.fail_to_pass) == ("fixed", ("tests/test_calc.py::test_add",))


async def test_a_fix_that_extends_a_helper_of_the_tests_is_conditional(open_verifier) -> None:
    helper = "def check(found, expected):\n    assert found == expected\n"
    tests = FAILING.replace("from calc", "from testutils.checks import check\nfrom calc")
    new = "from calc import one\nfrom testutils.checks import check_int\n\n\ndef test_int():\n    check_int(one())\n"
    extended = helper + "\n\ndef check_int(found):\n    assert isinstance(found, int)\n"
    files = {"calc.py": BUG, "testutils/checks.py": helper, "tests/test_calc.py": tests}
    async with open_verifier(files) as verifier:
        verdict = await verifier.verdict(
            {"calc.py": FIXED, "testutils/checks.py": extended, "tests/test_int.py": new}
        )
    assert (verdict.kind, verdict.fail_to_pass) == ("conditional", ("tests/test_calc.py::test_add",)), verdict
    assert [condition.path for condition in verdict.conditions] == ["testutils/checks.py"]


async def test_several_suites_are_verified_together(open_verifier) -> None:
    a, b = (PYTEST.model_copy(update={"directory": name}) for name in ("a", "b"))
    files = {f"{name}/calc.py": BUG for name in "ab"} | {f"{name}/test_calc.py": FAILING for name in "ab"}
    async with (
        open_verifier(files) as verifier,
        BaselineRuns(verifier.workspace, verifier.sandboxes, "proof", 60) as bases,
    ):
        suites = Suites(all=(a, b), primary=a)
        both = await verifier.patch({"a/calc.py": FIXED, "b/calc.py": FIXED.replace("return 1", "return 2")})
        one = await verifier.patch({"b/calc.py": FIXED})
        setup = TestSetup(suites, verifier.sandboxes, "proof", 60)
        broken = await verify_patch(verifier.workspace, both, setup, bases)
        fixes = await verify_patch(verifier.workspace, one, setup, bases)
    assert (broken.kind, broken.pass_to_fail) == ("regressed", ("b/test_calc.py::test_one",))
    assert set(broken.fail_to_pass) == {"a/test_calc.py::test_add", "b/test_calc.py::test_add"}
    assert broken.before and len(broken.before.results) == 4
    assert (fixes.kind, fixes.fail_to_pass) == ("fixed", ("b/test_calc.py::test_add",))
    assert fixes.before and len(fixes.before.results) == 2  # the other package's tests are not relevant
