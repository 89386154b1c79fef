"""Exit codes that no test explains, suites whose files cannot be loaded, and counts as the runner gives them."""

from patchwright.resolver.domain import Patch, TestRun
from patchwright.resolver.proof.evidence import Evidence
from patchwright.resolver.proof.verdict import decide_verdict
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.filters import compare_outcomes, format_test_run
from patchwright.resolver.suites.missing_modules import MissingModule, find_missing_modules
from patchwright.resolver.suites.reports.text_reports import parse_tap
from tests.resolver.publishing.test_reply_texts import STORY, THREAD

PATCH = Patch(base_sha="0" * 40, diff=b"diff --git a/a b/a\n")


def run(exit_code: int = 0, output: str = "", **results: str) -> TestRun:
    ids = {f"t.py::{test}": result for test, result in results.items()}
    return TestRun(command="c", results=ids, exit_code=exit_code, seconds=1, output=output)  # type: ignore[arg-type]


def test_a_command_that_fails_only_with_the_patch_is_a_condition_of_its_fix() -> None:
    before, after = run(1, a="failed", b="passed"), run(2, a="passed", b="passed")
    verdict = decide_verdict(PATCH, Evidence(before, after))
    assert (verdict.kind, [condition.kind for condition in verdict.conditions]) == (
        "conditional",
        ["failing_command"],
    )
    assert (
        verdict.conditions[0].sentence
        == "The test command exits with 2 with this change, although no test fails."
    )
    assert decide_verdict(PATCH, Evidence(before, run(0, a="passed", b="passed"))).kind == "fixed"


def test_a_command_that_also_fails_without_the_patch_is_no_condition_but_is_told() -> None:
    before, after = run(2, a="skipped", b="passed"), run(2, a="passed", b="passed")
    verdict = decide_verdict(PATCH, Evidence(before, after))
    assert verdict.conditions == ()
    text = reply_texts.render_pull_request_body(THREAD, verdict, STORY)
    assert "ended with exit code 2 both before and after the change, although no test failed." in text


def test_a_suite_whose_files_cannot_be_loaded_is_untested_and_names_the_module() -> None:
    output = "E   ModuleNotFoundError: No module named 'dateutil'\n"
    unloaded = run(2, output).model_copy(update={"results": {"t.py": "error", "u.py": "error"}})
    verdict = decide_verdict(PATCH, Evidence(unloaded, unloaded))
    assert verdict.kind == "untested"
    assert verdict.reason.startswith(
        "No test file could be loaded, with the patch or without it: the Python module `dateutil` is not installed in "
    )
    assert find_missing_modules(unloaded.output) == (MissingModule(language="python", name="dateutil"),)
    assert decide_verdict(PATCH, Evidence(unloaded, run(a="passed"))).kind != "untested"


def test_counts_are_the_runners_own() -> None:
    before = run(1, a="failed", b="skipped", c="passed", d="skipped").model_copy(
        update={"outcomes": {"t.py::b": "xfailed", "t.py::c": "xpassed"}, "retries": {"t.py::a": 2}}
    )
    assert format_test_run(before) == "1 failed, 1 xpassed, 1 xfailed, 1 skipped, 2 retries"
    unloaded = run(2).model_copy(update={"results": {"t.py": "error"}})
    assert format_test_run(unloaded) == "1 error"
    assert compare_outcomes(unloaded, unloaded) == [("errors", 1, 1)]
    assert compare_outcomes(before, run(a="passed"))[:2] == [("passed", 0, 1), ("failed", 1, 0)]


KILLED = """\
# Subtest: test/a.js
    # Subtest: one
        ok 1 - x
        1..1
    ok 1 - one
    # Subtest: two
        # Subtest: inner
            ok 1 - y
    # test count(1) != plan(3)
not ok 1 - test/a.js
  ---
  exitCode: null
  signal: SIGKILL
  ...
# Subtest: test/b.js
    ok 1 - z
    1..1
ok 2 - test/b.js
1..2
"""


def test_a_killed_file_does_not_spoil_a_tap_report() -> None:
    report = parse_tap(KILLED.encode(), "/w")
    assert report.results == {
        "test/a.js::one": "passed",
        "test/a.js": "error",
        "test/b.js::z": "passed",
    }
    assert report.unfinished_files == ("test/a.js",)
    plan = "    1..2\n    ok 1 - a\nnot ok 1 - b\n"  # a test that ended before its plan has failed
    assert parse_tap(plan.encode(), "/w").results == {"b": "failed"}
