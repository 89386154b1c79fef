"""Results at base that are known, although the changed test file cannot be imported there."""

from patchwright.resolver.domain import TestRun, TestStatus
from patchwright.resolver.proof.unchanged_tests import restore_known_results
from tests.resolver.patch_verifier import VerifierFactory

OLD = """\
def test_kept(): pass
def test_changed(): assert 1
def test_removed(): pass
async def test_async(): pass
def test_ran(): pass
class TestA:
    class TestB:
        def test_kept(self): pass
    def test_changed(self): assert 1
"""
NEW = (
    OLD.replace("assert 1", "assert 2").replace("test_removed", "test_added").replace("(): pass", "():  pass")
)


def run(results: dict[str, TestStatus]) -> TestRun:
    return TestRun(command="", command_reason="", results=results, exit_code=1, seconds=1, output="")


async def test_unchanged_tests_that_did_not_run_keep_their_known_results(
    open_verifier: VerifierFactory,
) -> None:
    known: dict[str, TestStatus] = {
        "test_a.py::test_kept[x-[y]]": "passed",
        "test_a.py::test_async": "failed",
        "test_a.py::TestA::TestB::test_kept": "skipped",
        "a.test.js::test_kept": "passed",  # only Python's tests are compared
    }
    others: dict[str, TestStatus] = {
        "test_a.py::test_changed": "passed",
        "test_a.py::test_removed": "passed",
        "test_a.py::TestA::test_changed": "passed",
        "test_a.py::test_ran": "passed",
        "test_other.py::test_kept": "passed",  # not a file of the patch
        "test_broken.py::test_kept": "passed",
        "test_deleted.py::test_kept": "passed",
    }
    at_base = run({"test_a.py::test_ran": "failed", "test_a.py": "error"})
    names = ("test_a.py", "test_broken.py", "test_deleted.py", "a.test.js")
    async with open_verifier(dict.fromkeys((*names, "test_other.py"), OLD)) as verifier:
        patch = await verifier.patch(
            {"test_a.py": NEW, "test_broken.py": "(", "test_deleted.py": None, "a.test.js": NEW}
        )
        restored = await restore_known_results(
            verifier.workspace, patch, at_base, run({**known, **others}), names
        )
    assert restored == run({**at_base.results, **known})
