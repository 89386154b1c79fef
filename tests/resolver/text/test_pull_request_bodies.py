"""What the body of a pull request says above the fold, and what it says only below."""

from typing import Any

import pytest

from patchwright.resolver.activity.finish_checks import NOT_DONE, NOT_MARKED, NOT_REPRODUCED
from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import (
    Issue,
    ModelReview,
    Usage,
    User,
    Verdict,
)
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.pull_request.pr_context import SUMMARY_SECTION
from patchwright.resolver.rendering.template_renderer import render, render_reply
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.output_text import clip_line
from tests.resolver.pull_requests import pull
from tests.resolver.text.test_reply_lengths import (
    RENDERED,
    above_the_fold,
    add_conditions,
    demo_finish,
    demo_summary,
    demo_verdict,
)


def render_body(
    verdict: Verdict,
    finish: Finish | None = None,
    title: str = "t",
    *,
    has_reproduced: bool = True,
    **changes: Any,
) -> str:
    summary = Summary(
        finish=finish, stop_detail="The limit was reached.", steps=(), usage=Usage(), model="m", sandbox="docker",
        has_reproduced=has_reproduced,
    )  # fmt: skip
    author = User(id=1, login="a")
    issue = Issue(number=1, title=title, body="", author=author, trusted=False, open=True, url="")
    context = reply_texts.PullRequestRemarks(**changes)
    return reply_texts.render_pull_request_body(issue, verdict, summary, context)


def test_what_the_agent_leaves_to_a_person_is_asked_first() -> None:
    points = ("Is one day right? I chose it.", "Old @links stop working.")
    body = render_body(demo_verdict(), demo_finish().model_copy(update={"to_check": points}), ci="CI waits.")
    assert (
        "**Please check, then merge:**\n- Is one day right?\n- Old @\u200blinks stop working.\n- CI waits.\n"
        in body
    )


TWO = ("a.py::test_a", "a.py::test_b")


@pytest.mark.parametrize(
    ("update", "summary", "lines"),
    [
        (
            {"modified_tests_failing": TWO},
            "changes what 2 existing tests expect; please check these.",
            [f"`test_{name}` is removed; it fails with this change." for name in "ab"],
        ),
        (
            {"replaced_failing_tests": TWO[:1]},
            "changes what 1 existing test expects; please check this.",
            ["`test_a` is removed; it still fails with this change."],
        ),
        (
            {"missing": TWO},
            "removes or skips 2 existing tests; please check this.",
            ["`test_a` and `test_b` passed before and are not run now."],
        ),
        (
            {
                "missing": TWO[:1],
                "deleted_test_files": ("a.py",),
                "weakened_tests": ("b.py has 1 check fewer.",),
            },
            "deletes 1 test file and weakens the tests in 1 file; please check these.",
            ["`a.py` is deleted.", "b.py has 1 check fewer."],
        ),
        (
            {"added_packages": ("attrs",)},
            "adds dependencies; please check this.",
            ["The tests with the change ran with a package that it adds: `attrs`."],
        ),
        (
            {"reverted_test_config": ("tox.ini",)},
            "changes the test configuration; please check this.",
            ["The repository's tests ran without the change to `tox.ini`."],
        ),
    ],
)
def test_a_conditional_fix_says_what_a_person_has_to_check(
    update: dict[str, tuple[str, ...]], summary: str, lines: list[str]
) -> None:
    verdict = add_conditions(demo_verdict(), kind="conditional", **update)
    body = render_body(verdict, demo_finish())
    proof = "3 new tests fail without this change and pass with it"
    question = "the new dependencies" if "added_packages" in update else "the changes to the tests"
    assert body.startswith(f"**Fixed, if you agree to {question}:** {proof}.\n")
    comment = render_reply(
        "published.md.j2", pull=pull(number=2), verdict=verdict, summary=demo_summary(), already_open=False
    )
    assert f"**Fixed:** {proof}. It also {summary}\n" in comment
    assert "**Please check:**\n" + "".join(f"- {line}\n" for line in lines) in body
    request = f"Do you agree to {question}? If so, mark this draft as ready and merge it."
    assert f"\n\n**To accept it:** {request}\n\n" in body


def test_a_fix_with_a_new_version_says_what_a_person_has_to_agree_to() -> None:
    sentence = "`test_version` passes with `1.1` as the installed version; with `1.0`, it fails."
    conditions = (Condition(kind="installed_version", sentence=sentence, tests=("test_version",)),)
    verdict = demo_verdict().model_copy(update={"kind": "conditional", "conditions": conditions})
    body = render_body(verdict, demo_finish())
    proof = "3 new tests fail without this change and pass with it"
    assert body.startswith(f"**Fixed, if you agree to the new version:** {proof}.\n")
    assert f"- {sentence}\n" in body


def test_more_than_five_conditions_are_counted_above_the_fold_and_listed_below() -> None:
    tests = tuple(f"a.py::test_{number}" for number in range(7))
    body = render_body(add_conditions(demo_verdict(), kind="conditional", modified_tests_failing=tests))
    assert "- 2 more changes to what the tests check; the test evidence lists them.\n" in above_the_fold(body)
    assert "`test_5`" not in above_the_fold(body) and "- `test_6` is removed" in body


