"""Which call a decision is about, how the call is shown, and which calls are similar."""

from datetime import UTC, datetime

import pytest

from patchwright.resolver.actions import Action
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.confirmation import (
    CallDecision,
    ConfirmationRequest,
    ConfirmationRequired,
    make_call_code,
    parse_decision,
    render_exact_call,
)
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    Trajectory,
)
from patchwright.resolver.run_calls import find_unstarted_call, get_confirmation
from patchwright.resolver.security.risk import RiskDecision, RiskRating, RuleAnalyzer, ThresholdPolicy
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.resolver.tools.policy_tools import (
    MAX_SHOWN_CALL,
    Confirmations,
    PolicyTool,
    describe_similarity,
)
from patchwright.resolver.tools.tool import ActionTool
from patchwright.runtime.actions import RunPython, RunShell
from patchwright.runtime.observations import ActionFailure, Observation, ShellResult
from patchwright.runtime.sandbox import call_context

RULES = RuleAnalyzer("/workspace", "/tmp")
PUSH = RunShell(command="git push origin main")
ASK = ThresholdPolicy(response="ask")


def code_of(call: ToolCall) -> str:
    return make_call_code(call.id, call.action)


def waiting_for(call: ToolCall) -> AgentStopped:
    request = ConfirmationRequest(
        code=code_of(call), call=render_exact_call(call.action), risk="high", reason="it pushes", similar="x"
    )
    return AgentStopped(reason="input_required", detail="It waits.", confirmation=request)


def decision(call: ToolCall, *, approved: bool, similar: str = "") -> Message:
    return Message(
        text="no, because",
        source="comment",
        decision=CallDecision(code=code_of(call), approved=approved, similar=similar),
    )


def run_of(*events: Event) -> Trajectory:
    now = datetime.now(UTC)
    return Trajectory(tuple(Entry(seq=n, timestamp=now, event=event) for n, event in enumerate(events)))


def reply(*calls: ToolCall) -> ModelReply:
    return ModelReply(thought="", calls=calls, usage=ReplyUsage(model="m"))


class FixedLog:
    """A log that only reads."""

    def __init__(self, *events: Event) -> None:
        self.trajectory = run_of(*events)

    async def append(self, event: Event) -> Entry:
        raise AssertionError("nothing is written here")

    async def check_ownership(self) -> None: ...


async def execute(log: FixedLog, call: ToolCall, policy: object = ASK) -> object:
    """Executes a call of the shell after these events. Returns "ran" if it ran."""

    async def run(action: RunShell) -> Observation:
        return ShellResult(output="ran", exit_code=0, cwd="/", seconds=0.1)

    tool = PolicyTool(ActionTool(RunShell, run), (RULES,), policy, Confirmations(log))  # type: ignore[arg-type]
    with call_context(call.id):
        result = await tool.execute(call.action)
    return result.output if isinstance(result, ShellResult) else result


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("approve", ("approve", "", False, "")),
        ("approve 0123abcd", ("approve", "0123abcd", False, "")),
        ("Approve, please", ("approve", "", False, "")),
        ("approve 0123ABCD all like this.", ("approve", "0123abcd", True, "")),
        ("approve all like this", ("approve", "", True, "")),
        ("approve all like these", ("approve", "", False, "all like these")),
        ("reject 0123abcd: use pip", ("reject", "0123abcd", False, "use pip")),
        ("reject all like this", ("reject", "", False, "all like this")),
        ("reject deadbeef.py", ("reject", "", False, "deadbeef.py")),
    ],
)
def test_a_decision_is_parsed(comment: str, expected: tuple[str, str, bool, str]) -> None:
    request = parse_request(comment)
    text = parse_decision(request)
    assert (request.verb, text.code, text.includes_similar, text.remark) == expected


def test_the_exact_call_is_shown_with_visible_control_characters() -> None:
    hidden = RunShell(command="ls \x1b[2K\r\u202eevil\u3164\nrm -r x")
    assert render_exact_call(hidden) == "run_shell: ls ␛[2K␍⟦U+202E⟧evil⟦U+3164⟧\nrm -r x"
    assert render_exact_call(RunShell(command="ls", timeout=5)) == (
        'run_shell: {\n  "command": "ls",\n  "timeout": 5\n}'
    )
    external = CallTool(name="mail_send", arguments={"to": "a", "text": "\x07"})
    assert render_exact_call(external) == 'mail_send: {\n  "to": "a",\n  "text": "\\u0007"\n}'


async def test_an_approval_is_about_one_call_only() -> None:
    call, same_again = ToolCall(id="a", action=PUSH), ToolCall(id="b", action=PUSH)
    other = ToolCall(id="a", action=RunShell(command="git push evil main"))
    approved = FixedLog(reply(call), waiting_for(call), decision(call, approved=True))
    assert await execute(approved, call) == "ran"
    for another in (same_again, other):
        with pytest.raises(ConfirmationRequired):
            await execute(approved, another)


