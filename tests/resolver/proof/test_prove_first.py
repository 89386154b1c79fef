"""The tests that a change may affect come first, and what is seen there need not wait for the rest."""

import pytest

from resolver.domain import Verdict
from resolver.proof.affected import affected
from resolver.proof.baseline import Bases
from resolver.suites.suite import Suites
from resolver.validate import prove
from resolver.workspace import Change
from tests.resolver.proofs import BUG, FAILING, MENDED, PYTEST

OTHERS = {f"tests/test_other_{n}.py": "def test_it():\n    assert True\n" for n in range(4)}
REPOSITORY = {"calc.py": BUG, "tests/test_calc.py": FAILING, **OTHERS}


def changed(*paths: str) -> tuple[Change, ...]:
    return tuple(Change(path=path, mode="100644", old_mode="100644", size=1, old_size=1) for path in paths)


@pytest.mark.parametrize(
    ("files", "change", "brought", "found"),
    [
        (("a/test_calc.py", "a/test_b.py", "c/test_c.py"), "calc.py", (), ["a/test_calc.py"]),
        (("calc.test.js", "b.test.js", "c.test.js"), "src/calc.js", (), ["calc.test.js"]),
        (("t/CalcTest.java", "t/BTest.java", "t/CTest.java"), "src/Calc.java", (), ["t/CalcTest.java"]),
        (("calc_test.go", "b/b_test.go", "c/c_test.go"), "calc.go", (), ["calc_test.go"]),
        (("test_b.py", "test_uses.py", "test_c.py"), "calc.py", (), ["test_uses.py"]),
        (("test_b.py", "test_c.py", "test_d.py"), "calc.py", ("test_d.py",), ["test_d.py"]),
        (("lib/test_b.py", "test_c.py", "test_d.py"), "lib/calc.py", (), ["lib/test_b.py"]),  # beside it
        (("test_calc.py", "test_c.py", "test_d.py"), "calc/__init__.py", (), ["test_calc.py"]),
        (("test_calc.py", "test_uses.py"), "calc.py", (), []),  # all of them: nothing to gain
        (("test_b.py", "test_c.py", "test_d.py"), "README.md", (), []),
    ],
)
async def test_tests_are_found_by_what_they_are_called_and_what_they_name(
    proven, files, change, brought, found
) -> None:
    contents = {path: "from calc import add\n" if "uses" in path else "" for path in files}
    if "lib/" not in change and not found:
        contents = {
            f"deep/{path}" if change == "README.md" else path: text for path, text in contents.items()
        }
    async with proven(contents) as proof:
        seen = await affected(proof.workspace, changed(change), frozenset(brought), PYTEST)
    assert list(seen) == found


class Listener:
    def __init__(self, enough: bool) -> None:
        self.heard: list[Verdict] = []
        self._enough = enough

    async def __call__(self, verdict: Verdict) -> bool:
        self.heard.append(verdict)
        return self._enough


async def test_a_regression_is_told_before_the_whole_suite_is_run(proven, tmp_path) -> None:
    ran = tmp_path / "ran"
    slow = f"def test_it():\n    open({str(ran)!r}, 'a').write('x')\n"
    async with proven({**REPOSITORY, "tests/test_other_1.py": slow}) as proof:
        breaks = await proof.patch({"calc.py": MENDED.replace("return 1", "return 2")})
        listener = Listener(enough=True)
        verdict = await proof.judged(breaks, heard=listener)
        assert listener.heard == [verdict]
        assert (verdict.kind, verdict.partial) == ("regressed", True)
        assert verdict.newly_failing == ("tests/test_calc.py::test_one",)
        assert (
            verdict.before
            and verdict.after
            and len(verdict.before.results) == len(verdict.after.results) == 2
        )
        assert ran.read_text() == "x"  # at base, and not again


@pytest.mark.slow
async def test_the_whole_suite_has_the_last_word(proven) -> None:
    unnamed = "def test_it():\n    assert __import__('ca' 'lc').add(5, 0) == 5\n"
    async with proven({**REPOSITORY, "tests/test_other_2.py": unnamed}) as proof:
        listener = Listener(enough=False)
        patch = await proof.patch({"calc.py": MENDED.replace("a + b", "3")})
        verdict = await proof.judged(patch, heard=listener)
    (first,) = listener.heard
    assert (first.kind, first.partial) == ("fixed", True)
    assert (verdict.kind, verdict.partial) == ("regressed", False)
    assert verdict.newly_failing == ("tests/test_other_2.py::test_it",)


async def test_a_reproduction_that_still_fails_is_told_first(proven) -> None:
    async with proven(REPOSITORY) as proof:
        listener = Listener(enough=True)
        patch = await proof.patch(
            {
                "calc.py": MENDED.replace("a + b", "b - a"),
                "tests/test_new.py": "from calc import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n",
            }
        )
        verdict = await proof.judged(patch, heard=listener)
    assert (verdict.kind, verdict.partial) == ("unproven", True)
    assert verdict.still_failing == ("tests/test_new.py::test_sum",)
    assert verdict.reason == "1 test that the patch brings failed with it, twice."
    assert verdict.after and "assert 1 == 3" in verdict.after.output


@pytest.mark.slow
async def test_an_agent_that_is_faster_than_the_suite_need_not_wait_for_it(proven) -> None:
    slow = "import time\n\n\ndef test_it():\n    time.sleep(30)\n"
    async with proven({**REPOSITORY, "tests/test_other_0.py": slow}) as proof:
        listener = Listener(enough=True)
        patch = await proof.patch({"calc.py": MENDED})
        async with Bases(proof.workspace, proof.sandboxes, "proof", 60) as bases:
            under_way = bases.begin(PYTEST)
            suites = Suites(all=(PYTEST,), likely=PYTEST)
            verdict = await prove(
                proof.workspace, patch, suites, proof.sandboxes, "proof", 60, bases, listener
            )
            assert not under_way.done()
    assert (verdict.kind, verdict.partial) == ("fixed", True)
