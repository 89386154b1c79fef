"""A conversation in this process: send a message, run, pause, resume, and look at its state."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import PrivateAttr, SecretStr

from patchwright import (
    Agent,
    AgentState,
    BaseConversation,
    Conversation,
    CustomAgent,
    LocalConversation,
    LocalWorkspace,
    RouterLLM,
    ToolRequest,
    default_agent,
)
from patchwright.demo.recorded_model import RecordedCall, RecordedTurn
from patchwright.resolver.errors import LogLocked, ModelAccessDenied, UsageError, WorkspaceError
from patchwright.resolver.events import Entry, Message, ModelReply, SystemPrompt, ToolResult
from patchwright.resolver.llm.model import ChatMessage
from patchwright.resolver.run_events import Paused
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.preloaded_command import preloaded_python
from tests.sdk.model_endpoint import KEY, serve_model

LOOK = RecordedTurn("I look first.", RunShell(command="cat calc.py"))
FIX = RecordedTurn("", ReplaceText(path="calc.py", old="a - b", new="a + b"))
DONE = RecordedTurn("", Finish(cause="It subtracted.", change="It adds.", testing="Not tested."))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    return path


def test_an_agent_works_answers_and_goes_on_after_another_message(project: Path) -> None:
    entries: list[Entry] = []
    with (
        serve_model(LOOK, FIX, DONE, RecordedTurn("It was line 2.")) as (llm, endpoint),
        Conversation(default_agent(llm), project, callbacks=[entries.append]) as conversation,
    ):
        assert conversation.state.status == "idle"
        conversation.send_message("Make add() add.")
        state = conversation.run()
        assert (state.status, state.answer) == ("finished", "It subtracted.\n\nIt adds.\n\nNot tested.")
        assert (project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
        conversation.send_message("Which line?")
        state = conversation.run()
        assert (state.status, state.answer, state.steps) == ("finished", "It was line 2.", 4)
        assert 0 < conversation.cost == state.cost < 1
        assert tuple(entries) == conversation.events
    assert isinstance(conversation, LocalConversation)
    texts = [message.get("content") for message in endpoint.requests[-1]["messages"]]
    assert str(project) in texts[0]
    assert texts[1] == "Make add() add."
    assert texts[-1] == "Which line?"
    assert not any("interrupted" in str(text) or "was stopped" in str(text) for text in texts)


def test_a_pause_from_a_callback_ends_the_run_before_the_next_step(project: Path) -> None:
    conversation: BaseConversation

    def pause(entry: Entry) -> None:
        if isinstance(entry.event, ToolResult) and len(conversation.events) < 5:
            conversation.pause()

    with (
        serve_model(LOOK, FIX, DONE) as (llm, endpoint),
        Conversation(default_agent(llm), project, callbacks=[pause]) as conversation,
    ):
        conversation.send_message("Make add() add.")
        state = conversation.run()
        assert (state.status, state.steps) == ("paused", 1)
        assert isinstance(conversation.events[-1].event, Paused)
        assert len(endpoint.requests) == 1
        assert conversation.run().status == "finished"
    assert len(endpoint.requests) == 3


def test_a_new_process_continues_a_paused_conversation(project: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import sys
from patchwright import *
agent = Agent(llm=LLM(model="openai/recorded", api_key=sys.argv[1], base_url=sys.argv[2]))

def pause(entry):
    if entry.seq == 3:
        conversation.pause()

conversation = Conversation(agent, sys.argv[3], id="kept", callbacks=[pause])
if len(conversation.events) == 0:
    conversation.send_message("Make add() add.")
print(conversation.run().status)
""")

    def run_program(url: str) -> str:
        command = [*preloaded_python(), str(program), KEY, url, str(project)]
        return subprocess.check_output(command, text=True).strip()

    with serve_model(LOOK, FIX, DONE) as (_, endpoint):
        assert run_program(endpoint.base_url) == "paused"
        assert (project / "calc.py").read_text().endswith("a - b\n")
        assert run_program(endpoint.base_url) == "finished"
    assert (project / "calc.py").read_text().endswith("a + b\n")
    assert len(endpoint.requests) == 3


