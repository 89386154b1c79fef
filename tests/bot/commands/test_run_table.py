"""The state of a run in the list of runs."""

from pathlib import Path

import pytest

from patchwright.bot.commands.run_table import _describe_unstarted
from patchwright.bot.run_summary import find_log_state, label_state, summarize_log
from patchwright.resolver.domain import Rejected, Reported, RunId, Verdict
from patchwright.resolver.events import AgentStopped, Event, JobCompleted, Message, VerificationCompleted
from patchwright.resolver.run_events import RunResumed
from patchwright.resolver.run_log import FileRunLog
from tests.bot.commands.test_inspect_commands import patchwright, store_log
from tests.resolver.sample_runs import RUN, run_of, started

VERDICT = VerificationCompleted(verdict=Verdict(kind="unproven"))
SENT_BACK = Message(text="No test shows the fix.", source="verification")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "stopped"),
        ([VERDICT], "completed"),
        ([VERDICT, SENT_BACK], "stopped"),
        ([VERDICT, SENT_BACK, VERDICT], "completed"),
        ([AgentStopped(reason="error", detail="No reply."), VERDICT], "failed"),
        ([AgentStopped(reason="stuck", detail="The same call, 3 times."), VERDICT], "stopped"),
        ([AgentStopped(reason="limit", detail="100 steps."), VERDICT], "completed"),
    ],
)
def test_a_run_that_continues_after_its_verdict_is_not_completed(events: list[Event], state: str) -> None:
    beginning = started(url="")
    trajectory = run_of(beginning, *events)
    assert find_log_state(trajectory) == state
    # The list in the terminal and the dashboard use the same words.
    assert summarize_log(beginning.job, trajectory, is_running=False).state == state
    # A server's run is not complete before its result is published.
    assert find_log_state(run_of(started(), *events)) == "stopped"


def test_a_run_without_a_start_says_what_became_of_it() -> None:
    rejected = JobCompleted(outcome=Rejected(explanation="The issue is closed."))
    for event, about in (
        (rejected, "The issue is closed."),
        (RunResumed(run=RunId("other")), "continued other"),
    ):
        assert _describe_unstarted(run_of(event)) == about


def test_the_list_has_the_dashboards_words_for_states(tmp_path: Path) -> None:
    question = AgentStopped(reason="input_required", detail="Which?")
    store_log(tmp_path, RUN, run_of(started(url=""), question))
    for arguments in (
        ("runs",),
        ("runs", "--state", "input required"),
        ("runs", "--state", "input_required"),
    ):
        assert f"{RUN}  {label_state('input_required')}  " in patchwright(tmp_path, *arguments).stdout
    assert RUN not in patchwright(tmp_path, "runs", "--state", "failed").stdout


def test_the_answer_to_a_question_has_no_verdict(tmp_path: Path) -> None:
    question = started().job.model_copy(update={"command": "explain why?"})
    answered = Reported(url="https://forge.test/c1", branch=None, reason="The question is answered.")
    run = run_of(started().model_copy(update={"job": question}), JobCompleted(outcome=answered))
    store_log(tmp_path, RUN, run)
    listed = patchwright(tmp_path, "runs").stdout
    assert "reported" in listed and "no change" not in listed and "empty" not in listed
    assert summarize_log(question, run, is_running=False).verdict == ""


def test_a_view_says_whether_a_run_without_an_end_is_in_progress(tmp_path: Path) -> None:
    store_log(tmp_path, RUN, run_of(started()))
    file = tmp_path / "runs" / RUN / "view.html"
    patchwright(tmp_path, "view", RUN)
    assert "The run stopped before it finished." in file.read_text()
    log = FileRunLog(file.parent / "events.jsonl")  # holds the lock, as a process that works on the run
    patchwright(tmp_path, "view", RUN)
    log.close()
    assert "The run is in progress." in file.read_text()


def test_without_any_run_no_name_is_looked_for(tmp_path: Path) -> None:
    shown = patchwright(tmp_path, "view", "last")
    assert (
        shown.returncode == 2
        and f"There is no run `last`: there are no runs in {tmp_path}/runs yet." in shown.stderr
    )