def test_a_draft_without_evidence_asks_whether_it_fixes_the_issue() -> None:
    body = render_body(
        demo_verdict().model_copy(update={"kind": "unproven", "fail_to_pass": ()}), demo_finish()
    )
    question = "Does this fix the issue? If so, mark this draft as ready and merge it."
    assert f"\n\n**To accept it:** {question}\n\n" in body


def test_a_run_without_a_change_says_so_once() -> None:
    assert above_the_fold(RENDERED["no_change"]).count("change") == 1


def test_a_shortened_report_is_complete_below_the_fold() -> None:
    finish = demo_finish()
    text = RENDERED["pull_request"]
    assert finish.change not in above_the_fold(text) and finish.change in text


def test_a_run_without_a_report_asks_whether_the_change_is_complete() -> None:
    body = render_body(demo_verdict())
    line = "- The agent stopped before it described its work. Check that the change is complete."
    assert f"\n\n**Please check, then merge:**\n{line}\n\n**To ask for changes,** mention" in body


LEFT_OUT = demo_finish().model_copy(
    update={"to_check": (f"{NOT_DONE} the audit log, which needs a database.",)}
)


def test_a_merge_closes_the_issue_only_if_nothing_was_left_out() -> None:
    assert render_body(demo_verdict()).endswith("\nFixes #1\n")
    changes: tuple[dict[str, Any], ...] = (
        {"finish": LEFT_OUT},
        {"excluded_changes": ("a.yml runs in CI.",)},
    )
    for partial in changes:
        assert render_body(demo_verdict(), **partial).endswith("\nPart of #1\n")


def test_a_proven_fix_is_not_said_to_be_unproven() -> None:
    points: dict[str, Any] = {"open_points": (NOT_REPRODUCED,)}
    assert NOT_REPRODUCED not in render_body(demo_verdict(), **points)
    unproven = demo_verdict().model_copy(update={"kind": "unproven"})
    assert NOT_REPRODUCED in render_body(unproven, **points)
    assert NOT_REPRODUCED not in render_body(unproven, files=("docs/usage.md",), **points)


def test_an_untested_draft_asks_to_try_the_change() -> None:
    body = render_body(demo_verdict().model_copy(update={"kind": "untested", "fail_to_pass": ()}))
    assert "**To accept it:** Try the change yourself: does it fix the issue? If so, mark" in body


def test_the_objection_of_the_second_model_is_quoted() -> None:
    review = ModelReview(model="m", approved=False, reasons="It breaks `a`. And more.")
    body = render_body(demo_verdict().model_copy(update={"review": review}))
    assert "- A second model (`m`) does **not** approve this change: It breaks `a`.\n" in body


def test_each_fact_about_the_tests_is_told_once_above_the_fold() -> None:
    """The verdict and the list below it do not say the same."""
    skips = add_conditions(
        demo_verdict(), kind="conditional", missing=("b.py::test_b",), weakened_tests=("b.py has 1 skip more.",),
        after=demo_verdict().after.model_copy(update={"results": {"b.py::test_b": "skipped"}}),  # type: ignore[union-attr]
    )  # fmt: skip
    body = above_the_fold(render_body(skips, demo_finish()))
    assert (body.count("skip"), body.count("test_b")) == (1, 1)
    deleted = add_conditions(
        demo_verdict(), kind="conditional", modified_tests_failing=TWO, deleted_test_files=("a.py",)
    )
    body = above_the_fold(render_body(deleted, demo_finish()))
    line = "- `a.py` is deleted; its tests `test_a` and `test_b` fail with this change.\n"
    assert line in body and (body.count("a.py"), body.count("delete"), body.count("remove")) == (1, 1, 0)
    reason = "No test shows the fix, and 1 test that passed before is not run now: `test_a`."
    unproven = add_conditions(demo_verdict(), kind="unproven", missing=TWO[:1], reason=reason)
    body = above_the_fold(render_body(unproven, demo_finish()))
    assert body.startswith("**Unproven:** No test shows the fix.\n") and body.count("test_a") == 1


@pytest.mark.parametrize("more", ["b.py has 2 skips more.", "b.py has 1 check fewer and 1 skip more."])
def test_a_skip_that_no_named_test_explains_is_told(more: str) -> None:
    after = demo_verdict().after.model_copy(update={"results": {"b.py::test_b": "skipped"}})  # type: ignore[union-attr]
    verdict = add_conditions(
        demo_verdict(), kind="conditional", missing=("b.py::test_b",), weakened_tests=(more,), after=after
    )
    assert f"- {more}\n" in above_the_fold(render_body(verdict, demo_finish()))


