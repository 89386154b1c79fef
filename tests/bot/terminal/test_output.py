"""Progress lines and tables in a terminal of 80 columns."""

from datetime import UTC, datetime, timedelta

from patchwright.bot.terminal.output import outcome_json, strip_control_chars, wrap_text
from patchwright.bot.terminal.output import tests_table as table
from patchwright.bot.terminal.progress_printer import ProgressPrinter
from patchwright.resolver.domain import JobId, Usage, Verdict
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.run_events import BaseImageChoice, EnvironmentPrepared, NetworkAccess, RunConfigured
from patchwright.resolver.run_results import TestRun
from patchwright.resolver.tool_actions.control_actions import ProposePlan
from patchwright.runtime.actions import RunShell
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.observations import ShellResult
from tests.resolver.sample_runs import started
from tests.resolver.tools.test_new_tool import build_run

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def printed_lines(*events: Event) -> list[str]:
    lines: list[str] = []
    printer = ProgressPrinter(lines.append)
    for number, event in enumerate(events):
        printer(Entry(seq=number, timestamp=NOON + timedelta(seconds=number), event=event))
    return lines


def step(thought: str, command: str, output: str) -> tuple[ModelReply, ToolResult]:
    call = ToolCall(id="c", action=RunShell(command=command))
    result = ShellResult(exit_code=0, output=output, seconds=1.0, cwd="/workspace")
    return ModelReply(thought=thought, calls=(call,), usage=ReplyUsage(model="m")), ToolResult(
        call_id="c", observation=result
    )


def test_a_step_is_one_short_line_followed_by_its_result() -> None:
    assert printed_lines(*step("Reproduce.", "python3 x.py", "60s\n")) == [
        "   0.0 s    1. Reproduce.",
        "   1.0 s       $ python3 x.py  → exit code 0: 60s",
    ]


def test_the_time_of_a_resumed_run_is_its_working_time_as_in_the_total() -> None:
    def entry(number: int, seconds: float, event: Event) -> Entry:
        return Entry(seq=number, timestamp=NOON + timedelta(seconds=seconds), event=event)

    configured = RunConfigured(version="1", models={}, steps=9, seconds=9, usd=1, settings={}, repository={})
    earlier = Trajectory(
        (
            entry(0, 0, started()),
            entry(1, 1, configured),
            entry(2, 5, AgentStopped(reason="limit", detail="Enough.")),
        )
    )
    lines: list[str] = []
    printer, whole = ProgressPrinter(lines.append, earlier=earlier), earlier
    message = Message(text="Go on.", source="resume", trigger_id=JobId("calc-1"))
    thought = ModelReply(thought="Look.", calls=(), usage=ReplyUsage(model="m"))
    for number, (seconds, event) in enumerate(((100, message), (120, configured), (123, thought)), start=3):
        printer(entry(number, seconds, event))
        whole = whole.with_entry(entry(number, seconds, event))
    assert (lines[0][:10], lines[-1][:10], whole.usage().seconds) == ("   5.0 s  ", "   8.0 s  ", 8.0)


def test_the_last_line_of_a_longer_output_is_not_shown_as_the_whole() -> None:
    result = printed_lines(*step("Look.", "git status -s", " M a.py\n M b.py\n"))[1]
    assert result.endswith("$ git status -s  → exit code 0, last of 2 lines: M b.py")


def test_a_long_step_is_truncated_with_its_result_below() -> None:
    lines = printed_lines(*step("I think " * 50, "cat <<X\n" + "long " * 50, "much " * 50))
    assert [len(line) <= 80 for line in lines] == [True] * 4
    assert lines[0].startswith("   0.0 s    1. I think") and lines[1].startswith("   0.0 s       I think")
    assert lines[1].endswith(" …")
    assert lines[3].startswith("   1.0 s         → exit code 0: much")


def test_a_local_issue_has_no_number_and_only_the_final_verdict_is_called_so() -> None:
    verdict = Verdict(kind="unproven", reason="Why.")
    events = [
        VerificationCompleted(verdict=verdict.model_copy(update={"partial": part})) for part in (True, False)
    ]
    assert [line[10:] for line in printed_lines(started(url=""), *events)] == [
        "calc: add() subtracts",
        "model vendor/model-1, docker sandbox",
        "the first tests have ended",
        "verdict: unproven. Why.",
    ]
    assert printed_lines(started())[0].endswith("  acme/calc#7: add() subtracts")


def test_untrusted_text_cannot_control_the_terminal() -> None:
    assert strip_control_chars("a\x1b[2Jb\u202ec\r\n") == "a[2Jbc\n"


