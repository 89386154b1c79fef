"""Lists the tests that explain a verdict, and the patch's other changes to tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.domain import Verdict

MAX_LISTED_TESTS = 200  # per list

Tone = Literal["bad", "doubt", "good"]


@dataclass(frozen=True, slots=True)
class ChangedTest:
    """A test whose outcome changed or is doubtful."""

    name: str
    before: str
    after: str
    explanation: str
    tone: Tone


def list_changed_tests(verdict: Verdict) -> tuple[ChangedTest, ...]:
    """Returns the tests that explain the verdict, failures first."""
    before = verdict.before.results if verdict.before else {}
    after = verdict.after.results if verdict.after else {}
    # A new or changed test is listed with the result that the patch's version has at base.
    patch_tests_before = {
        name: f"{status} ({'changed' if name in before else 'new'} test)"
        for name, status in verdict.new_tests_at_base.items()
    }
    own: Mapping[str, str] = before
    both = {**before, **patch_tests_before}
    lists: tuple[tuple[str, tuple[str, ...], Mapping[str, str], Tone], ...] = (
        ("fails now", verdict.pass_to_fail, own, "bad"),
        ("from the patch, and fails", verdict.patch_tests_failing, both, "bad"),
        ("fails in its base version", verdict.modified_tests_failing, own, "bad"),
        ("still fails in its base version", verdict.replaced_failing_tests, own, "bad"),
        ("no longer run", verdict.missing, own, "bad"),
        ("flaky", verdict.flaky, own, "doubt"),
        ("passes now", verdict.fail_to_pass, both, "good"),
    )
    return tuple(
        ChangedTest(name, results.get(name, "absent"), after.get(name, "absent"), explanation, tone)
        for explanation, names, results, tone in lists
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
