"""The state of a run in the list of runs."""

import pytest

from patchwright.bot.commands.run_table import _state_of_log
from patchwright.resolver.domain import Verdict
from patchwright.resolver.events import Event, Message, VerificationCompleted
from tests.resolver.sample_runs import run_of, started

VERDICT = VerificationCompleted(verdict=Verdict(kind="unproven"))
SENT_BACK = Message(text="No test shows the fix.", source="verification")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "stopped"),
        ([VERDICT], "completed"),
        ([VERDICT, SENT_BACK], "stopped"),
        ([VERDICT, SENT_BACK, VERDICT], "completed"),
    ],
)
def test_a_run_that_continues_after_its_verdict_is_not_completed(events: list[Event], state: str) -> None:
    assert _state_of_log(run_of(started(), *events)) == state
