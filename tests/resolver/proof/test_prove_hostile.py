"""Repositories and patches that make a proof hard: each gets an honest verdict, and a sentence that says why."""

from pathlib import Path

import pytest

from resolver.proof.baseline import Bases
from resolver.suites.suite import Suite, Suites
from resolver.validate import prove
from resolver.verdict import mended
from tests.resolver.proofs import BUG, FAILING, MENDED, PYTEST, TESTS

NETWORK = "import socket\n\n\ndef test_host():\n    socket.create_connection(('127.0.0.1', 1), timeout=1)\n"


async def test_a_patch_that_only_touches_tests_mends_nothing(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS}) as proof:
        verdict = await proof.verdict({"tests/test_new.py": "def test_new():\n    assert True\n"})
    assert (verdict.kind, verdict.reason) == (
        "unproven",
        "The patch changes tests alone, so no test can show a mend of the code.",
    )
    assert verdict.after and verdict.after.passed == 2


async def test_a_patch_to_what_runs_the_tests_is_not_called_one_to_tests(proven) -> None:
    """As in the repository of pytest's own `pluggy`: what it is to prove would run the proof."""
    async with proven(
        {"src/pluggy/calc.py": BUG, "tests/test_new.py": "def test_new():\n    pass\n"}
    ) as proof:
        verdict = await proof.verdict({"src/pluggy/calc.py": MENDED})
    assert (verdict.kind, verdict.set_aside, verdict.reason) == (
        "unproven",
        ("src/pluggy/calc.py",),
        "The tests were run without the change to src/pluggy/calc.py, which can decide how tests run.",
    )


async def test_a_suite_that_needs_what_is_not_there_fails_on_both_sides_and_is_called_so(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_net.py": NETWORK}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED})
    assert (verdict.kind, verdict.reason) == (
        "unproven",
        "All tests fail without the patch and with it: they may need what the sandbox has not, such as a network "
        "or a service.",
    )


@pytest.mark.slow
async def test_what_failed_before_and_still_does_stands_in_nobody_s_way(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING, "tests/test_net.py": NETWORK}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED})
    assert (verdict.kind, verdict.newly_passing) == ("fixed", ("tests/test_calc.py::test_add",))
    assert verdict.after and verdict.after.failing == ("tests/test_net.py::test_host",)


async def test_a_test_that_passes_by_chance_is_no_mend(proven, tmp_path) -> None:
    # It fails the first time and passes from then on, whatever the code is.
    chance = (
        f"import os\n\n\ndef test_chance():\n    mark = {str(tmp_path / 'mark')!r}\n    there = os.path.exists(mark)\n"
        "    open(mark, 'w').close()\n    assert there\n"
    )
    async with proven({"calc.py": BUG, "tests/test_calc.py": TESTS, "tests/test_chance.py": chance}) as proof:
        patch = await proof.patch({"calc.py": MENDED})
        verdict = await proof.judged(patch)
        assert verdict.before and verdict.after
        assert mended(verdict.before, verdict.after) == (
            "tests/test_chance.py::test_chance",
        )  # one run says so
    assert (verdict.kind, verdict.newly_passing) == ("unproven", ())
    assert verdict.flaky == ("tests/test_chance.py::test_chance",)


@pytest.mark.slow
async def test_a_suite_that_never_ends_is_untested_and_nothing_of_it_is_left(proven, tmp_path) -> None:
    begun = tmp_path / "begun"
    forks = (
        "import subprocess, time\n\n\ndef test_it():\n    for _ in range(20):\n"
        f"        print(subprocess.Popen(['sleep', '300']).pid, file=open({str(begun)!r}, 'a'))\n"
        "    time.sleep(300)\n"
    )
    async with proven({"calc.py": BUG, "tests/test_forks.py": forks}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED}, seconds=5)
    assert (verdict.kind, verdict.reason) == (
        "untested",
        "The tests could not be run, with the patch or without it: they did not end within 5 s and were killed.",
    )
    numbers = begun.read_text().split()
    assert numbers
    assert not [number for number in numbers if _sleeps(number)]


