"""Calls of a conversation wait for approval; the policy may change while the agent works."""

from pathlib import Path

import pytest

from patchwright import Conversation, UsageError, default_agent
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.events import Entry, ToolResult
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure, ShellResult
from tests.sdk.model_endpoint import serve_model

LOOK = RunShell(command="ls")
PUSH = RunShell(command="git push origin main; touch pushed")
AGAIN = RunShell(command="git push other main; touch again")
DONE = RecordedTurn("", Finish(cause="A.", change="B.", testing="C."))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_a_risky_call_waits_for_approval(project: Path) -> None:
    turns = (RecordedTurn("", LOOK), RecordedTurn("", PUSH), RecordedTurn("", AGAIN), DONE)
    with (
        serve_model(*turns) as (llm, _),
        Conversation(default_agent(llm, confirm="risky"), project) as conversation,
    ):
        with pytest.raises(UsageError, match="No call waits for approval"):
            conversation.approve()
        conversation.send_message("Publish it.")
        state = conversation.run()
        assert (state.status, state.call) == ("waiting_for_confirmation", f"run_shell: {PUSH.command}")
        assert conversation.run() == state, "nothing runs without a decision"
        conversation.send_message("@agent approve")
        assert conversation.run().call == state.call, "a message is no decision"
        assert not (project / "pushed").exists()
        conversation.approve(all_like_this=True)
        assert conversation.run().status == "finished"
        assert (project / "pushed").exists() and (project / "again").exists()


def test_a_waiting_call_survives_the_process_and_can_be_rejected(project: Path) -> None:
    turns = (RecordedTurn("", PUSH), DONE)
    with serve_model(*turns) as (llm, endpoint):
        agent = default_agent(llm, confirm="always")
        with Conversation(agent, project, id="kept") as conversation:
            conversation.send_message("Publish it.")
            state = conversation.run()
        with Conversation(agent, project, id="kept") as again:
            assert again.state == state and state.status == "waiting_for_confirmation"
            again.reject("Ask me first.")
            assert again.run().status == "finished"
            (result,) = [e.event.observation for e in again.events if isinstance(e.event, ToolResult)][:1]
    assert isinstance(result, ActionFailure) and "The person rejects it" in result.message
    assert "> Ask me first." in str(endpoint.requests[-1]) and not (project / "pushed").exists()


def test_a_policy_that_changes_during_the_run_decides_about_the_next_call(project: Path) -> None:
    def relax(entry: Entry) -> None:
        if isinstance(entry.event, ToolResult):
            conversation.set_confirmation(
                "always" if isinstance(entry.event.observation, ShellResult) else "never"
            )

    turns = (RecordedTurn("", LOOK), RecordedTurn("", LOOK), DONE)
    with (
        serve_model(*turns) as (llm, _),
        Conversation(default_agent(llm), project, callbacks=[relax]) as conversation,
    ):
        conversation.send_message("Look.")
        state = conversation.run()
        assert (state.status, state.steps) == ("waiting_for_confirmation", 2), "the first call did not wait"
        conversation.set_confirmation("never")
        conversation.approve()
        conversation.set_confirmation("never")
        assert conversation.run().status == "finished"
        with pytest.raises(ValueError, match="sometimes is not one of never, risky, always"):
            conversation.set_confirmation("sometimes")  # type: ignore[arg-type]
