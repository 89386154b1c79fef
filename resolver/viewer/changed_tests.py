"""Lists the tests that explain a verdict, and the patch's other changes to tests."""

from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.domain import Verdict

MAX_LISTED_TESTS = 200  # per list


@dataclass(frozen=True, slots=True)
class ChangedTest:
    """A test whose outcome changed or is doubtful."""

    name: str
    before: str
    after: str
    explanation: str
    tone: Literal["bad", "doubt", "good"]


def list_changed_tests(verdict: Verdict) -> tuple[ChangedTest, ...]:
    """Returns the tests that explain the verdict, failures first."""
    before = verdict.before.results if verdict.before else {}
    after = verdict.after.results if verdict.after else {}
    lists: tuple[tuple[str, tuple[str, ...], Literal["bad", "doubt", "good"]], ...] = (
        ("fails now", verdict.pass_to_fail, "bad"),
        ("is new, and fails", verdict.patch_tests_failing, "bad"),
        ("fails in its base version", verdict.modified_tests_failing, "bad"),
        ("still fails in its base version", verdict.replaced_failing_tests, "bad"),
        ("no longer run", verdict.missing, "bad"),
        ("flaky", verdict.flaky, "doubt"),
        ("passes now", verdict.fail_to_pass, "good"),
    )
    # `fail_to_pass` contains a new test only if the test also ran on the old code and failed there.
    before_if_new = {"passes now": "new; fails on the old code"}
    return tuple(
        ChangedTest(
            name,
            before.get(name, before_if_new.get(explanation, "absent")),
            after.get(name, "absent"),
            explanation,
            tone,
        )
        for explanation, names, tone in lists
        for name in names
    )


def build_remarks(verdict: Verdict) -> list[str]:
    """Returns the conditions of the verdict and the review, one sentence each."""
    remarks = [condition.sentence for condition in verdict.conditions][:MAX_LISTED_TESTS]
    if review := verdict.review:
        decision = "would accept the change" if review.approved else "would not accept the change"
        remarks.append(
            f"A second model ({review.model}), whose opinion does not affect the verdict, {decision}: {review.reasons}"
        )
    return remarks
