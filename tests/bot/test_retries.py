"""What is tried again by itself, and what waits for somebody to mend it."""

import pytest

import bot.errors
import resolver.errors
import runtime.errors
from bot.worker import GaveUp, may_be_retried
from tests.bot.observe.test_faults import errors_of

PASSES = {
    "Crowded",
    "EngineStopped",
    "ForgeError",
    "Interrupted",
    "LogTaken",
    "MachineFull",
    "ModelBusy",
    "ModelError",
    "ProofUnavailable",
    "QueueDown",
    "RateLimited",
    "SandboxLost",
    "Unanswered",
}
"""What may be over by itself; all else somebody must mend, or would end alike."""
KINDS = [kind for module in (bot.errors, resolver.errors, runtime.errors) for kind in errors_of(module)]


def an_error(kind: type[Exception]) -> Exception:
    try:
        return kind("no")
    except TypeError:
        return kind.__new__(kind)  # it carries more; whether it passes does not depend on that


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_says_whether_another_try_makes_sense(kind: type[Exception]) -> None:
    assert may_be_retried(an_error(kind)) == (kind.__name__ in PASSES)


def test_what_nobody_thought_of_is_not_tried_again() -> None:
    assert {kind.__name__ for kind in KINDS} >= PASSES
    assert not any(may_be_retried(error) for error in (GaveUp("never ends"), ZeroDivisionError(), OSError()))