def test_several_parameters_of_a_changed_test_are_told_in_the_plural() -> None:
    cases = ("a.py::test_a[1]", "a.py::test_a[2]")
    verdict = demo_verdict()
    after = verdict.after.model_copy(update={"results": dict.fromkeys(cases, "passed")})  # type: ignore[union-attr]
    body = render_body(add_conditions(verdict, kind="conditional", modified_tests_failing=cases, after=after))
    line = "`test_a[1]` and `test_a[2]` now expect something else; their old versions fail with this change."
    assert f"- {line}\n" in above_the_fold(body)


def test_the_agents_own_points_crowd_out_no_note_about_the_change() -> None:
    finish = demo_finish().model_copy(update={"to_check": tuple(f"Point {number}." for number in range(10))})
    notes = tuple(f"{number}.py is executable now." for number in range(12))
    body = render_body(demo_verdict(), finish, notes=notes, open_points=("A.", "B.", "C."))
    assert [note for note in notes if f"- {note}\n" not in above_the_fold(body)] == []


@pytest.mark.parametrize(
    ("has_tests", "partial", "result"),
    [
        (True, False, "All tests still pass."),
        (True, True, "The tests that it may affect still pass."),
        (False, False, "There is nothing to test."),
    ],
)
def test_a_change_to_documentation_is_called_so(result: str, *, has_tests: bool, partial: bool) -> None:
    run = demo_verdict().before if has_tests else None
    verdict = Verdict(
        kind="unproven" if has_tests else "untested", documentation_only=True, partial=partial, before=run,
        after=run, reason="The patch changes only documentation, so there is nothing to test.",
    )  # fmt: skip
    body = render_body(verdict, demo_finish(), files=("README.md",))
    assert body.startswith(f"**Documentation only.** {result}\n")
    assert "**To accept it:** Read the change: does it resolve the issue? If so, mark this draft" in body
    assert "ntested" not in body and "could not run" not in body and "did not reproduce" not in body
    comment = render_reply(
        "published.md.j2", pull=pull(number=2), verdict=verdict, summary=demo_summary(), already_open=False
    )
    assert comment.startswith(f"I opened pull request #2. **Documentation only.** {result}\n")
    assert (
        clip_line(render("replies/check_title.md.j2", verdict=verdict), 200)
        == f"Documentation only. {result}"
    )


def test_the_advice_for_a_failed_setup_is_folded() -> None:
    verdict = Verdict(kind="untested", reason="The tests could not be run: no pytest; add it to the image.")
    body = render_body(verdict, demo_finish())
    assert body.startswith(
        "**Untested:** nothing proves this change. The tests could not be run: no pytest.\n"
    )
    assert "add it to the image" not in above_the_fold(body) and "add it to the image." in body


def test_an_addition_says_what_was_missing() -> None:
    body = render_body(demo_verdict(), demo_finish(), title="Support fractions")
    assert "**What was missing:** show()" in body and SUMMARY_SECTION.search(body)


def test_a_proven_fix_without_conditions_asks_only_for_a_review() -> None:
    request = "**Please check:** nothing in particular. Review the change and merge it."
    assert request in render_body(demo_verdict(), demo_finish())
    assert request not in render_body(
        demo_verdict(), demo_finish(), open_points=("The change log is missing.",)
    )
    assert request not in render_body(demo_verdict().model_copy(update={"kind": "unproven"}), demo_finish())


def test_a_fix_that_only_its_own_tests_show_asks_to_check_these_tests() -> None:
    new = {"test_new": "failed"}
    verdict = demo_verdict().model_copy(update={"fail_to_pass": ("test_new",), "new_tests_at_base": new})
    point = "**Please check, then merge:** do the new tests show the problem of the issue? The agent did not"
    body = render_body(verdict, demo_finish(), has_reproduced=False)
    assert point in above_the_fold(body) and "nothing in particular" not in body
    assert point not in render_body(verdict, demo_finish(), has_reproduced=True)
    existing = verdict.model_copy(update={"new_tests_at_base": {}})
    assert point not in render_body(existing, demo_finish(), has_reproduced=False)


def test_a_fix_that_leaves_out_a_part_of_the_issue_says_so_first() -> None:
    body = render_body(demo_verdict(), LEFT_OUT)
    assert body.startswith("**Fixed in part:** ") and "Part of #" in body
    assert f"- {LEFT_OUT.to_check[0]}\n" in above_the_fold(body)


def test_a_point_that_the_agent_did_not_mark_as_done_is_not_said_to_be_left_out() -> None:
    body = render_body(demo_verdict(), demo_finish(), open_points=(f'{NOT_MARKED}"The audit log".',))
    assert body.startswith("**Fixed:** ") and body.endswith("\nFixes #1\n") and NOT_DONE not in body
    assert '- Not marked as done by the agent: "The audit log".\n' in above_the_fold(body)


def test_every_pull_request_with_results_says_who_ran_the_tests() -> None:
    said = "Patchwright ran the repository's tests before and after the change, each time in a clean sandbox"
    assert said in render_body(demo_verdict(), demo_finish())
    assert said in render_body(demo_verdict())  # the agent reached a limit before it described its work
    assert said not in render_body(demo_verdict().model_copy(update={"kind": "untested"}))
    assert said not in render_body(Verdict(kind="unproven", documentation_only=True), demo_finish())
