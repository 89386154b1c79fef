"""Which errors are retried automatically."""

import pytest

import patchwright.bot.errors
import patchwright.resolver.errors
import patchwright.runtime.errors
from patchwright.bot.job_runner import JobAbandoned, is_retryable
from tests.bot.test_faults import errors_of

PASSES = {
    "Preempted",
    "EngineStopped",
    "ForgeError",
    "Interrupted",
    "LogLocked",
    "InsufficientResources",
    "ModelBusy",
    "ModelConnectionFailed",
    "ModelError",
    "NotAModel",
    "VerificationUnavailable",
    "QueueDown",
    "RateLimited",
    "RemoteUnavailable",
    "SandboxLost",
    "ForgeUnavailable",
}
"""Errors that may disappear. All others recur until a person changes something."""
KINDS = [
    kind
    for module in (patchwright.bot.errors, patchwright.resolver.errors, patchwright.runtime.errors)
    for kind in errors_of(module)
]


def an_error(kind: type[Exception]) -> Exception:
    try:
        return kind("no")
    except TypeError:
        return kind.__new__(kind)  # Its constructor has more parameters; they do not affect the retry.


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_says_whether_a_retry_may_help(kind: type[Exception]) -> None:
    assert is_retryable(an_error(kind)) == (kind.__name__ in PASSES)


def test_an_unexpected_error_is_not_retried() -> None:
    assert {kind.__name__ for kind in KINDS} >= PASSES
    assert not any(
        is_retryable(error) for error in (JobAbandoned("never ends"), ZeroDivisionError(), OSError())
    )
