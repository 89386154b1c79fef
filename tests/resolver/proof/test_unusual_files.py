"""Changed files without which the tests do not show the fix, although nothing says that tests use them."""

import pytest

from patchwright.resolver.domain import Patch, TestRun, TestStatus, Verdict, VerdictKind
from patchwright.resolver.proof.unusual_files import find_unusual_files
from patchwright.resolver.suites.suite import Suite
from tests.resolver.patch_verifier import BUG, FIXED, PYTEST, VerifierFactory

TEST = "tests/test_calc.py::test_add"
MAKE = Suite(command="make test", runner="none", command_reason="")
CHANGED: dict[str, str | None] = {
    "calc.py": FIXED, "lib/new.py": "ONE = 1\n", "data.json": "{}", "NOTES.MD": "", "guide.rst": "", "a.adoc": "",
    "VIEW.VUE": "b", "pyproject.toml": "",
}  # fmt: skip


class Runs:
    """Replaces the test run without the unusual files, and records how it was started."""

    def __init__(self, result: TestStatus | None = "passed", exit_code: int = 0, problem: str | None = None):
        self.started: list[tuple[str, tuple[str, ...]]] = []
        self.patches: list[bytes] = []
        self._run = TestRun(
            command="", command_reason="", results={TEST: result} if result else {}, exit_code=exit_code,
            seconds=1, output="", problem=problem,
        )  # fmt: skip

    async def __call__(self, role: str, patch: Patch, files: tuple[str, ...]) -> TestRun:
        self.started.append((role, files))
        self.patches.append(patch.diff)
        return self._run


async def find(
    open_verifier: VerifierFactory,
    runs: Runs,
    suite: Suite = PYTEST,
    kind: VerdictKind = "fixed",
    shown_by: tuple[str, ...] = (TEST,),
    partial: bool = False,
    files: dict[str, str | None] = CHANGED,
) -> tuple[str, ...]:
    verdict = Verdict(kind=kind, fail_to_pass=shown_by, partial=partial, reason="")
    async with open_verifier({"calc.py": BUG, "VIEW.VUE": "a"}) as verifier:
        patch = await verifier.patch(files)
        changes = await verifier.workspace.list_changes(patch)
        return await find_unusual_files(verifier.workspace, patch, changes, suite, verdict, runs)


async def test_new_files_and_data_without_which_the_test_fails_are_unusual(
    open_verifier: VerifierFactory,
) -> None:
    runs = Runs("failed", 1)
    assert await find(open_verifier, runs) == ("data.json", "lib/new.py")
    assert runs.started == [("without-unusual-files", ("tests/test_calc.py",))]
    assert b"lib/new.py" not in runs.patches[0] and b"data.json" not in runs.patches[0]
    assert b"calc.py" in runs.patches[0] and b"guide.rst" in runs.patches[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "suite", "shown_by", "is_shown"),
    [
        (Runs(), PYTEST, (TEST,), True),
        (Runs("passed", 1), PYTEST, (TEST,), True),  # another test of the same file may fail
        (Runs(None), PYTEST, (TEST,), False),
        (Runs("passed", 0, "the run timed out"), PYTEST, (TEST,), False),
        (Runs(None, 0), MAKE, (), True),
        (Runs(None, 2), MAKE, (), False),
    ],
)
async def test_files_are_not_unusual_if_the_tests_show_the_fix_without_them(
    open_verifier: VerifierFactory, runs: Runs, suite: Suite, shown_by: tuple[str, ...], is_shown: bool
) -> None:
    found = await find(open_verifier, runs, suite, shown_by=shown_by)
    assert found == (() if is_shown else ("data.json", "lib/new.py"))


async def test_a_deleted_module_is_unusual(open_verifier: VerifierFactory) -> None:
    runs = Runs("failed", 1)
    assert await find(open_verifier, runs, files={"calc.py": None, "VIEW.VUE": "b"}) == ("calc.py",)


async def test_a_changed_document_with_the_doctest_that_shows_the_fix_is_unusual(
    open_verifier: VerifierFactory,
) -> None:
    runs = Runs("failed", 1)
    files: dict[str, str | None] = {"docs/guide.rst": ">>> 1\n1\n", "calc.py": FIXED}
    found = await find(open_verifier, runs, shown_by=("docs/guide.rst::guide.rst",), files=files)
    assert found == ("docs/guide.rst",)
    assert runs.started == [("without-unusual-files", ("docs/guide.rst",))]


@pytest.mark.slow
async def test_a_suite_that_cannot_select_files_runs_completely(open_verifier: VerifierFactory) -> None:
    runs = Runs("failed", 1)
    await find(open_verifier, runs, MAKE)
    await find(open_verifier, runs, shown_by=("::test_add",))  # a test id without its file
    assert runs.started == [("without-unusual-files", ())] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "partial", "files", "count"),
    [
        ("conditional", False, CHANGED, 1),
        ("unproven", False, CHANGED, 0),
        ("regressed", False, CHANGED, 0),
        ("fixed", True, CHANGED, 0),
        ("fixed", False, {"calc.py": FIXED}, 0),
    ],
)
async def test_the_run_without_unusual_files_happens_only_if_it_can_change_the_verdict(
    open_verifier: VerifierFactory,
    kind: VerdictKind,
    partial: bool,
    files: dict[str, str | None],
    count: int,
) -> None:
    runs = Runs("failed", 1)
    found = await find(open_verifier, runs, kind=kind, partial=partial, files=files)
    assert (len(runs.started), bool(found)) == (count, bool(count))