def test_a_local_run_with_a_verdict_is_completed_in_json() -> None:
    assert outcome_json("calc-1", None, Verdict(kind="fixed", reason="r"), Usage())["outcome"] == "completed"


def test_long_paragraphs_are_wrapped_and_lists_are_not() -> None:
    assert wrap_text("one two three\n\n- one two three", width=9) == "one two\nthree\n\n- one two three"


def test_the_image_for_a_language_is_printed_before_the_setup() -> None:
    missed = BaseImageChoice(language="go", image="golang:1", problem="no such image")
    plain = EnvironmentPrepared(commands=(), was_cached=True, seconds=0, base_image=missed)
    chosen = missed.model_copy(update={"problem": None})
    lines = printed_lines(plain, plain.model_copy(update={"commands": ("make",), "base_image": chosen}))
    assert [line[10:] for line in lines] == [
        "no image for go; using the default image",
        "  no such image",
        "sandboxes for go use golang:1",
        "repository setup restored from cache",
    ]


def test_a_stop_reason_is_printed_once() -> None:
    lines = printed_lines(
        AgentStopped(reason="finished", detail="The agent finished the work."),
        AgentStopped(reason="limit", detail="All 100 steps were taken."),
    )
    assert [line[10:] for line in lines if "verifying" not in line] == [
        "the agent finished the work.",
        "the agent stopped (limit): All 100 steps were taken.",
    ]


def test_denied_hosts_are_printed_with_the_setting_that_allows_them() -> None:
    visits = (
        ConnectionSummary(host="pypi.org", port=443),
        ConnectionSummary(host="h.example.test", port=443, denied="private"),
        *(ConnectionSummary(host=f"h{n}.test", port=443, denied="unlisted") for n in range(6)),
    )
    done = EnvironmentPrepared(commands=("make",), was_cached=False, seconds=1)
    lines = printed_lines(
        done.model_copy(update={"warnings": ("not to be had: x",)}),
        done.model_copy(update={"was_cached": True}),
        done.model_copy(update={"problem": "exit code 1"}),
        NetworkAccess(visits=visits),
    )
    assert all(len(line) <= 80 for line in lines)
    assert [line[10:] for line in lines] == [
        "repository setup complete",
        "setup continued after a step failed",
        "  not to be had: x",
        "repository setup restored from cache",
        "repository setup failed; tests run without it",
        "  exit code 1",
        "denied h.example.test: it resolves to an address that is not public",
        "  (setting `allowed_addresses`)",
        *(f"denied h{n}.test: it is not on the allowlist (setting `allowed_hosts`)" for n in range(4)),
        "and 2 more",
    ]


def test_a_denied_address_that_is_not_public_is_named() -> None:
    visit = ConnectionSummary(host="pypi.org", port=443, denied="private", address="10.0.0.1")
    assert " ".join(line[10:].strip() for line in printed_lines(NetworkAccess(visits=(visit,)))) == (
        "denied pypi.org: it resolves to 10.0.0.1, which is not public (setting `allowed_addresses`)"
    )


def test_a_changed_test_is_not_called_new() -> None:
    before = TestRun(command="pytest", results={"t::a": "passed"}, exit_code=0, seconds=1, output="")
    after = before.model_copy(update={"results": {"t::a": "passed", "t::b": "passed"}})
    verdict = Verdict(kind="fixed", before=before, after=after, new_tests_at_base={"t::b": "failed"})
    changed = verdict.model_copy(update={"new_tests_at_base": {"t::a": "failed", "t::b": "failed"}})
    assert "\n  new tests: 1 failed before; now 1 passed" in table(verdict)
    assert "\n  new or changed tests: 2 failed before; now 2 passed" in table(changed)


def test_a_plan_is_not_called_a_question() -> None:
    plan = ProposePlan(cause="It rounds.", steps=("Round up.",), test_plan="Run it.", risks="None.")
    reply = ModelReply(thought="Plan.", calls=(ToolCall(id="p", action=plan),), usage=ReplyUsage(model="m"))
    ready = AgentStopped(reason="input_required", detail="The plan of 1 step is ready for review.")
    assert printed_lines(reply, ready)[-2].endswith("the agent proposes a plan:")
    assert printed_lines(*step("Look.", "ls", ""), ready)[-2].endswith("the agent asks:")


def test_the_terminal_shows_the_calls_of_a_new_tool() -> None:
    lines = printed_lines(*build_run(answered=True))
    assert [line for line in lines if "count" in line] == [
        "   2.0 s       count the lines of a.py  → ok",
        "   3.0 s       count the lines of b.py  → ok",
    ]