async def test_a_call_that_once_waited_needs_a_decision_even_if_the_policy_allows_it_now() -> None:
    call = ToolCall(id="a", action=PUSH)
    with pytest.raises(ConfirmationRequired) as raised:
        await execute(FixedLog(reply(call), waiting_for(call)), call, ThresholdPolicy(threshold=None))
    assert (raised.value.request.call, raised.value.request.risk) == (
        "run_shell: git push origin main",
        "high",
    )
    rejected = FixedLog(reply(call), waiting_for(call), decision(call, approved=False))
    result = await execute(rejected, call, ThresholdPolicy(threshold=None))
    assert result == ActionFailure(reason="refused", message="no, because")


async def test_what_a_policy_refuses_stays_refused_after_an_approval() -> None:
    call = ToolCall(id="a", action=PUSH)
    log = FixedLog(reply(call), waiting_for(call), decision(call, approved=True))
    assert isinstance(await execute(log, call, ThresholdPolicy()), ActionFailure)


async def test_a_policy_with_another_answer_than_the_three_refuses() -> None:
    class Wrong:
        def decide(self, rating: RiskRating) -> RiskDecision:
            return True  # type: ignore[return-value]

    assert isinstance(await execute(FixedLog(), ToolCall(id="a", action=PUSH), Wrong()), ActionFailure)


async def test_a_call_that_is_too_long_to_check_is_refused() -> None:
    long = ToolCall(id="a", action=RunShell(command="git push " + "x" * MAX_SHOWN_CALL))
    result = await execute(FixedLog(), long)
    assert (
        isinstance(result, ActionFailure) and "nobody can check a call of more than 4,000" in result.message
    )


async def test_never_risky_and_always_are_policies_of_the_same_tool() -> None:
    look, push = ToolCall(id="a", action=RunShell(command="ls")), ToolCall(id="b", action=PUSH)
    for threshold, asks in ((None, []), ("high", [push]), ("low", [look, push])):
        policy = ThresholdPolicy(threshold=threshold, response="ask")  # type: ignore[arg-type]
        for call in (look, push):
            if call in asks:
                with pytest.raises(ConfirmationRequired):
                    await execute(FixedLog(), call, policy)
            else:
                assert await execute(FixedLog(), call, policy) == "ran"


def similarity(action: Action) -> str:
    return describe_similarity(action, RULES.rate(action))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("git push origin main", "git push other x", True),
        ("git push", "git push; curl -d x http://a.test", False),
        ("git push", "sudo git push", False),
        ("git push", "git push > /etc/x", False),
        ("git push", "git send-email", False),
        ("$X y", "$X z", False),
        ("$X y", "$X y", True),
        ("git push '", "git push ' x", False),
    ],
)
def test_similar_commands_start_the_same_programs(one: str, other: str, expected: bool) -> None:
    assert (similarity(RunShell(command=one)) == similarity(RunShell(command=other))) is expected


def test_calls_of_different_tools_are_not_similar() -> None:
    python, external = RunPython(code="1"), CallTool(name="a", arguments={})
    assert len({similarity(action) for action in (python, external, CallTool(name="b", arguments={}))}) == 3
    assert similarity(RunPython(code="2")) == similarity(python)


async def test_similar_calls_run_after_an_approval_of_all_like_this() -> None:
    call, later = (
        ToolCall(id="a", action=PUSH),
        ToolCall(id="b", action=RunShell(command="git push x y")),
    )
    key = similarity(PUSH)
    log = FixedLog(reply(call), waiting_for(call), decision(call, approved=True, similar=key))
    assert await execute(log, later) == "ran"
    with pytest.raises(ConfirmationRequired):
        await execute(log, ToolCall(id="c", action=RunShell(command="ssh host")))
    rejected = FixedLog(reply(call), waiting_for(call), decision(call, approved=False, similar=key))
    with pytest.raises(ConfirmationRequired):
        await execute(rejected, later)


def test_only_a_call_that_no_process_has_started_is_unstarted() -> None:
    call = ToolCall(id="a", action=PUSH)
    parked = (reply(call), waiting_for(call))
    resumed = Message(text="The sandbox is new.", source="resume")
    assert find_unstarted_call(run_of(*parked)) == call
    assert find_unstarted_call(run_of(*parked, decision(call, approved=True))) == call
    assert find_unstarted_call(run_of(*parked, decision(call, approved=True), resumed)) is None
    assert find_unstarted_call(run_of(reply(call))) is None
    assert get_confirmation(run_of(*parked)) is not None
    assert get_confirmation(run_of(*parked, decision(call, approved=True))) is None


def test_the_model_reads_a_rejection_only_as_the_result_of_the_call() -> None:
    call = ToolCall(id="a", action=PUSH)
    result = {"kind": "tool_result", "call_id": "a"}
    from patchwright.resolver.events import ToolResult

    failure = ActionFailure(reason="refused", message="no, because")
    messages = build_messages(
        run_of(
            reply(call),
            waiting_for(call),
            decision(call, approved=False),
            ToolResult(call_id=result["call_id"], observation=failure),
        )
    )
    assert str(messages).count("no, because") == 1
