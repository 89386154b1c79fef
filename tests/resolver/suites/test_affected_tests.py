"""The tests that a change may affect run first, and their failures are reported before the rest runs."""

from pathlib import Path

import pytest

from patchwright.resolver.domain import Verdict
from patchwright.resolver.git.workspaces import FileChange
from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.verification import verify_patch
from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.affected_tests import find_affected_tests
from patchwright.resolver.suites.execution import TestSetup
from patchwright.resolver.suites.suite import Suites
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, PYTEST

pytestmark = pytest.mark.slow

OTHERS = {f"tests/test_other_{n}.py": "def test_it():\n    assert True\n" for n in range(4)}
REPOSITORY = {"calc.py": BUG, "tests/test_calc.py": FAILING, **OTHERS}


def change_files(*paths: str) -> tuple[FileChange, ...]:
    return tuple(
        FileChange(path=path, mode="100644", old_mode="100644", size=1, old_size=1) for path in paths
    )


@pytest.mark.parametrize(
    ("files", "change", "brought", "found"),
    [
        (("a/test_calc.py", "a/test_b.py", "c/test_c.py"), "calc.py", (), ["a/test_calc.py"]),
        (("calc.test.js", "b.test.js", "c.test.js"), "src/calc.js", (), ["calc.test.js"]),
        (("t/CalcTest.java", "t/BTest.java", "t/CTest.java"), "src/Calc.java", (), ["t/CalcTest.java"]),
        (("calc_test.go", "b/b_test.go", "c/c_test.go"), "calc.go", (), ["calc_test.go"]),
        (("test_b.py", "test_uses.py", "test_c.py"), "calc.py", (), ["test_uses.py"]),
        (("test_b.py", "test_c.py", "test_d.py"), "calc.py", ("test_d.py",), ["test_d.py"]),
        (
            ("lib/test_b.py", "test_c.py", "test_d.py"),
            "lib/calc.py",
            (),
            ["lib/test_b.py"],
        ),  # in the same directory
        (("test_calc.py", "test_c.py", "test_d.py"), "calc/__init__.py", (), ["test_calc.py"]),
        (("test_calc.py", "test_uses.py"), "calc.py", (), []),  # all tests are affected: nothing to gain
        (("test_b.py", "test_c.py", "test_d.py"), "README.md", (), []),
    ],
)
async def test_affected_tests_are_found_by_file_name_and_content(
    open_verifier, files, change, brought, found
) -> None:
    contents = {path: "from calc import add\n" if "uses" in path else "" for path in files}
    if "lib/" not in change and not found:
        contents = {
            f"deep/{path}" if change == "README.md" else path: text for path, text in contents.items()
        }
    runners: dict[str, RunnerName] = {".js": "jest", ".go": "go", ".java": "maven"}
    suite = PYTEST.model_copy(update={"runner": runners.get(Path(change).suffix, "pytest")})
    async with open_verifier(contents) as verifier:
        result = await find_affected_tests(
            verifier.workspace, change_files(change), frozenset(brought), suite
        )
    assert list(result) == found


class PartialVerdictListener:
    def __init__(self, enough: bool) -> None:
        self.verdicts: list[Verdict] = []
        self._enough = enough

    async def __call__(self, verdict: Verdict) -> bool:
        self.verdicts.append(verdict)
        return self._enough


async def test_a_regression_is_reported_before_the_whole_suite_runs(open_verifier, tmp_path) -> None:
    ran = tmp_path / "ran"
    slow = f"def test_it():\n    open({str(ran)!r}, 'a').write('x')\n"
    async with open_verifier({**REPOSITORY, "tests/test_other_1.py": slow}) as verifier:
        breaks = await verifier.patch({"calc.py": FIXED.replace("return 1", "return 2")})
        listener = PartialVerdictListener(enough=True)
        verdict = await verifier.judged(breaks, listener=listener)
        assert listener.verdicts == [verdict]
        assert (verdict.kind, verdict.partial) == ("regressed", True)
        assert verdict.pass_to_fail == ("tests/test_calc.py::test_one",)
        assert (
            verdict.before
            and verdict.after
            and len(verdict.before.results) == len(verdict.after.results) == 2
        )
        assert ran.read_text() == "x"  # at base, and not again


async def test_the_whole_suite_decides_the_verdict(open_verifier) -> None:
    unnamed = "def test_it():\n    assert __import__('ca' 'lc').add(5, 0) == 5\n"
    async with open_verifier({**REPOSITORY, "tests/test_other_2.py": unnamed}) as verifier:
        listener = PartialVerdictListener(enough=False)
        patch = await verifier.patch({"calc.py": FIXED.replace("a + b", "3")})
        verdict = await verifier.judged(patch, listener=listener)
    (first,) = listener.verdicts
    assert (first.kind, first.partial) == ("fixed", True)
    assert (verdict.kind, verdict.partial) == ("regressed", False)
    assert verdict.pass_to_fail == ("tests/test_other_2.py::test_it",)


async def test_a_failing_reproduction_is_reported_first(open_verifier) -> None:
    async with open_verifier(REPOSITORY) as verifier:
        listener = PartialVerdictListener(enough=True)
        patch = await verifier.patch(
            {
                "calc.py": FIXED.replace("a + b", "b - a"),
                "tests/test_new.py": "from calc import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n",
            }
        )
        verdict = await verifier.judged(patch, listener=listener)
    assert (verdict.kind, verdict.partial) == ("unproven", True)
    assert verdict.patch_tests_failing == ("tests/test_new.py::test_sum",)
    assert verdict.reason == "1 test from the patch failed with it, twice: `test_sum`."
    assert verdict.after and "assert 1 == 3" in verdict.after.output


async def test_a_fast_agent_does_not_wait_for_the_baseline(open_verifier) -> None:
    slow = "import time\n\n\ndef test_it():\n    time.sleep(30)\n"
    async with open_verifier({**REPOSITORY, "tests/test_other_0.py": slow}) as verifier:
        listener = PartialVerdictListener(enough=True)
        patch = await verifier.patch({"calc.py": FIXED})
        async with BaselineRuns(verifier.workspace, verifier.sandboxes, "proof", 60) as bases:
            under_way = bases.start(PYTEST)
            suites = Suites(all=(PYTEST,), primary=PYTEST)
            setup = TestSetup(suites, verifier.sandboxes, "proof", 60)
            verdict = await verify_patch(verifier.workspace, patch, setup, bases, listener)
            assert not under_way.done()
    assert (verdict.kind, verdict.partial) == ("fixed", True)