def test_a_message_to_a_working_agent_arrives_before_its_next_step(project: Path) -> None:
    conversation: BaseConversation

    def write(turn: int, request: object) -> None:
        if turn == 0:
            conversation.send_message("Use a plus sign.")

    with (
        serve_model(LOOK, FIX, DONE, on_request=write) as (llm, endpoint),
        Conversation(default_agent(llm), project) as conversation,
    ):
        conversation.send_message("Make add() add.")
        conversation.run()
    assert endpoint.requests[1]["messages"][-1]["content"] == "Use a plus sign."


def test_a_function_of_the_program_is_a_tool(project: Path) -> None:
    def get_price(product: str) -> str:
        """Look up the price of a product."""
        return f"{product}: 3 dollars"

    call = RecordedCall(name="get_price", arguments={"product": "tea"})
    with serve_model(RecordedTurn("", calls=(call,)), RecordedTurn("3 dollars.")) as (llm, endpoint):
        agent = Agent(llm=llm, tools=["run_shell", get_price])
        with Conversation(agent, project) as conversation:
            conversation.send_message("What does tea cost?")
            assert conversation.run().answer == "3 dollars."
    assert [tool["function"]["name"] for tool in endpoint.requests[0]["tools"]] == [
        "run_shell",
        "get_price",
    ]
    assert endpoint.requests[0]["tools"][1]["function"]["parameters"] == {
        "type": "object",
        "properties": {"product": {"type": "string"}},
        "required": ["product"],
        "additionalProperties": False,
    }
    assert "tea: 3 dollars" in endpoint.requests[1]["messages"][-1]["content"]


class FirstThenSecond(RouterLLM):
    def select_llm(self, messages: Sequence[ChatMessage]) -> str:
        return "first" if len(messages) == 2 else "second"


def test_a_router_chooses_for_each_request_and_the_cost_is_counted_per_model(project: Path) -> None:
    with serve_model(LOOK, DONE) as (llm, endpoint):
        router = FirstThenSecond(
            llms_for_routing={
                "first": llm.model_copy(update={"model": "openai/small", "input_price": 1.0}),
                "second": llm.model_copy(update={"model": "openai/large", "input_price": 100.0}),
            }
        )
        with Conversation(Agent(llm=router), project) as conversation:
            conversation.send_message("Make add() add.")
            conversation.run()
            replies = [entry.event for entry in conversation.events if isinstance(entry.event, ModelReply)]
    assert [reply.usage.model for reply in replies] == ["openai/small", "openai/large"]
    assert [request["model"] for request in endpoint.requests] == ["small", "large"]
    assert (replies[0].usage.usd or 0) * 20 < (replies[1].usage.usd or 0)


def test_one_agent_uses_a_tool_and_a_router_of_the_program(project: Path) -> None:
    def find_price(product: str) -> str:
        """Find the price of a product."""
        return f"{product}: 3 dollars"

    call = RecordedCall(name="find_price", arguments={"product": "tea"})
    with serve_model(RecordedTurn("", calls=(call,)), RecordedTurn("3 dollars.")) as (llm, endpoint):
        llms = {name: llm.model_copy(update={"model": f"openai/{name}"}) for name in ("first", "second")}
        agent = Agent(llm=FirstThenSecond(llms_for_routing=llms), tools=["run_shell", find_price])
        with Conversation(agent, project) as conversation:
            conversation.send_message("What does tea cost?")
            assert conversation.run().answer == "3 dollars."
    assert [request["model"] for request in endpoint.requests] == ["first", "second"]
    assert "tea: 3 dollars" in endpoint.requests[1]["messages"][-1]["content"]


