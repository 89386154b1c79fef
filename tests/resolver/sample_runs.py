"""A run with one event of each kind, for the tests of what displays runs."""

import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from patchwright.resolver.actions import Action, AnyObservation, SubagentResult
from patchwright.resolver.domain import (
    Issue,
    Job,
    JobId,
    Patch,
    Published,
    Repo,
    RunId,
    TestRun,
    Usage,
    User,
    Verdict,
)
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Checkpoint,
    Entry,
    Event,
    JobCompleted,
    Message,
    ModelReply,
    ReplyUsage,
    RunStarted,
    SystemPrompt,
    ToolCall,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.run_events import (
    BaselinePending,
    Condensation,
    EnvironmentPrepared,
    NetworkAccess,
    Paused,
    RunConfigured,
    RunResumed,
    SubagentSpawned,
    SubagentStarted,
)
from patchwright.resolver.tool_actions.control_actions import Finish, Plan, Think
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.actions import ReplaceText, RunShell, UseBrowser
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.observations import (
    ActionFailure,
    EditResult,
    ImageData,
    PageSnapshot,
    ShellResult,
    Tab,
)
from patchwright.runtime.tool_action import PlanItem

RUN, CHILD = RunId("acme-calc-7"), RunId("acme-calc-7-browse-1")
DIFF = """\
--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,3 @@
 def add(a, b):
--- a comment
-    return a - b
+    return a + b
+# done
"""
AUTHOR = User(id=2, login="reporter")


def png(shade: int = 0, side: int = 40) -> ImageData:
    """An image in one shade of gray."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + bytes([shade]) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return ImageData(media_type="image/png", data=b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def run_of(*events: Event) -> Trajectory:
    """Returns a trajectory of these events, one second apart."""
    began = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    return Trajectory(
        tuple(
            Entry(seq=n, timestamp=began + timedelta(seconds=n), event=event)
            for n, event in enumerate(events)
        )
    )


def started(title: str = "add() subtracts", url: str = "https://forge.test/acme/calc/issues/7") -> RunStarted:
    issue = Issue(number=7, title=title, body="", author=AUTHOR, trusted=False, open=True, url=url)
    job = Job(id=JobId(RUN), repo=Repo(owner="acme", name="calc"), number=7, requester=AUTHOR)
    return RunStarted(
        job=job, thread=issue, base_sha="ab" * 20, base_branch="main", source="https://forge.test/acme/calc",
        model="vendor/model-1", sandbox="docker", network="allowlist",
    )  # fmt: skip


def model_reply(id: str, *actions: Action, thought: str = "", usd: str = "0.01") -> ModelReply:
    calls = tuple(ToolCall(id=f"{id}.{n}" if n else id, action=action) for n, action in enumerate(actions))
    usage = ReplyUsage(model="vendor/model-1", prompt_tokens=1000, completion_tokens=50, usd=Decimal(usd))
    return ModelReply(thought=thought, calls=calls, usage=usage)


def step(id: str, action: Action, observation: AnyObservation, thought: str = "") -> Sequence[Event]:
    """A reply with one call, and its result."""
    return (model_reply(id, action, thought=thought), ToolResult(call_id=id, observation=observation))


def shell_result(output: str, code: int = 0) -> ShellResult:
    return ShellResult(output=output, exit_code=code, cwd="/workspace", seconds=0.5)


def page(screenshot: ImageData | None = None, **more: str) -> PageSnapshot:
    url = more.pop("url", "http://localhost:8000/")
    return PageSnapshot(
        url=url, title="A page", tree="[1] button 'Go'", tabs=(Tab(url=url, title="A page", active=True),),
        screenshot=screenshot, **more,
    )  # fmt: skip


def verdict() -> Verdict:
    def suite(exit_code: int, **results: str) -> TestRun:
        named = {f"tests/test_calc.py::{name}": result for name, result in results.items()}
        return TestRun(
            command="python3 -m pytest", results=named, exit_code=exit_code, seconds=1.5, output="tail of it"
        )

    return Verdict(
        kind="fixed", fail_to_pass=("tests/test_calc.py::test_add",), reason="1 test failed before and passes now.",
        before=suite(1, test_add="failed", test_double="passed"),
        after=suite(0, test_add="passed", test_double="passed"),
    )  # fmt: skip


def full_run() -> Trajectory:
    """A run with one event of each kind."""
    plan = Plan(items=(PlanItem(text="Reproduce it", status="done"), PlanItem(text="Fix it")))
    outcome = Published(
        url="https://forge.test/acme/calc/pull/8", number=8, branch="b", draft=False, verdict=verdict()
    )
    report = SubagentResult(
        run=CHILD, status="answered", text="It is 42.", usage=Usage(usd=Decimal("0.5"), steps=1)
    )
    finish = Finish(cause="It subtracted.", change="It adds.", testing="pytest")
    noted = ActionFailure(reason="refused", message="Not yet: run the tests.")
    return run_of(
        started(),
        RunConfigured(
            version="0.1.0", models={"act": "vendor/model-1"}, steps=100, seconds=3600, usd=Decimal(2),
            settings={"max_repairs": 2}, repository={"test_command": None},
        ),
        EnvironmentPrepared(commands=("pip install -e .",), was_cached=False, seconds=12),
        SystemPrompt(text="You fix.", tools=()),
        Message(text="The brief of issue 7", source="initial_prompt", images=(png(9),)),
        *step("plan", plan, ActionFailure(reason="io", message="lost")),
        *step("test", RunShell(command="pytest -q"), shell_result("1 failed", 1), thought="Reproduce it first."),
        *step("edit", ReplaceText(path="calc.py", old="a - b", new="a + b"), EditResult(path="calc.py", diff=DIFF)),
        Checkpoint(patch=Patch(base_sha="ab" * 20, diff=b"diff --git a/calc.py b/calc.py\n" + DIFF.encode())),
        Condensation(tokens_before=45_000, tokens_after=12_000),
        model_reply("look", Browse(task="What is the answer?"), Think(thought="Hm.")),
        SubagentSpawned(call_id="look", run=CHILD, task="What is the answer?"),
        ToolResult(call_id="look", observation=report),
        NetworkAccess(
            visits=(
                ConnectionSummary(host="pypi.org", port=443, bytes_sent=900, bytes_received=2_000_000),
                ConnectionSummary(host="evil.test", port=443, denied="unlisted"),
            )
        ),
        Message(text="Three steps are left.", source="program"),
        *step("done", finish, noted),
        AgentStopped(reason="finished", detail="The agent finished."),
        VerificationCompleted(verdict=verdict()),
        JobCompleted(outcome=outcome),
    )  # fmt: skip


def child_run() -> Trajectory:
    """The browsing subagent's run of `full_run`."""
    return run_of(
        SubagentStarted(
            parent=RUN, call_id="look", depth=2, task="What is the answer?", model="m", steps=5, seconds=60,
            usd=Decimal(1),
        ),
        *step("a", UseBrowser(code='goto("http://localhost:8000/")'), page(png(1)), thought="I open it."),
        *step("b", UseBrowser(code='click("1")'), page(png(1))),
        AgentStopped(reason="finished", detail="Answered."),
    )  # fmt: skip


def every_event() -> dict[type[Event], Event]:
    """Returns one event of each kind, by its class."""
    others = (
        BaselinePending(),
        Paused(),
        RunResumed(run=JobId("earlier")),
        AuxiliaryModelCall(purpose="review", usage=ReplyUsage(model="vendor/model-1")),
    )
    return {type(event): event for event in (*full_run(), *child_run(), *others)}
