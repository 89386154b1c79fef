"""The list of tests that explain a verdict."""

from patchwright.resolver.viewer.changed_tests import list_changed_tests
from tests.resolver.sample_runs import verdict

NEW, CHANGED = "tests/test_new.py::test_it", "tests/test_calc.py::test_double"


def test_new_and_changed_tests_are_listed_with_their_results_on_the_old_code() -> None:
    fixed = verdict()
    assert fixed.after and fixed.before and fixed.before.results[CHANGED] == "passed"
    fixed = fixed.model_copy(
        update={
            "fail_to_pass": (NEW, CHANGED),
            "new_tests_at_base": {NEW: "failed", CHANGED: "error"},
            "after": fixed.after.model_copy(update={"results": fixed.after.results | {NEW: "passed"}}),
        }
    )
    listed = [(test.name, test.before, test.after, test.explanation) for test in list_changed_tests(fixed)]
    assert listed == [
        (NEW, "failed (new test)", "passed", "passes now"),
        (CHANGED, "error (changed test)", "passed", "passes now"),
    ]


def test_a_base_version_that_the_patch_breaks_is_listed_with_its_own_result() -> None:
    changed = verdict().model_copy(
        update={
            "fail_to_pass": (CHANGED,),
            "modified_tests_failing": (CHANGED,),
            "new_tests_at_base": {CHANGED: "failed"},
        }
    )
    listed = [(test.before, test.explanation) for test in list_changed_tests(changed)]
    assert listed == [("passed", "fails in its base version"), ("failed (changed test)", "passes now")]