def test_messages_of_many_threads_are_all_in_the_log_in_the_order_of_each_thread(project: Path) -> None:
    with serve_model() as (llm, _), Conversation(default_agent(llm), project) as conversation:

        def send(thread: int) -> None:
            for number in range(50):
                conversation.send_message(f"{thread} {number}")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(send, range(8)))
        entries = conversation.events
    assert [entry.seq for entry in entries] == list(range(1 + 8 * 50))
    assert isinstance(entries[0].event, SystemPrompt)
    texts = [entry.event.text.split() for entry in entries if isinstance(entry.event, Message)]
    for thread in range(8):
        assert [number for name, number in texts if name == str(thread)] == [str(n) for n in range(50)]


def test_messages_of_threads_that_wait_are_stored_in_the_order_of_their_arrival(project: Path) -> None:
    is_busy, goes_on = threading.Event(), threading.Event()

    def hold(entry: Entry) -> None:
        is_busy.set()
        assert goes_on.wait(60)

    with (
        serve_model() as (llm, _),
        Conversation(default_agent(llm), project, callbacks=[hold]) as conversation,
    ):
        senders = [
            threading.Thread(target=conversation.send_message, args=(str(number),)) for number in range(9)
        ]
        for sender in senders:
            sender.start()
            assert is_busy.wait(60)
            time.sleep(0.05)  # Its message waits behind those of the threads before it.
        assert len(conversation.events) <= 1
        goes_on.set()
        for sender in senders:
            sender.join()
        entries = conversation.events
    assert [entry.event.text for entry in entries if isinstance(entry.event, Message)] == list("012345678")


def test_only_the_log_changes_during_a_run(project: Path) -> None:
    dumps: list[str] = []
    with serve_model(LOOK, FIX, DONE) as (llm, _):
        agent = default_agent(llm)
        before = agent.model_dump_json(context={"expose_secrets": True})

        def dump(entry: Entry) -> None:
            dumps.append(agent.model_dump_json(context={"expose_secrets": True}))

        with Conversation(agent, project, callbacks=[dump]) as conversation:
            conversation.send_message("Make add() add.")
            assert conversation.run().status == "finished"
    assert len(dumps) == len(conversation.events) > 8
    assert set(dumps) == {before}


def test_two_conversations_of_one_agent_share_nothing(project: Path) -> None:
    with serve_model(LOOK, DONE) as (llm, endpoint):
        agent = default_agent(llm)
        with Conversation(agent, project) as first:
            first.send_message("Make add() add.")
            assert first.run().cost
        with Conversation(agent, project) as second:
            assert (second.cost, second.state.steps) == (0, 0)
            second.send_message("Greet me.")
            assert second.run().steps == 2
            assert 0 < second.cost < first.cost * 2
    system, *others = endpoint.requests[2]["messages"]
    assert system["role"] == "system" and "Make add() add." not in system["content"]
    assert others == [{"role": "user", "content": "Greet me."}]


class Grep(CustomAgent):
    """Searches for the word that the person sends, and answers with the lines."""

    def step(self, state: AgentState) -> ToolRequest | str:
        if state.is_new_turn:
            return ToolRequest(tool="run_shell", arguments={"command": f"grep -rn {state.messages[-1]} ."})
        return f"Found: {state.last_output}"


def test_an_agent_of_your_own_needs_only_a_step(project: Path) -> None:
    with Conversation(Grep(), project) as conversation:
        conversation.send_message("return")
        state = conversation.run()
        assert state.status == "finished"
        assert state.answer.startswith("Found: ./calc.py:2:    return a - b\n")
        conversation.send_message("def")
        assert conversation.run().answer.startswith("Found: ./calc.py:1:def add")


class Counting(CustomAgent):
    """Answers with the number of its steps since its reset."""

    _steps: int = PrivateAttr()

    def reset(self) -> None:
        self._steps = 0

    def step(self, state: AgentState) -> str:
        self._steps += 1
        return f"step {self._steps}"