def _sleeps(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes() == b"sleep\x00300\x00"
    except FileNotFoundError:
        return False


@pytest.mark.slow
async def test_a_suite_that_prints_a_gigabyte_is_judged_by_its_report(proven) -> None:
    loud = (
        f"import os\n{FAILING}\n\ndef test_loud():\n"
        "    for _ in range(1000):\n        os.write(1, b'x' * 1_000_000)\n"
    )
    suite = PYTEST.model_copy(update={"command": "python3 -m pytest -s"})
    async with proven({"calc.py": BUG, "tests/test_calc.py": loud}) as proof:
        verdict = await proof.verdict({"calc.py": MENDED}, suite, seconds=120)
    assert (verdict.kind, verdict.newly_passing) == ("fixed", ("tests/test_calc.py::test_add",))
    assert verdict.after and len(verdict.after.output) <= 20_000


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("<testsuite tests='9' failures='0'><testcase name='a'/></testsuite>", "claims 9 tests and shows 1"),
        (
            "<!DOCTYPE b [<!ENTITY a 'aaaa'><!ENTITY c '&a;&a;&a;'>]><testsuite><testcase name='&c;'/></testsuite>",
            "uses what a report does not need",
        ),
        ("<testsuite><testcase name='a'>", "is not XML that can be read"),
        ("", "is not XML that can be read"),
    ],
)
async def test_a_report_that_lies_or_bites_is_none(proven, report: str, said: str) -> None:
    suite = Suite(command='cat "$(cat which)" > "$PATCHWRIGHT_REPORT"', report="junit", why="")
    honest = "<testsuite><testcase name='a'/></testsuite>"
    async with proven({"which": "honest.xml", "honest.xml": honest, "other.xml": report}) as proof:
        verdict = await proof.verdict({"which": "other.xml"}, suite)
    assert verdict.kind in ("regressed", "unproven") and said in verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "harmless", "telling"),
    [
        ("pyproject.toml", '[project]\nversion = "2"\n', '[tool.pytest.ini_options]\naddopts = "-q"\n'),
        ("setup.cfg", "[metadata]\nversion = 2\n", "[tool:pytest]\naddopts = -q\n"),
        ("package.json", '{"version": "2", "scripts": {"test": "jest"}}', '{"scripts": {"test": "true"}}'),
    ],
)
async def test_a_manifest_is_as_at_base_only_when_it_says_otherwise_how_tests_run(
    proven, name: str, harmless: str, telling: str
) -> None:
    base = {
        "pyproject.toml": '[project]\nversion = "1"\n',
        "setup.cfg": "[metadata]\nversion = 1\n",
        "package.json": '{"version": "1", "scripts": {"test": "jest"}}',
    }[name]
    told = "tests/test_told.py", f"def test_told():\n    assert '2' in open({name!r}).read()\n"
    async with proven({"calc.py": BUG, name: base, "tests/test_calc.py": FAILING, told[0]: told[1]}) as proof:
        mends = await proof.verdict({"calc.py": MENDED, name: harmless})
        tells = await proof.verdict({"calc.py": MENDED, name: telling})
    assert (mends.kind, mends.set_aside) == ("fixed", ())
    assert "tests/test_told.py::test_told" in mends.newly_passing
    assert (tells.kind, tells.set_aside) == ("unproven", (name,))
    assert tells.reason == (
        f"Tests show the mend, but the patch also changes {name}, which can decide how tests run."
    )


async def test_what_a_test_command_starts_is_as_at_base(proven) -> None:
    suite = Suite(command="sh script/check.sh", report="none", why="")
    async with proven({"code": "1", "script/check.sh": 'exit "$(cat code)"\n'}) as proof:
        mended = await proof.verdict({"code": "0"}, suite)
        faked = await proof.verdict({"script/check.sh": "exit 0\n"}, suite)
    assert (mended.kind, faked.kind, faked.set_aside) == ("fixed", "unproven", ("script/check.sh",))


@pytest.mark.slow
async def test_what_a_patch_takes_from_tests_is_told(proven) -> None:
    tests = FAILING + "\n\ndef test_more():\n    assert one()\n    assert one() == 1\n"
    weaker = tests.replace("    assert one() == 1\n", "    pass\n", 1).replace(
        "def test_more", "@pytest.mark.skip\ndef test_more"
    )
    files = {"calc.py": BUG, "tests/test_calc.py": tests, "tests/test_old.py": "def test_old():\n    pass\n"}
    async with proven(files) as proof:
        verdict = await proof.verdict(
            {
                "calc.py": MENDED,
                "tests/test_calc.py": f"import pytest\n{weaker}",
                "tests/test_old.py": None,
            }
        )
    assert verdict.kind == "unproven"
    assert verdict.deleted == ("tests/test_old.py",)
    assert verdict.weakened == ("tests/test_calc.py has 2 checks fewer in test_one and 1 skip more.",)
    assert verdict.missing == ("tests/test_calc.py::test_more", "tests/test_old.py::test_old")


@pytest.mark.slow
async def test_a_test_that_was_changed_with_the_code_is_shown_with_both_its_versions(proven) -> None:
    async with proven({"calc.py": BUG, "tests/test_calc.py": FAILING}) as proof:
        verdict = await proof.verdict(
            {
                "calc.py": MENDED.replace("return 1", "return 2"),
                "tests/test_calc.py": FAILING.replace("one() == 1", "one() == 2"),
            }
        )
    assert (verdict.kind, verdict.rewritten) == ("unproven", ("tests/test_calc.py::test_one",))
    assert verdict.reason == (
        "1 test passed without the patch and failed with it, as written before the patch changed the tests."
    )


@pytest.mark.slow
async def test_several_suites_are_judged_together(proven) -> None:
    a, b = (PYTEST.model_copy(update={"directory": name}) for name in ("a", "b"))
    files = {f"{name}/calc.py": BUG for name in "ab"} | {f"{name}/test_calc.py": FAILING for name in "ab"}
    async with proven(files) as proof, Bases(proof.workspace, proof.sandboxes, "proof", 60) as bases:
        suites = Suites(all=(a, b), likely=a)
        both = await proof.patch({"a/calc.py": MENDED, "b/calc.py": MENDED.replace("return 1", "return 2")})
        one = await proof.patch({"b/calc.py": MENDED})
        broken = await prove(proof.workspace, both, suites, proof.sandboxes, "proof", 60, bases)
        mends = await prove(proof.workspace, one, suites, proof.sandboxes, "proof", 60, bases)
    assert (broken.kind, broken.newly_failing) == ("regressed", ("b/test_calc.py::test_one",))
    assert set(broken.newly_passing) == {"a/test_calc.py::test_add", "b/test_calc.py::test_add"}
    assert broken.before and len(broken.before.results) == 4
    assert (mends.kind, mends.newly_passing) == ("fixed", ("b/test_calc.py::test_add",))
    assert mends.before and len(mends.before.results) == 2  # the other package's tests have nothing to say
