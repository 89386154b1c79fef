"""A run with one of everything, for the tests of what shows runs."""

import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from resolver.actions import Action, Browse, Finish, Plan, PlanItem, Reported, Result, Think
from resolver.circumstances import Configured, Connected, Prepared
from resolver.domain import (
    Delivered,
    Issue,
    Job,
    JobId,
    Patch,
    Repo,
    RunId,
    Spent,
    SuiteRun,
    User,
    Verdict,
)
from resolver.events import (
    Assigned,
    Call,
    Checkpointed,
    Condensed,
    Decided,
    Delegated,
    Ended,
    Entry,
    Event,
    Judged,
    Observed,
    Prompted,
    Settled,
    Started,
    Told,
    Trajectory,
    Usage,
)
from runtime.actions import ReplaceText, RunShell, UseBrowser
from runtime.egress.egress import Visit
from runtime.observations import Edited, Failed, Page, Picture, Ran, Tab

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


def png(shade: int = 0, side: int = 40) -> Picture:
    """A picture of one grey."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + bytes([shade]) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return Picture(media="image/png", data=b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def run_of(*events: Event) -> Trajectory:
    """These events, a second apart."""
    began = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    return Trajectory(
        tuple(Entry(seq=n, at=began + timedelta(seconds=n), event=event) for n, event in enumerate(events))
    )


def started(title: str = "add() subtracts", url: str = "https://forge.test/acme/calc/issues/7") -> Started:
    issue = Issue(number=7, title=title, body="", author=AUTHOR, trusted=False, open=True, url=url)
    job = Job(id=JobId(RUN), repo=Repo(owner="acme", name="calc"), number=7, requester=AUTHOR)
    return Started(
        job=job, thread=issue, base="ab" * 20, base_branch="main", source="https://forge.test/acme/calc",
        model="vendor/model-1", sandbox="docker", network="allow-list",
    )  # fmt: skip


def decided(id: str, *actions: Action, thought: str = "", usd: str = "0.01") -> Decided:
    calls = tuple(Call(id=f"{id}.{n}" if n else id, action=action) for n, action in enumerate(actions))
    usage = Usage(model="vendor/model-1", prompt_tokens=1000, completion_tokens=50, usd=Decimal(usd))
    return Decided(thought=thought, calls=calls, usage=usage)


def step(id: str, action: Action, came: Result, thought: str = "") -> Sequence[Event]:
    """A reply with one call, and its answer."""
    return (decided(id, action, thought=thought), Observed(call=id, observation=came))


def ran(output: str, code: int = 0) -> Ran:
    return Ran(output=output, exit_code=code, cwd="/workspace", seconds=0.5)


def page(screenshot: Picture | None = None, **more: str) -> Page:
    url = more.pop("url", "http://localhost:8000/")
    return Page(
        url=url, title="A page", tree="[1] button 'Go'", tabs=(Tab(url=url, title="A page", active=True),),
        screenshot=screenshot, **more,
    )  # fmt: skip


def verdict() -> Verdict:
    def suite(exit_code: int, **results: str) -> SuiteRun:
        named = {f"tests/test_calc.py::{name}": result for name, result in results.items()}
        return SuiteRun(
            command="python3 -m pytest", results=named, exit_code=exit_code, seconds=1.5, output="tail of it"
        )

    return Verdict(
        kind="fixed", newly_passing=("tests/test_calc.py::test_add",), reason="1 test failed before and passes now.",
        before=suite(1, test_add="failed", test_double="passed"),
        after=suite(0, test_add="passed", test_double="passed"),
    )  # fmt: skip


def whole_run() -> Trajectory:
    """A run with one of everything."""
    plan = Plan(items=(PlanItem(text="Reproduce it", state="done"), PlanItem(text="Mend it")))
    told = Delivered(
        url="https://forge.test/acme/calc/pull/8", number=8, branch="b", draft=False, verdict=verdict()
    )
    report = Reported(
        run=CHILD, status="answered", text="It is 42.", spent=Spent(usd=Decimal("0.5"), steps=1)
    )
    finish = Finish(cause="It subtracted.", change="It adds.", checked="pytest")
    noted = Failed(reason="refused", message="Not yet: run the tests.")
    return run_of(
        started(),
        Configured(
            version="0.1.0", models={"act": "vendor/model-1"}, steps=100, seconds=3600, usd=Decimal(2),
            settings={"plan_every": 10}, repository={"test_command": None},
        ),
        Prepared(commands=("pip install -e .",), warm=False, seconds=12),
        Prompted(system="You mend.", tools=()),
        Told(text="The brief of issue 7", source="brief", pictures=(png(9),)),
        *step("plan", plan, Failed(reason="io", message="lost")),
        *step("test", RunShell(command="pytest -q"), ran("1 failed", 1), thought="Reproduce it first."),
        *step("edit", ReplaceText(path="calc.py", old="a - b", new="a + b"), Edited(path="calc.py", diff=DIFF)),
        Checkpointed(patch=Patch(base="ab" * 20, diff=b"diff --git a/calc.py b/calc.py\n" + DIFF.encode())),
        Condensed(before=45_000, after=12_000),
        decided("look", Browse(task="What is the answer?"), Think(thought="Hm.")),
        Delegated(call="look", run=CHILD, task="What is the answer?"),
        Observed(call="look", observation=report),
        Connected(
            visits=(
                Visit(host="pypi.org", port=443, sent=900, received=2_000_000),
                Visit(host="evil.test", port=443, refused="unlisted"),
            )
        ),
        Told(text="Three steps are left.", source="program"),
        *step("done", finish, noted),
        Ended(reason="finished", detail="The agent finished."),
        Judged(verdict=verdict()),
        Settled(outcome=told),
    )  # fmt: skip


def child_run() -> Trajectory:
    """The run that `whole_run` asked."""
    return run_of(
        Assigned(
            parent=RUN, call="look", depth=2, task="What is the answer?", model="m", steps=5, seconds=60,
            usd=Decimal(1),
        ),
        *step("a", UseBrowser(code='goto("http://localhost:8000/")'), page(png(1)), thought="I open it."),
        *step("b", UseBrowser(code='click("1")'), page(png(1))),
        Ended(reason="finished", detail="Answered."),
    )  # fmt: skip