def test_an_agent_of_your_own_is_reset_once_for_each_conversation(project: Path) -> None:
    agent = Counting()
    for _ in range(2):
        with Conversation(agent, project) as conversation:
            answers = []
            for text in ("Go.", "Go on."):
                conversation.send_message(text)
                answers.append(conversation.run().answer)
        assert answers == ["step 1", "step 2"]


class Restless(CustomAgent):
    def step(self, state: AgentState) -> ToolRequest:
        return ToolRequest(tool="run_shell", arguments={"command": f"echo {state.steps}"})


def test_the_limits_hold_for_an_agent_of_your_own_and_count_from_each_run(project: Path) -> None:
    with Conversation(Restless(max_steps=3), project) as conversation:
        conversation.send_message("Go.")
        assert [conversation.run().status, conversation.state.steps] == ["limit", 3]
        assert [conversation.run().status, conversation.state.steps] == ["limit", 6]


async def test_a_program_with_asyncio_runs_a_conversation_beside_other_work(project: Path) -> None:
    with serve_model(LOOK, DONE, delay=0.2) as (llm, _):
        async with LocalWorkspace(project) as workspace:
            conversation = Conversation(default_agent(llm), workspace)
            conversation.send_message("Make add() add.")
            run = asyncio.create_task(conversation.arun())
            assert (await workspace.aexecute_command("echo beside")).stdout == "beside\n"
            assert not run.done()
            assert (await run).status == "finished"
            conversation.close()


def test_a_rejected_key_raises_and_the_next_run_goes_on(project: Path) -> None:
    with serve_model(LOOK, DONE) as (llm, _):
        wrong = llm.model_copy(update={"api_key": None})
        with Conversation(default_agent(wrong), project, id="again") as conversation:
            conversation.send_message("Make add() add.")
            with pytest.raises(ModelAccessDenied):
                conversation.run()
            assert conversation.state.status == "error"
        with Conversation(default_agent(llm), project, id="again") as conversation:
            assert conversation.run().status == "finished"


def test_mistakes_are_named(project: Path) -> None:
    with (
        serve_model() as (llm, _),
        Conversation(default_agent(llm), project, id="one") as conversation,
        pytest.raises(UsageError, match="call send_message first"),
    ):
        conversation.run()
        with pytest.raises(ValueError, match="the message is empty"):
            conversation.send_message(" ")
    with pytest.raises(WorkspaceError, match="There is no directory"):
        Conversation(default_agent(llm), project / "missing")


def test_the_key_is_masked_in_the_log(project: Path) -> None:
    leak = RecordedTurn(f"The key is {KEY}.", RunShell(command=f"echo {KEY}"))
    with serve_model(leak, DONE) as (llm, _), Conversation(default_agent(llm), project) as conversation:
        conversation.send_message(f"My key is {KEY}.")
        conversation.run()
    assert KEY not in "".join(entry.model_dump_json() for entry in conversation.events)
    assert any(isinstance(entry.event, Message) for entry in conversation.events)


def test_the_same_id_in_one_process_takes_over_unless_the_agent_works(project: Path) -> None:
    conversation: BaseConversation

    def open_again(turn: int, request: object) -> None:
        with pytest.raises(LogLocked):
            Conversation(default_agent(llm), project, id="cell")

    with serve_model(LOOK, DONE, on_request=open_again) as (llm, _):
        for _ in range(2):  # A cell of a notebook that runs twice.
            conversation = Conversation(default_agent(llm), project, id="cell")
        conversation.send_message("Look.")
        assert conversation.run().status == "finished"
        conversation.close()


def test_errors_name_the_fields_of_the_model(project: Path) -> None:
    with serve_model() as (llm, _):
        wrong = llm.model_copy(update={"api_key": SecretStr("sk-wrong-key")})
        with Conversation(default_agent(wrong), project) as conversation:
            conversation.send_message("Look.")
            with pytest.raises(ModelAccessDenied, match="check api_key of the LLM"):
                conversation.run()
